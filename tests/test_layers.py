"""The order of the rooms: a file imports only from its own room and those below, and never in a circle."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
SRC = REPO / "src"
PAGE = REPO / "docs/explanation/architecture.md"

# One room a floor, from the ground up: a module or a package below faceanon, and what it is there for. PAGE shows the
# layers that these floors make up.
FLOORS = {
    "errors": "what a user is told",
    "paths": "where configs and checkpoints lie",
    "compat": "private names of torch and Lightning",
    "types": "codes, branches, batches of faces",
    "key": "passwords, secrets, salts",
    "lock": "what a file says of its key",
    "manifest": "what an anonymized photo says of itself",
    "quantised": "weights in few bits",
    "packed": "safetensors in Huffman code",
    "files": "safetensors and YAML on disk, hashed and written atomically",
    "results": "figures of a test as a file",
    "sampling": "colours of a picture between its pixels",
    "optim": "optimizers",
    "networks": "layers, and networks in public layouts",
    "losses": "one term a function",
    "sealed": "codes beside a picture, encrypted",
    "weights": "bundles, pairing, checksums, layouts of public checkpoints",
    "light": "networks without torch: graphs of onnxruntime",
    "landmarks": "the mesh of a face, what is read off it and filled in, and the cast whose faces are put on",
    "persona": "the method for photographs in numpy, on networks that onnxruntime or torch runs",
    "backbones": "methods, and the list of presets",
    "testing": "checks of a method, for plugins",
    "data": "training data",
    "photo": "photographs: decode, find, align, paste, write",
    "metrics": "figures of pictures and rates",
    "interop": "files of other programs: public checkpoints, ONNX",
    "models": "trained models: save, load, describe",
    "methods": "a method and a device by what was typed",
    "report": "pages, tables, plots, sheets",
    "pipeline": "photos, folders and videos in and out",
    "stages": "training steps",
    "training": "the trainer of the command line: callbacks, resuming, guards",
    "studies.tables": "the papers' tables",
    "studies.zoo": "every method trained and tested alike",
    "studies.leaderboard": "all results on one page",
    "studies.occlusion": "covered faces",
    "studies.security": "attacks",
    "studies.photographs": "photographs of real persons",
    "studies.evaluate": "pictures of any tool",
    "web": "the web page",
    "commands": "one file a command",
    "cli": "which command",
    "__main__": "python -m faceanon",
}
ORDER = list(FLOORS)
HEAD = "| layer | rooms | what it is there for |\n|---|---|---|\n"
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


def room(module):
    """The room in FLOORS that `faceanon.x.y` belongs to."""
    parts = module.removeprefix("faceanon.").split(".")
    for name in (".".join(parts[:2]), parts[0]):
        if name in FLOORS:
            return name
    raise AssertionError(f"{module} belongs to no room: add it to FLOORS")


def floor(module):
    """How high the room of a module lies, from 0."""
    return ORDER.index(room(module))


def layers():
    """The rooms of every layer that PAGE shows, from the highest layer down."""
    rows = PAGE.read_text(encoding="utf-8").partition(HEAD)[2].partition("\n\n")[0].splitlines()
    return [re.findall(r"`(\w+)`", row.split("|")[2]) for row in rows]


def ours(path, **options):
    return [name for name in imports(path, **options) if name.startswith("faceanon.")]


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"faceanon", "faceanon.studies"}))
def test_a_file_imports_only_from_its_room_and_those_below(module):
    for name in ours(MODULES[module]):
        assert floor(name) <= floor(module), f"{module} imports {name}, which lies above it"


def test_every_room_is_there():
    assert {room(module) for module in set(MODULES) - {"faceanon", "faceanon.studies"}} == set(FLOORS)


def test_no_class_name_stands_twice():
    places = {}
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    twice = [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]
    assert not twice, "one name, two classes: call each by what it is\n" + "\n".join(twice)


def test_the_page_names_rooms_that_are_there():
    named = [name for layer in layers() for name in layer]
    packages = {name.split(".")[0] for name in FLOORS}
    assert len(named) > 20
    assert set(named) <= packages
    assert len(named) == len(set(named))
    # A package, which a reader sees as a folder, has its place on the page.
    assert {name for name in packages if (SRC / "faceanon" / name).is_dir()} <= set(named)


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


MAY_USE_LIGHTNING = {
    "faceanon.compat",  # names the type of the trainer whose private state it reads
    "faceanon.pipeline.many.processes",  # starts the other processes of a folder run
}


def defines_datamodule(path):
    return any(
        "LightningDataModule" in ast.unparse(base)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    )


def test_only_training_and_datamodules_import_lightning():
    for module, path in MODULES.items():
        if not any(name.split(".")[0] in ("lightning", "pytorch_lightning") for name in imports(path)):
            continue
        if room(module) in ("stages", "training") or (room(module) == "data" and defines_datamodule(path)):
            continue
        assert module in MAY_USE_LIGHTNING, f"{module} imports lightning"


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
    assert floor("faceanon.key") < floor("faceanon.networks.e4e") < floor("faceanon.weights.bundle")
    assert floor("faceanon.studies.tables.run") < floor("faceanon.studies.zoo.recipes")
    with pytest.raises(AssertionError, match="belongs to no room"):
        room("faceanon.attic.box")
