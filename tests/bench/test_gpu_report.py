"""The script that measures a GPU, without one: its rehearsal, its table, and what it says where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.gpu import CASES, Cost, ways
from bench.probe import Sample
from bench.record import BenchFigure, Run
from bench.settings import Settings

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_report

    return gpu_report


def figure(name, wall, failed=None):
    peaks = {"peak-matmul-bf16": {"wall": [1000.0], "cpu": [1.0]}}
    return BenchFigure(
        name, images=8, gflop=100.0, samples=[Sample(wall, wall, 50.0, 40.0)] * 2, peaks=peaks, failed=failed
    )


def test_the_table_compares_with_the_reference_of_the_same_batch(script):
    names = ["gpu-stage2-256-b8-reference", "gpu-stage2-256-b8-fast", "gpu-stage2-256-b2-fast"]
    figures = [figure(names[0], 2.0), figure(names[1], 0.25), figure(names[2], 1.0)]
    failed = figure("gpu-stage2-256-b8-graphs", 1.0, "no | room")
    lines = script.speed_table(Run(Settings(), [*figures, failed], rounds=2))
    assert lines[2] == f"| {names[0]} | 4 | 1.00 | 50 | 0.050 |"
    assert lines[3] == f"| {names[1]} | 32 | 8.00 | 50 | 0.400 |"
    assert lines[4] == f"| {names[2]} | 8 | - | 50 | 0.100 |"
    assert "failed: no \\| room" in lines[5]


def test_the_three_largest_costs_are_listed(script):
    costs = [Cost(f"kernel{number}", 0.4 / (number + 1), 1.0, 3) for number in range(5)]
    lines = script.profile_lines(costs)
    assert len(lines) == 5
    assert lines[2] == "| `kernel0` | 0.40 | 1.00 | 3 |"


def test_every_way_is_a_case_of_every_batch():
    names = {case.name for case in CASES}
    for batch in (2, 8, 32):
        assert {f"gpu-stage2-256-b{batch}-{name}" for name in ("reference", *(way.name for way in ways()))} <= names
    # what a case's own process imports
    assert {case.build.__module__ for case in CASES} == {"bench.gpu"}


def test_a_run_that_is_cut_short_leaves_what_it_measured(script, monkeypatch, tmp_path):
    asked = []

    def fake(cases, settings, rounds, **others):
        asked.append([case.name.rpartition("-")[2] for case in cases])
        if len(asked) == 3:
            raise KeyboardInterrupt
        return Run(settings, [figure(case.name, 1.0) for case in cases], rounds)

    monkeypatch.setattr(script, "measure", fake)
    monkeypatch.setattr(script, "_head", lambda args, settings: "# GPU report")
    args = script.arguments().parse_args(["--only", "speed", "--batch", "2", "--out", str(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        script.report(args, Settings(), 256)
    # What compiles, which may take long, comes last and alone.
    assert asked == [["reference", "fp32", "bf16", "layout"], ["fast"], ["graphs"]]
    figures = json.loads((tmp_path / "report.json").read_text())["speed"]["figures"]
    assert [one["name"].rpartition("-")[2] for one in figures] == ["reference", "fp32", "bf16", "layout", "fast"]
    assert "gpu-stage2-256-b2-fast" in (tmp_path / "report.md").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_what_to_do(script, capsys):
    assert script.main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: no GPU here")
    assert "--rehearse" in said
    assert len(said.strip().splitlines()) == 1


def test_trainings_without_faces_are_refused(script, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert script.main([]) == 2
    assert "--root" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_rehearsal_goes_through_everything(tmp_path):
    words = ["--rehearse", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(BENCHMARKS / "gpu_report.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1500)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    content = json.loads((tmp_path / "out/report.json").read_text())
    assert content["rehearsal"] is True
    assert content["meta"]["float32_matmul"] == "highest"
    figures = {one["name"].rpartition("-")[2]: one for one in content["speed"]["figures"]}
    assert set(figures) == {"reference", "fp32", "fast"}
    assert all(one["failed"] is None and one["summary"]["per_second"] > 0 for one in figures.values())
    # It draws five pictures in either phase, and embeds the original for every pair.
    assert figures["reference"]["summary"]["gflop_per_image"] > 1.1 * figures["fp32"]["summary"]["gflop_per_image"]
    assert sum(one["share"] for one in content["profile"]) > 0.5
    rows = {row["method"]: row for row in content["trainings"]}
    assert set(rows) == {"dbaf"}
    assert all(0 < row["figures"]["psnr/recovered/file"] < 100 for row in rows.values())
    assert all(stage["images"] == 8 for row in rows.values() for stage in row["stages"].values())
    page = (tmp_path / "out/report.md").read_text()
    assert "**A rehearsal: the figures mean nothing.**" in page
    assert not list((tmp_path / "out").glob("*.png"))
