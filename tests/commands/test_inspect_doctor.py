import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

from faceanon import cli
from faceanon.commands import doctor
from faceanon.key import KdfParameters
from faceanon.manifest import CropGeometry, HiddenFace, Manifest
from faceanon.photo.file import LoadedPhoto, write_photo

REPO = Path(__file__).resolve().parents[2]
MANIFEST = Manifest(
    "a.B",
    "tiny",
    "ab" * 32,
    64,
    20,
    10,
    ((CropGeometry(5, 5, 3, 1),),),
    bytes(16),
    KdfParameters(),
    (HiddenFace((1.0, 2.0, 4.0, 6.0), "blur"),),
    "JPEG 90",
)


def write(path, sidecar=False):
    write_photo(path, LoadedPhoto(np.zeros((10, 20, 3), dtype=np.uint8), MANIFEST.to_json()), 90, sidecar)
    return str(path)


@pytest.mark.parametrize(("name", "sidecar"), [("a.png", False), ("a.jpg", False), ("a.webp", False), ("a.jpg", True)])
def test_inspect_shows_what_is_public(tmp_path, capsys, name, sidecar):
    path = write(tmp_path / name, sidecar)
    assert cli.main(["inspect", path]) == 0
    out = capsys.readouterr().out
    for word in (
        "tiny",
        "abababab",
        "20x10 px",
        "JPEG 90",
        "00" * 16,
        "64 MiB",
        "1 can be brought back",
        "blur: 3x4 px",
    ):
        assert word in out
    assert ("faceanon.json" if sidecar else "in the file") in out
    assert cli.main(["inspect", "--json", path, *([f"{path}.faceanon.json"] if sidecar else [])]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert json.loads(line) == json.loads(MANIFEST.to_json())


def test_inspect_names_files_without_data_and_shows_the_others(tmp_path, capsys):
    Image.new("RGB", (9, 9)).save(tmp_path / "bare.png")
    assert cli.main(["inspect", str(tmp_path / "bare.png"), write(tmp_path / "a.png"), str(tmp_path / "none.png")]) == 2
    out, err = capsys.readouterr()
    assert "bare.png carries no faceanon data" in err
    assert "no such picture" in err
    assert err.count("\n") == 2
    assert "tiny" in out


def test_inspect_takes_no_folder(tmp_path, capsys):
    assert cli.main(["inspect", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"faceanon: {tmp_path} is a folder; give the pictures in it\n"


def test_doctor_tells_what_is_there(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("torch", "keyring", "cpu", "photo128_prior", "everything needed is there"):
        assert word in out


def test_doctor_asks_for_every_package_that_an_installation_needs():
    written = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {canonicalize_name(Requirement(line).name) for line in written["project"]["dependencies"]}
    assert set(map(canonicalize_name, doctor.NEEDED)) == needed


def test_doctor_tells_what_missing_things_would_enable(capsys, monkeypatch):
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name in ("keyring", "rich") else real(name))
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "absent  keyring" in out
    assert "would enable --password-keyring" in out
    assert "MISSING rich" in out
    assert "missing: rich" in out


@pytest.mark.parametrize("statement", ["import faceanon", "import faceanon.cli; faceanon.cli.main(['--help'])"])
def test_the_first_word_comes_at_once(statement):
    heavy = ("torch", "lightning", "numpy", "PIL", "jsonargparse", "rich", "argon2")
    code = f"{statement}\nimport sys; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
