"""A backbone in a package of its own, and the page that tells how to write one."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faceanon import cli
from faceanon.errors import UserError
from faceanon.models import load_backbone, save_backbone
from faceanon.testing import check_backbone

REPO = Path(__file__).resolve().parents[1]
PLUGIN = REPO / "examples/plugin"
PAGE = REPO / "docs/how-to/add-a-backbone.md"
BLOCK = re.compile(r"(?:^`([\w./]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def importable(monkeypatch):
    """The plugin's sources can be imported, but nobody announces them."""
    monkeypatch.syspath_prepend(str(PLUGIN / "src"))
    yield
    for name in [name for name in sys.modules if name.startswith("faceanon_veil")]:
        del sys.modules[name]


@pytest.fixture
def installed(importable, tmp_path, monkeypatch):
    """What pip leaves of the plugin: a folder beside the package that tells its entry points."""
    info = tmp_path / "site/faceanon_veil-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faceanon-veil\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[faceanon.backbones]\nveil = faceanon_veil.veil:Veil\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def veil():
    return importlib.import_module("faceanon_veil.veil").Veil


def test_the_plugin_keeps_the_contract(importable, tiny_bundle):
    check_backbone(veil()(str(tiny_bundle)))


def test_an_announced_backbone_is_listed_and_its_models_load(installed, tiny_bundle, tmp_path, capsys):
    assert cli.main(["backbones"]) == 0
    listed = capsys.readouterr().out
    entry = listed[listed.index("\nveil ") :]
    for words in ("faceanon_veil.veil.Veil", "NICE", "key of 256 bits", "AnonymizeStage", "from package faceanon-veil"):
        assert words in entry
    save_backbone(veil()(str(tiny_bundle)), tmp_path / "model")
    assert type(load_backbone(tmp_path / "model")[0]).__name__ == "Veil"
    assert cli.main(["backbones", "--save", "veil", str(tmp_path / "untrained")]) == 2
    assert "has to be trained first, by AnonymizeStage" in capsys.readouterr().err


def test_a_backbone_that_nobody_announces_is_not_loaded(importable, tiny_bundle, tmp_path, capsys):
    save_backbone(veil()(str(tiny_bundle)), tmp_path / "model")
    with pytest.raises(UserError, match="install the package that announces it"):
        load_backbone(tmp_path / "model")
    assert cli.main(["backbones"]) == 0
    assert "\nveil " not in capsys.readouterr().out


def test_a_package_that_does_not_import_is_named_and_the_others_are_listed(installed, tmp_path, monkeypatch, capsys):
    info = tmp_path / "site/faceanon_veil-0.1.0.dist-info"
    (info / "entry_points.txt").write_text("[faceanon.backbones]\nveil = faceanon_nowhere:Veil\n")
    assert cli.main(["backbones"]) == 0
    listed = capsys.readouterr().out
    assert "cannot import backbone 'faceanon_nowhere.Veil'" in listed
    assert "\ndbaf " in listed


def test_a_method_that_needs_no_training_is_saved_as_a_model(tmp_path, capsys):
    assert cli.main(["backbones", "--save", "pixelate", str(tmp_path / "model")]) == 0
    assert "pixelate: " in capsys.readouterr().out
    assert type(load_backbone(tmp_path / "model")[0]).__name__ == "Pixelate"
    assert cli.main(["backbones", "--save", "nothing", str(tmp_path / "other")]) == 2
    assert "no backbone 'nothing': there are" in capsys.readouterr().err


def test_the_page_shows_the_files_of_the_plugin():
    shown = {name: text for name, _, text in BLOCK.findall(PAGE.read_text()) if name}
    held = {
        path.relative_to(PLUGIN).as_posix(): path.read_text()
        for path in PLUGIN.rglob("*")
        if path.suffix in (".py", ".toml", ".yaml") and "runs" not in path.parts
    }
    assert {name: text for name, text in shown.items() if name in held} == held
    assert set(shown) - set(held) == {"write_face.py"}


def environment(folder, clone):
    """Commands of this installation on a clone; pip installs into `folder`, from nothing but what is here."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{folder}{os.pathsep}{clone / 'src'}",
        "OMP_NUM_THREADS": "1",
        "PIP_TARGET": str(folder),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's own oddity: 0 switches isolation off
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_followed_to_the_letter_from_an_empty_directory(tmp_path, few_clone):
    pytest.importorskip("hatchling", reason="pip builds the example with hatchling, and may not fetch it here")
    work = tmp_path / "work"
    work.mkdir()
    said = ""
    for name, language, text in BLOCK.findall(PAGE.read_text()):
        if name:
            (work / name).write_text(text)
        elif language == "sh":
            done = subprocess.run(
                [shutil.which("bash"), "-euc", text],
                cwd=work,
                env=environment(tmp_path / "site", few_clone),
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
            said += done.stdout
    assert "\nveil " in said
    assert "1 passed" in said
    assert "deid_rate" in said
    face, hidden, back = (
        np.asarray(Image.open(work / f"{name}.png").convert("RGB"), dtype=float) for name in ("face", "hidden", "back")
    )
    assert np.abs(hidden - face).mean() > 2 * np.abs(back - face).mean()
    assert np.abs(back - face).mean() < 8
