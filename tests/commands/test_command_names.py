"""Names of commands and options."""

import argparse
import dataclasses
import importlib

import pytest

from faceanon import cli
from faceanon.commands._typed import typed
from faceanon.commands.report import REPORTS

OPTIONS = {
    "anonymize": ["in.png"],
    "recover": ["in.png", "out.png"],
    "backbones": [],
    "demo": [],
    "export": ["--onnx", "out"],
    "inspect": ["a.png"],
    "rekey": ["in.png", "out.png"],
    "web": [],
    "zoo": [],
    "report.compare": ["a"],
    "report.leaderboard": ["a"],
    "report.occlusion": ["--model", "m"],
    "report.security": ["--model", "m"],
    "report.tables": ["list"],
    "report.photographs": ["--model", "m", "--pictures", "p", "--out", "o"],
}
"""Modules of commands with one dataclass, and the fewest words that each takes."""


def parsed(module, words):
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(words)


def flat(options):
    """Names of all fields, those of groups included."""
    names = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        names += flat(value) if dataclasses.is_dataclass(value) else [field.name]
    return names


@pytest.mark.parametrize("name", OPTIONS)
def test_every_argument_is_a_field_and_every_field_an_argument(name):
    module = importlib.import_module(f"faceanon.commands.{name}")
    args = parsed(module, OPTIONS[name])
    kind = getattr(module, f"{name.rpartition('.')[2].title()}Options")
    options = kind.of(args) if hasattr(kind, "of") else typed(kind, args)
    assert sorted(flat(options)) == sorted(vars(args))
    field = dataclasses.fields(options)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, field, None)


def test_the_table_above_names_every_command():
    named = {name for name in cli.COMMANDS if name not in ("doctor", "evaluate", "keys", "report", "weights")}
    assert set(OPTIONS) == named | {f"report.{name}" for name in REPORTS}


@pytest.mark.parametrize("words", [["report"], ["report", "securty"], ["report", "tables"], ["report", "security"]])
def test_a_report_without_its_words_is_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert "usage: faceanon report" in capsys.readouterr().err


def test_the_help_of_report_names_them_all(capsys):
    with pytest.raises(SystemExit):
        cli.main(["report", "--help"])
    said = capsys.readouterr().out
    for name in REPORTS:
        assert f"\n    {name}" in said


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_teaches_by_two_examples(name, capsys):
    with pytest.raises(SystemExit):
        cli.main(["report", name, "--help"])
    said = capsys.readouterr().out
    assert said.startswith(f"usage: faceanon report {name}")
    assert said.count(f"\n  faceanon report {name} ") == 2


def test_the_help_of_anonymize_fits_two_screens(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["anonymize", "--help"])
    said = capsys.readouterr().out
    assert sum(max(1, -(-len(line) // 80)) for line in said.splitlines()) <= 100
