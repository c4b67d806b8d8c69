"""What is published: the archives hold what they must, carry one version; the wheel works outside the repository."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import faceanon

ROOT = Path(__file__).resolve().parents[2]
SECRETIVE = re.compile(rb"pypi|https?://[^/\s]+/simple|/root/|/home/")


def run(*words, cwd, **env):
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def build(target, source, out):
    run("-m", "hatchling", "build", "-t", target, "-d", out, cwd=source)
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The sdist of the repository, and the wheel that is built from the sdist, as an index's users get them."""
    folder = tmp_path_factory.mktemp("dist")
    sdist = build("sdist", ROOT, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Pythons before 3.11.4 have none
        archive.extractall(folder / "unpacked")
    (source,) = (folder / "unpacked").iterdir()
    return sdist, build("wheel", source, folder / "wheel")


def test_the_version_stands_in_one_place(archives):
    for archive in archives:
        assert f"faceanon-{faceanon.__version__}" in archive.name
    tracked = [path for path in (ROOT / "src").rglob("*.py") if f'"{faceanon.__version__}"' in path.read_text()]
    assert [path.name for path in tracked] == ["__init__.py"]
    assert (
        "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
        or f"## {faceanon.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    )


def test_the_archives_hold_what_they_must_and_no_more(archives):
    sdist, wheel = archives
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA")))
    wanted = ["py.typed", "_data/configs/dbaf_s1.yaml", "_data/checkpoints/photo128_prior/generator.safetensors"]
    assert {f"faceanon/{name}" for name in wanted} <= names
    assert not [name for name in names if "tests" in name or name.endswith((".pyc", ".ckpt"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not SECRETIVE.search(metadata)
    with tarfile.open(sdist) as archive:
        inner = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "constraints.txt", "tests/release/smoke.py", "docs/index.md", "Makefile"} <= inner
    assert not [name for name in inner if name.startswith((".venv", "runs/", "build/", ".git/"))]


@pytest.mark.timeout(1200)  # installing and trying each take minutes on a busy machine
@pytest.mark.slow
def test_the_wheel_works_outside_the_repository(archives, tmp_path):
    place = tmp_path / "site"
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
    run("-m", "pip", "install", *options, "--target", place, archives[1], cwd=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    said = run(ROOT / "tests/release/smoke.py", cwd=empty, PYTHONPATH=str(place), OMP_NUM_THREADS="1")
    assert said.strip().endswith("works")
