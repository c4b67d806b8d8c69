"""A method that paints faces of several sizes gets each face at the size that fits it."""

import csv

import cv2
import numpy as np
import pytest
import torch

from faceanon.backbones.classical import Blur
from faceanon.backbones.persona import Persona
from faceanon.data.files import read_photo
from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.manifest import CropGeometry, Manifest
from faceanon.paths import checkpoints
from faceanon.photo.file import LoadedPhoto
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.steps import ENLARGED, crop_size, parts_of_a_size


def square(side):
    return CropGeometry(0.0, 0.0, side / 2, 0.0)


@pytest.mark.parametrize(("side", "size"), [(20, 128), (128 * ENLARGED, 128), (161, 256), (2000, 256)])
def test_the_smallest_size_that_keeps_what_the_photo_shows(side, size):
    assert crop_size(square(side), (128, 256)) == size
    assert crop_size(square(side), (64,)) == 64


def test_every_square_is_in_one_part_of_its_size():
    layer = [square(side) for side in (30, 300, 40, 400, *range(50, 150))]
    parts = list(parts_of_a_size(layer, (128, 256)))
    assert sorted((geometry.side for _, part in parts for geometry in part)) == sorted(item.side for item in layer)
    for size, part in parts:
        assert 0 < len(part) <= 64
        assert {crop_size(geometry, (128, 256)) for geometry in part} == {size}


class Recording(Persona):
    """Keeps the sides of the faces that it was given."""

    def anonymize_with_codes(self, image, key):
        self.__dict__.setdefault("seen", []).append((len(image), image.shape[-1]))
        return super().anonymize_with_codes(image, key)


@pytest.fixture(scope="module")
def photo():
    """A large and a small face side by side."""
    folder = checkpoints() / "photo128"
    with (folder / "pictures.csv").open(encoding="utf-8", newline="") as file:
        names = [row["file"] for row in csv.DictReader(file) if row["split"] == "test" and row["source"] == "faker"]
    large, small = (read_photo(folder / "pictures" / name, 256)[0] for name in names[:2])
    pixels = np.full((480, 760, 3), 128, np.uint8)
    pixels[20:460, 20:460] = cv2.resize(large, (440, 440), interpolation=cv2.INTER_CUBIC)
    pixels[150:290, 560:700] = cv2.resize(small, (140, 140), interpolation=cv2.INTER_AREA)
    return LoadedPhoto(pixels=pixels, name="two.png")


def test_a_photo_with_a_large_and_a_small_face_comes_back(photo):
    torch.manual_seed(0)
    pipeline = Pipeline(Recording())
    secret = Secret.from_password("correct horse", b"0123456789abcdef")
    done = pipeline.anonymize_photo(photo, secret)
    assert done.faces == 2
    assert sorted(pipeline.backbone.seen) == [(1, 128), (1, 256)]
    back = pipeline.recover_photo(done.photo, secret, Manifest.from_json(done.photo.manifest))
    error = np.square(back.photo.pixels.astype(float) - photo.pixels).mean()
    assert 10 * np.log10(255**2 / error) > 30


def test_large_faces_may_be_painted_small(photo):
    pipeline = Pipeline(Recording())
    pipeline.largest = 128
    secret = Secret.from_password("correct horse", b"0123456789abcdef")
    done = pipeline.anonymize_photo(photo, secret)
    assert [side for _, side in pipeline.backbone.seen] == [128]
    back = pipeline.recover_photo(done.photo, secret, Manifest.from_json(done.photo.manifest))
    error = np.square(back.photo.pixels.astype(float) - photo.pixels).mean()
    assert 10 * np.log10(255**2 / error) > 28


def test_a_size_that_a_method_does_not_have_is_refused():
    pipeline = Pipeline(Persona())
    pipeline.largest = 64
    with pytest.raises(UserError, match="128 or 256 px, not of 64"):
        _ = pipeline.sizes
    other = Pipeline(Blur())
    other.largest = 64
    with pytest.raises(UserError, match="its recovery would not find it again"):
        _ = other.sizes
