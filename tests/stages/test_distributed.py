"""Two processes on the CPU."""

import json
import os
import subprocess
import sys

import pytest
from stage_probes import REPO, losses, small, words

from faceanon.files import load_tensors

pytestmark = pytest.mark.slow

FACES = ("--data.init_args.groups=4", "--data.init_args.batch_size=4")


def fit(config, bundle, out, **options):
    out.mkdir()
    notes = {"class_path": "stage_probes.RankNotes", "init_args": {"folder": str(out)}}
    listed = words(config, bundle, out, notes, **small(config, options))
    trainer = ("--config", str(REPO / "configs/trainer/ddp_cpu.yaml"), "--trainer.max_epochs=1")
    path = os.pathsep.join([str(REPO / "tests/stages"), str(REPO / "src")])
    command = [sys.executable, "-m", "faceanon", "fit", *listed, *trainer, *FACES]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_both_stages_on_two_processes(tiny_bundle, tmp_path):
    first = fit("pixels_s1", tiny_bundle, tmp_path / "1")
    second = fit("pixels_s2", tiny_bundle, tmp_path / "2", init_from=tmp_path / "1/model", weights__adversarial=0.1)
    for notes in (first, second):
        assert [note["world"] for note in notes] == [2, 2]
        people = [set(note["people"]) for note in notes]
        assert all(people)
        assert not people[0] & people[1]
        assert notes[0]["weights"] == notes[1]["weights"]
    for folder in ("1", "2"):
        tensors = load_tensors(tmp_path / folder / "model/weights.safetensors")
        assert all(value.isfinite().all() for value in tensors.values())
    assert "train/d/adversarial" in losses(tmp_path / "2")
