"""The page on the architecture names the files of a photo's and of a batch's way: all of them are in use there."""

import re
import sys
from pathlib import Path

import pytest

from face_files import write_faces
from faceanon import cli
from faceanon.photo.party import photo_party

REPO = Path(__file__).resolve().parents[1]
PACKAGE = REPO / "src/faceanon"
PAGE = REPO / "docs/explanation/architecture.md"
PHOTO = "| a photo, `faceanon anonymize` | file |"
BATCH = "| a batch, stage 2 | file |"


def rows(head):
    """The last cells of a table of the page: per row what stands before `with torch`, and what stands behind."""
    table = PAGE.read_text(encoding="utf-8").partition(head)[2].partition("\n\n")[0]
    cells = [line.rstrip(" |").rpartition("| ")[2] for line in table.splitlines()[2:]]
    return [cell.partition("with torch") for cell in cells]


def named(text):
    return set(re.findall(r"`([\w/]+\.py)`", text))


@pytest.fixture
def entered():
    """Files of the package of which a function was called since `sys.setprofile`; ends the tracing."""
    found = set()

    def note(frame, event, arg):
        name = frame.f_code.co_filename
        # Modules run when they are imported, which says nothing of the way.
        if event == "call" and frame.f_code.co_name != "<module>" and name.startswith(str(PACKAGE)):
            found.add(Path(name).relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    yield found
    sys.setprofile(before)


@pytest.mark.parametrize("engine", ["light", "torch"])
def test_a_photo_goes_through_the_files_that_the_page_names(entered, tmp_path, monkeypatch, engine):
    monkeypatch.setenv("WORD", "correct horse battery staple")
    photo_party().save(tmp_path / "in.png")
    words = ["anonymize", str(tmp_path / "in.png"), str(tmp_path / "out.png"), "--password-env", "WORD"]
    assert cli.main([*words, "--engine", engine]) == 0
    files = set()
    for light, torch, behind in rows(PHOTO):
        files |= named(behind if engine == "torch" and torch else light)
    assert files <= entered
    # Whoever follows a photo opens these, and the two that draw the face only to see how that is done.
    assert len(files - {"landmarks/cast.py", "landmarks/swap.py"}) <= 15


@pytest.mark.slow
def test_a_batch_goes_through_the_files_that_the_page_names(entered, tiny_bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {
        "model.init_args.backbone.init_args.bundle": tiny_bundle,
        "data.init_args.root": write_faces(tmp_path / "faces", 4),
        "data.init_args.image_size": 64,
        "data.init_args.val_fraction": 0.0,
        "data.init_args.test_fraction": 0.0,
        "data.init_args.batch_size": 4,
        "trainer.default_root_dir": tmp_path,
        "trainer.limit_val_batches": 0,
        "trainer.callbacks": "[]",
        "trainer.logger": "false",
        "model.init_args.export": "null",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    assert cli.main(["fit", "--config", str(REPO / "configs/paper/dbaf_s2.yaml"), *options]) == 0
    files = set().union(*(named("".join(row)) for row in rows(BATCH)))
    assert len(files) >= 10
    assert files <= entered
