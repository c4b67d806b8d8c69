"""What the network for looks reads off pictures, in any light."""

import csv

import cv2
import numpy as np
import pytest
import torch

from faceanon.landmarks.looks import Looks
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle

COUNT = 40  # pictures, evenly of all that ship and have labels: each is encoded on the CPU


@pytest.fixture(scope="module")
def labelled():
    """Pictures `(N, 3, 128, 128)` of people who do not exist, their sex and how dark their skin is from 1 to 6."""
    with (checkpoints() / "photo_seers" / "looks.csv").open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["sex"] and row["skin"]]
    folder = checkpoints() / "photo128" / "pictures"
    rows = [row for row in rows if (folder / row["file"]).is_file()]
    rows = rows[:: max(1, len(rows) // COUNT)][:COUNT]
    pictures = []
    for row in rows:
        picture = cv2.imread(str(folder / row["file"]))
        pictures.append(cv2.resize(picture, (128, 128), interpolation=cv2.INTER_AREA)[:, :, ::-1].transpose(2, 0, 1))
    sex = np.array([float(row["sex"]) for row in rows])
    skin = np.array([float(row["skin"]) for row in rows])
    return torch.from_numpy(np.stack(pictures)).float(), sex, skin


@pytest.mark.parametrize("light", [1.0, 0.3])
def test_sex_and_skin_are_read_in_the_dark_too(labelled, light):
    pictures, sex, skin = labelled
    assert len(pictures) >= 20
    with torch.no_grad():
        latents = Bundle("photo128").codec.encode((pictures * light).round() / 127.5 - 1)
        looks = Looks().read(latents.float()).numpy()
    assert ((looks[:, 0] > 0) == (sex > 0)).mean() > 0.9
    assert np.corrcoef(looks[:, 2], -skin)[0, 1] > 0.7
