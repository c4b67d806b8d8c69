"""The command itself, killed and started again: what its check sees, and that nothing is lost."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faceanon.key import KdfParameters, Password
from faceanon.photo.metadata import MANIFEST_KEY
from faceanon.pipeline import Pipeline
from faceanon.pipeline.many.folder import FolderRun, plan_folder
from faceanon.pipeline.many.journal import JOURNAL_NAME
from faceanon.pipeline.many.table import write_table
from faceanon.pipeline.tasks import AnonymizeTask
from fakes import KeyedTint
from script_files import script as imported

REPO = Path(__file__).resolve().parents[2]
SCRIPT = REPO / "benchmarks/load_test.py"


@pytest.fixture(scope="module")
def script():
    with imported("benchmarks/load_test.py") as module:
        yield module


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Three photos and one that is none, done."""
    source = tmp_path_factory.mktemp("photos")
    target = tmp_path_factory.mktemp("results") / "out"
    for number in range(3):
        noise = np.random.default_rng(number).integers(40, 216, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(source / f"{number}.png")
    (source / "3.png").write_bytes(b"")
    secret = Password("hush", bytes(16), KdfParameters(memory_kib=64, iterations=1, lanes=1))
    jobs = [(path, target / path.name) for path in sorted(source.iterdir())]
    pipeline = Pipeline(KeyedTint(), batch=4)

    def make(source, output, salt, kdf):
        return AnonymizeTask(pipeline, source, output, secret, salt, kdf, aligned=True)

    run = FolderRun(plan_folder(source, target, jobs, {}, False), pipeline, secret, make, 2)
    list(run.results())
    write_table(target / "faceanon.csv", [run.lines[path.name] for path, _ in jobs])
    return source, target


KINDS = {"0.png": "people", "1.png": "people", "2.png": "people", "3.png": "empty"}


def test_the_check_finds_nothing_wrong_with_a_whole_run(script, done):
    assert script.check(*done, KINDS) == []


def damage(name, out):
    if name == "lost":
        (out / "1.png").unlink()
    elif name == "half written":
        (out / "1.png").write_bytes((out / "1.png").read_bytes()[:-200])
    elif name == "without its manifest":
        with Image.open(out / "1.png") as picture:
            assert MANIFEST_KEY in picture.info
            picture.convert("RGB").save(out / "1.png")
    elif name == "left over":
        (out / ".1.png.abc").write_bytes(b"half")
    else:
        journal = out / JOURNAL_NAME
        lines = journal.read_text().splitlines()
        again = [line for line in lines if json.loads(line).get("source") == "1.png"]
        journal.write_text("\n".join(lines + again) + "\n")


@pytest.mark.parametrize("name", ["lost", "half written", "without its manifest", "left over", "finished twice"])
def test_the_check_finds_one_result_that_is_wrong(script, done, tmp_path, name):
    source, target = done
    shutil.copytree(target, tmp_path / "out")
    damage(name, tmp_path / "out")
    (fault,) = script.check(source, tmp_path / "out", KINDS)
    assert "1.png" in fault


def test_the_check_finds_a_photo_that_nobody_speaks_of(script, done):
    assert script.check(*done, {**KINDS, "4.png": "people"}) == ["4.png: lost, it is not in the table"]


def test_photographs_of_a_number_are_the_same_each_time(script, tmp_path):
    kinds = script.draw_photos(tmp_path / "one", 12)
    assert script.draw_photos(tmp_path / "two", 12) == kinds
    for name in kinds:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_command_that_is_killed_three_times_loses_nothing(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src"), "OMP_NUM_THREADS": "1"}
    run = [sys.executable, str(SCRIPT), str(tmp_path), "--photos", "9", "--kills", "3", "--longest", "4"]
    line = [*run, "--back", "3", "--", "--face-size", "128"]
    ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # A fast machine is done before the last of them.
    assert re.search(r"\b[1-3] kills", ended.stdout), ended.stdout
    assert "\n0 fault(s)" in ended.stdout
