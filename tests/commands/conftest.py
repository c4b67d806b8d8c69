"""What tests of commands share: a tiny model with sealed codes, and commands that run with it in this process."""

import itertools

import pytest

from faceanon import cli
from faceanon.commands import anonymize, recover
from faceanon.key import KdfParameters
from faceanon.pipeline import Pipeline
from fakes import FixedDetector, SealedPatch
from test_pipeline import ALONE


@pytest.fixture(scope="module")
def backbone(sealed_bundle):
    return SealedPatch(str(sealed_bundle))


@pytest.fixture
def in_process(backbone, monkeypatch, capsys):
    """Run a command with the tiny model; gives exit code, output and error output."""
    pipe = Pipeline(backbone, FixedDetector(ALONE))
    monkeypatch.setattr(recover, "load_pipeline", lambda *asked, **more: pipe)
    monkeypatch.setattr(anonymize, "_pipeline", lambda *asked: pipe)
    monkeypatch.setattr(KdfParameters.__init__, "__defaults__", ("argon2id", 64, 1, 1, 19))
    # The same keys in every run: some salts draw a stranger of these small networks very near the original.
    salts = itertools.count(1)
    monkeypatch.setattr("faceanon.key.new_salt", lambda: next(salts).to_bytes(16, "big"))

    def run(*words):
        code = cli.main([*map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
