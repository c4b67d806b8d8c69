"""The examples in docstrings run, each from nothing: what an example uses, it imports."""

import ast
import doctest
from pathlib import Path

import pytest
import torch

SRC = Path(__file__).resolve().parents[1] / "src/faceanon"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
# Rooms that users and researchers call, and how many examples each has at least.
LEAST = {
    "key.py": 4,
    "types.py": 3,
    "manifest.py": 2,
    "files.py": 4,
    "losses": 28,
    "sealed": 9,
    "photo": 16,
    "data": 9,
    "metrics": 36,
    "backbones": 12,
    "networks": 22,
}


def docstrings():
    """Name, line and text of every docstring with an example."""
    for path in sorted(SRC.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if ">>>" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, DOCUMENTED):
                continue
            text = ast.get_docstring(node)
            if text and ">>>" in text:
                name = getattr(node, "name", "module")
                yield f"{path.relative_to(SRC).as_posix()}:{name}", text


EXAMPLES = list(docstrings())


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_runs_and_prints_what_it_says(name, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    told = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=told.append)
    assert result.attempted
    assert result.failed == 0, "".join(told)


def test_examples_stand_where_somebody_calls():
    for place, least in LEAST.items():
        assert sum(name.startswith(place) for name, _ in EXAMPLES) >= least, place
