"""Neither batches nor processes change a figure."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from metric_cases import CASES, ROWS, evaluation, result

HERE = Path(__file__).resolve().parent
WHOLE = [list(range(ROWS))]


@pytest.mark.parametrize("size", [1, 7, 32])
@pytest.mark.parametrize("name", CASES)
def test_any_batch_size(name, size):
    parts = [list(range(start, min(start + size, ROWS))) for start in range(0, ROWS, size)]
    assert result(name, parts) == pytest.approx(result(name, WHOLE), abs=1e-5, rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("name", CASES)
def test_the_rows_matter(name):
    assert result(name, [list(range(50))]) != pytest.approx(result(name, WHOLE), abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("name", CASES)
def test_nothing_and_nan_are_errors(name):
    make, rows = CASES[name]
    with pytest.raises(ValueError, match=r"empty|at least one"):
        make().update(*rows([]))
    if name == "detector":
        return
    spoiled = tuple(
        torch.full_like(item, math.nan) if isinstance(item, torch.Tensor) and item.is_floating_point() else item
        for item in rows([0, 1, 2])
    )
    if name == "pictures":
        spoiled = (spoiled[0].map(lambda t: t * math.nan if t.is_floating_point() else t),)
    if name == "iou":
        spoiled = (spoiled[0] + 9, spoiled[1])
    with pytest.raises(ValueError, match=r"NaN|whole numbers"):
        make().update(*spoiled)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    path = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "metric_cases.py"), str(folder)]
    running = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    for process in running:
        _, errors = process.communicate(timeout=280)
        assert process.returncode == 0, errors[-3000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("deal", ["stretches", "turns"])
@pytest.mark.parametrize("name", CASES)
def test_two_processes_find_what_one_finds(two_processes, name, deal):
    assert two_processes[f"{name}/{deal}"] == pytest.approx(result(name, WHOLE), abs=1e-5, rel=1e-5, nan_ok=True)


@pytest.mark.slow
def test_two_processes_make_the_same_evaluation(two_processes):
    alone = evaluation(list(range(36)))
    assert two_processes["figures"] == pytest.approx(alone.figures, abs=1e-5)
    assert set(two_processes["ci"]) == set(alone.ci)
    for name, ends in alone.ci.items():
        assert two_processes["ci"][name] == pytest.approx(list(ends), abs=1e-5)
    assert two_processes["meta"]["images"] == 36
    assert two_processes["meta"]["people"] == 12
