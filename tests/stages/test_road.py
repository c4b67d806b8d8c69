"""The whole road as a user walks it: both stages, test, report, a picture there and back."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from stage_probes import REPO, losses, words

from face_files import write_faces
from faceanon.data.files import read_photos
from faceanon.data.prepared import shipped_photos

pytestmark = pytest.mark.slow

FACES = (
    "--data=faceanon.data.folder.FolderFaces",
    "--data.init_args.image_size=64",
    "--data.init_args.batch_size=16",
    "--data.init_args.val_fraction=0.1",
    "--data.init_args.test_fraction=0.2",
)


def faceanon(*command, code=0, **environment):
    """Run the command as a user would; gives back its standard output and error."""
    done = subprocess.run(
        [sys.executable, "-m", "faceanon", *(str(word) for word in command)],
        env={**os.environ, "PYTHONPATH": str(REPO / "src"), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done.stdout, done.stderr


def pixels_of(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def stage(number, bundle, out, faces, **options):
    return [
        *words(f"pixels_s{number}", bundle, out, blobs=False, **options),
        *FACES,
        f"--data.init_args.root={faces}",
    ]


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """So many that 64 stay for training: four batches an epoch."""
    return write_faces(tmp_path_factory.mktemp("faces"), 45)


@pytest.fixture(scope="module")
def models(tiny_bundle, faces, tmp_path_factory):
    """Folder in which both stages were trained: `1/model` and `2/model`."""
    out = tmp_path_factory.mktemp("road")
    faceanon("fit", *stage(1, tiny_bundle, out / "1", faces, samples_every=4), "--trainer.max_epochs=2")
    faceanon(
        "fit",
        *stage(2, tiny_bundle, out / "2", faces, samples_every=2, init_from=out / "1/model"),
        "--trainer.max_epochs=1",
    )
    return out


def test_stages_log_and_export(models):
    first, second = losses(models / "1"), losses(models / "2")
    assert {"contrastive", "identity", "reconstruction", "edges", "perceptual"} == {name[8:] for name in first}
    assert len(first["train/g/edges"]) == 8
    terms = {
        "identity",
        "recovered_identity",
        "perceptual",
        "recovery",
        "recovery_perceptual",
        "code",
        "target",
        "anchor",
        "wrong_anchor",
    }
    assert terms == {name[8:] for name in second}
    assert len(second["train/g/recovery"]) == 4
    for folder, sheets in (("1", 2), ("2", 2)):
        found = sorted((models / folder).rglob("samples/*.png"))
        assert len(found) == sheets
        assert all(pixels_of(path).shape > (64, 64, 3) for path in found)
        assert {path.name for path in (models / folder / "model").iterdir()} == {"model.yaml", "weights.safetensors"}


def test_test_writes_table_json_and_page(models, tiny_bundle, faces, tmp_path):
    options = {"init_from": models / "2/model", "report": tmp_path / "report"}
    out, _ = faceanon("test", *stage(2, tiny_bundle, tmp_path, faces, **options))
    figures = json.loads((tmp_path / "report/results.json").read_text())["figures"]
    for name in ("deid_rate/tiny_judge", "recovery_rate/tiny_judge/file", "wrong_key_rate/tiny_judge"):
        assert 0 <= figures[name] <= 1, name
    page = (tmp_path / "report/report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html")
    assert "deid_rate" in page
    assert "deid_rate" in out
    assert str(tmp_path / "report/report.html") in out


def test_a_picture_there_and_back_in_other_processes(models, tmp_path):
    pixels = read_photos([shipped_photos("test")[0].path], 64)[0]
    Image.fromarray(pixels).save(tmp_path / "face.png")
    model = ("--model", models / "2/model", "--password-env", "PW")
    faceanon("anonymize", tmp_path / "face.png", tmp_path / "hidden.png", "--aligned", *model, PW="right")
    for name in ("right", "wrong"):
        faceanon("recover", tmp_path / "hidden.png", tmp_path / f"{name}.png", *model, PW=name)
    pictures = [pixels_of(tmp_path / f"{name}.png") for name in ("hidden", "right", "wrong")]
    assert all(picture.shape == (64, 64, 3) for picture in pictures)
    assert np.abs(pictures[1] - pictures[2]).mean() > 0
    assert np.abs(pictures[0] - pixels).mean() > 0
