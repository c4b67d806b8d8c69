"""The order of the layers: a file imports only from its own layer and those below, and never in a circle."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
LAYERS = [
    {"types", "errors", "paths", "key", "manifest", "weights.spec"},
    {"networks", "losses", "optim", "sealed"},
    {"backbones", "metrics", "data", "photo", "weights"},
    {
        "stages",
        "callbacks",
        "pipeline",
        "batch",
        "video",
        "report",
        "attacks",
        "bench",
        "testing",
        "webpage",
        "studies",
    },
    {"commands", "cli", "training", "__main__"},  # training: the Lightning half of the command line
]
FILES = sorted((SRC / "faceanon").rglob("*.py"))
MODULES = {".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


def names_of(node):
    """Imported module names; `from a import b` gives `a.b` where that is a module of ours, else `a`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        joined = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in MODULES else node.module for name in joined]
    return []


@cache
def imports(path, top_only=False):
    """Everything a file imports; with `top_only` what runs when it is imported (no functions, no TYPE_CHECKING)."""
    found, stack = [], list(ast.parse(path.read_text(encoding="utf-8")).body)
    while stack:
        node = stack.pop()
        found += names_of(node)
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        if not (top_only and lazy):
            stack += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return sorted(set(found))


def layer(module):
    """Position of `faceanon.x.y` in LAYERS."""
    inner = module.removeprefix("faceanon.")
    for position, rooms in enumerate(LAYERS):
        if any(inner == room or inner.startswith(f"{room}.") for room in rooms if "." in room):
            return position
    for position, rooms in enumerate(LAYERS):
        if inner.split(".")[0] in rooms:
            return position
    raise AssertionError(f"{module} belongs to no layer: add its room to LAYERS and to docs/design.md")


def ours(path, **options):
    return [name for name in imports(path, **options) if name.startswith("faceanon.")]


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"faceanon"}))
def test_a_file_imports_only_from_its_layer_and_below(module):
    for name in ours(MODULES[module]):
        assert layer(name) <= layer(module), f"{module} imports {name}, which lies above it"


def test_nothing_is_imported_in_a_circle():
    graph = {
        module: {name for name in ours(path, top_only=True) if name in MODULES} for module, path in MODULES.items()
    }
    done, open_ = set(), []

    def visit(module):
        assert module not in open_, "circle: " + " -> ".join([*open_[open_.index(module) :], module])
        if module in done:
            return
        open_.append(module)
        for name in graph[module]:
            visit(name)
        done.add(open_.pop())

    for module in graph:
        visit(module)


def defines_datamodule(path):
    return any(
        "LightningDataModule" in ast.unparse(base)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    )


def test_only_stages_callbacks_cli_and_datamodules_import_lightning():
    for module, path in MODULES.items():
        if not any(name.split(".")[0] in ("lightning", "pytorch_lightning") for name in imports(path)):
            continue
        room = module.removeprefix("faceanon.").split(".")[0]
        allowed = room in ("stages", "callbacks", "cli", "training") or (room == "data" and defines_datamodule(path))
        allowed = allowed or module == "faceanon.bench.steps"  # measures Lightning's own loop
        assert allowed, f"{module} imports lightning"


@pytest.mark.parametrize("module", ["faceanon", "faceanon.__main__", "faceanon.paths", "faceanon.errors"])
def test_a_light_import_stays_light(module):
    heavy = ("torch", "lightning", "numpy", "jsonargparse")
    code = f"import sys, {module}; print(*[name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_the_check_itself_sees_imports(tmp_path):
    source = tmp_path / "x.py"
    source.write_text(
        "from __future__ import annotations\nimport torch.nn as nn\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from faceanon.cli import main\n"
        "def f():\n    import lightning\nclass A:\n    import json\n"
    )
    everything, at_import = imports(source), imports(source, top_only=True)
    assert {"torch.nn", "faceanon.cli", "lightning", "json"} <= set(everything)
    assert "json" in at_import
    assert not {"faceanon.cli", "lightning"} & set(at_import)
    assert layer("faceanon.weights.spec") < layer("faceanon.networks.e4e") < layer("faceanon.weights.bundle")
