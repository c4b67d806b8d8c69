"""The reader of beards: what it tells of labelled photographs, and that neither size nor side nor light matter."""

import csv

import cv2
import numpy as np
import pytest

from faceanon.landmarks.beard import beard
from faceanon.paths import checkpoints


@pytest.fixture(scope="module")
def labelled(mesh):
    """Pictures of 128 px that ship and have a label, their meshes and labels."""
    with (checkpoints() / "photo_seers" / "beards.csv").open(encoding="utf-8", newline="") as lines:
        labels = {row["file"]: row["beard"] for row in csv.DictReader(lines) if row["beard"]}
    pictures = []
    known = []
    for file in sorted((checkpoints() / "photo128" / "pictures").iterdir()):
        if file.name in labels:
            large = cv2.resize(cv2.imread(str(file)), (256, 256), interpolation=cv2.INTER_CUBIC)
            pictures.append(cv2.cvtColor(large, cv2.COLOR_BGR2RGB))
            known.append(int(labels[file.name]))
    large = np.stack(pictures)
    points = mesh.solid(large)[0]
    small = np.stack([cv2.resize(picture, (128, 128), interpolation=cv2.INTER_AREA) for picture in large])
    return small, points / 2, np.array(known)


@pytest.fixture(scope="module")
def read(labelled):
    pictures, points, _ = labelled
    return np.array([beard(*face) for face in zip(pictures, points, strict=True)])


def test_beards_are_told_from_bare_faces(labelled, read):
    known = labelled[2]
    assert (known == 0).sum() > 50
    assert (known == 2).sum() > 5
    assert (read[known == 0] > 0.5).mean() < 0.05
    assert (read[known == 2] > 0.5).mean() > 0.8
    assert read.min() >= 0
    assert read.max() <= 1


def test_a_mirror_image_has_the_same_beard(labelled, read, cast):
    pictures, points, _ = labelled
    for number in range(8):
        mirrored = points[number][cast.mirrored].copy()
        mirrored[:, 0] = 128 - mirrored[:, 0]
        flipped = np.ascontiguousarray(pictures[number][:, ::-1])
        assert beard(flipped, mirrored) == pytest.approx(read[number], abs=0.25)


def test_neither_size_nor_light_matters_much(labelled, read):
    pictures, points, _ = labelled
    large = []
    dim = []
    for picture, mesh in zip(pictures[:60], points[:60], strict=True):
        large.append(beard(cv2.resize(picture, (256, 256), interpolation=cv2.INTER_CUBIC), mesh * 2))
        dim.append(beard((picture * 0.6).astype(np.uint8), mesh))
    for others in (large, dim):
        assert np.abs(np.array(others) - read[:60]).mean() < 0.08


def test_a_face_beyond_the_picture_has_none_that_counts(face, points):
    assert 0 <= beard(face, points + np.array([1000, 0, 0], np.float32)) <= 1
