"""`python benchmarks/measure.py`: table, history, comparison, exit codes; one run of the real thing on a cheap case."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.compare import compare, differences, slower
from bench.page import markdown, terminal
from bench.probe import Sample
from bench.record import BenchFigure, Run, dumps, load, write
from bench.settings import Settings
from faceanon.errors import UserError
from measure import main

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/measure.py"


def a_run(cpu=1.0, peak=50.0, name="one", when="2026-01-02T03:04Z", memory=100.0):
    """A run of one case whose samples took `cpu` seconds on a machine of `peak` GFLOP/s."""
    peaks = {"peak-matmul": {"wall": [peak] * 2, "cpu": [peak] * 2}}
    samples = [Sample(cpu * 2, cpu, memory, 10.0), Sample(cpu * 2, cpu, memory, 10.0)]
    figure = BenchFigure(name, "of a test", images=2, gflop=10.0, samples=samples, peaks=peaks)
    machine = {"cpu": "a CPU", "cores": 2, "torch": "2", "faceanon": "0", "load": [1.0, 1.0, 1.0]}
    return Run(Settings(), [figure], 2, machine, when, "abcdef0123", False)


def test_a_run_survives_its_file_and_names_no_machine(tmp_path):
    run = a_run()
    path = write(run, tmp_path / "history")
    assert path.name == "2026-01-02T0304Z-cpu-32-abcdef0.json"
    assert load(path) == run
    assert load(path.parent) == run, "a folder stands for its newest"
    write(a_run(cpu=3.0, when="2026-01-03T00:00Z"), path.parent)
    assert load(path.parent).figures[0].median("cpu") == 3.0
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    assert content["figures"][0]["summary"]["fraction_cpu"] == 0.2
    assert path.stat().st_size < 3000
    assert os.uname().nodename not in path.read_text() or len(os.uname().nodename) < 4


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot read"),
        ("{", "is not a JSON"),
        ("[]", "is not a JSON"),
        ('{"schema": 99}', "has schema 99, this version reads 1"),
        ('{"schema": 1, "figures": [{}], "settings": {}}', "is damaged"),
        ('{"schema": 1, "figures": [], "settings": {"speed": 1}}', "is damaged"),
    ],
)
def test_files_that_are_no_runs(tmp_path, content, told):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=told):
        load(path)


def test_an_empty_history(tmp_path):
    with pytest.raises(UserError, match=r"holds no \.json"):
        load(tmp_path)


def test_machines_are_divided_out():
    """Half the time on a machine of twice the speed is no gain; half the time on the same machine is."""
    then = a_run(cpu=2.0, peak=50.0)
    assert compare(a_run(cpu=1.0, peak=100.0), then)[0].speed == pytest.approx(1.0)
    faster = compare(a_run(cpu=1.0, peak=50.0, memory=50.0), then)
    assert faster[0].speed == pytest.approx(2.0)
    assert faster[0].memory == pytest.approx(0.5)
    assert slower(faster, 2.1) == faster
    assert slower(faster, 1.9) == []
    assert compare(a_run(name="other"), then) == []


def test_what_else_differs_is_named():
    then = a_run()
    then.machine["torch"] = "1"
    assert differences(a_run(), then) == ["torch: 1 then, 2 now"]
    now = Run(Settings(threads=2), then.figures, 2, then.machine)
    assert differences(now, then) == ["threads: 1 then, 2 now"]


def test_the_tables_say_what_was_found():
    run = a_run()
    run.figures.append(BenchFigure("lost", "of a test", failed="RuntimeError: out of memory"))
    text = terminal(run, a_run(cpu=2.0))
    assert re.search(r"one +image +1 +2 +0% +5 +20% +25 +100 +10", text)
    assert "lost: not measured: RuntimeError: out of memory" in text
    assert re.search(r"one +2\.00 +1\.00", text)
    page = markdown(run, "python benchmarks/measure.py one", "x.json")
    assert "| one | image | 1 | 2 | 0% | 5 | 20% | 25 | 100 | 10 |" in page
    assert "The machine was shared with other work" in page


def faked(monkeypatch, run):
    monkeypatch.setattr("bench.measure.measure", lambda *args, **options: run)


def test_exit_codes_of_a_comparison(tmp_path, monkeypatch, capsys):
    then = write(a_run(cpu=1.0), tmp_path)
    faked(monkeypatch, a_run(cpu=2.0))
    words = ["start-import", "--baseline", str(then)]
    assert main(words) == 0
    assert "one" in capsys.readouterr().out
    assert main([*words, "--fail-below", "0.6"]) == 1
    assert "one is 0.50 times as fast as then" in capsys.readouterr().err
    assert main([*words, "--fail-below", "0.4"]) == 0
    faked(monkeypatch, a_run(name="other"))
    assert main([*words, "--fail-below", "0.4"]) == 2
    assert "shares no measured case" in capsys.readouterr().err


def test_two_former_runs_side_by_side(tmp_path, capsys):
    new, old = write(a_run(cpu=1.0), tmp_path / "new"), write(a_run(cpu=3.0), tmp_path / "old")
    page = tmp_path / "page.md"
    assert main(["--read", str(new), "--baseline", str(old), "--page", str(page)]) == 0
    assert re.search(r"one +3\.00 +1\.00", capsys.readouterr().out)
    assert "## Before" in page.read_text()
    assert main(["--read", str(new), "--json"]) == 0
    assert capsys.readouterr().out.encode() == dumps(load(new))


def test_a_failed_case_is_exit_code_1(monkeypatch, capsys):
    run = a_run()
    run.figures[0].failed = "RuntimeError: no"
    faked(monkeypatch, run)
    assert main(["start-import"]) == 1
    assert "one could not be measured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["stage9"], "no case 'stage9'; see python benchmarks/measure.py --list"),
        (["--rounds", "0"], "--rounds 0: give at least 1"),
        (["--threads", "0"], "--threads 0: give at least 1"),
        (["--device", "tpu"], "--device tpu: give cpu or cuda"),
        (["--device", "cuda:99"], "cannot compute on 'cuda:99'"),
        (["--fail-below", "0.9"], "--fail-below needs --baseline"),
        (["--baseline", "missing.json"], "cannot read missing.json"),
        (["--read", "x.json", "stage2"], "--read shows a former run: leave out cases and --out"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_measured(words, told, monkeypatch, capsys):
    monkeypatch.setattr("bench.measure.measure", lambda *args, **options: pytest.fail("measured"))
    assert main([*words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


def test_a_page_that_cannot_be_written_is_one_line(tmp_path, capsys):
    run = write(a_run(), tmp_path / "runs")
    (tmp_path / "file").touch()
    assert main(["--read", str(run), "--page", str(tmp_path / "file" / "page.md")]) == 2
    said = capsys.readouterr().err
    assert "cannot write" in said
    assert said.count("\n") == 1


def test_the_command_itself(tmp_path):
    """Peaks, a case in its own process, JSON and page; nothing is faked."""
    words = ["start-import", "--rounds", "1", "--warmup", "0", "--out", "history", "--page", "page.md"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    run = load(tmp_path / "history")
    (figure,) = run.figures
    assert figure.name == "start-import"
    assert figure.gflop is None, "torch does nothing in it"
    assert len(figure.samples) == 1
    assert figure.peak("cpu") > 1
    assert figure.cost("cpu") > 0
    assert all(one.memory is None for one in figure.samples), "a child's memory is not the worker's"
    assert "start-import" in done.stdout
    assert "python benchmarks/measure.py start-import --rounds 1" in (tmp_path / "page.md").read_text()
    assert str(Path.home()) not in json.dumps(dumps(run).decode())
