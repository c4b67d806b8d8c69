"""Versions of a photograph for training."""

from dataclasses import fields

import numpy as np
import pytest
from PIL import Image

from faceanon.data.photo_jitter import PhotoJitter

STILL = {field.name: 0.0 for field in fields(PhotoJitter)}


def photograph(side=64):
    """A smooth picture without any symmetry, `(side, side, 3)` uint8."""
    coarse = np.random.default_rng(0).integers(60, 200, (6, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC))


def difference(left, right):
    return float(np.abs(left.astype(float) - right.astype(float)).mean())


def test_version_0_is_the_photograph_and_version_1_its_mirror_image():
    image = photograph()
    assert np.array_equal(PhotoJitter().version(image, 0, [1, 0]), image)
    assert np.array_equal(PhotoJitter().version(image, 1, [1, 1]), image[:, ::-1])


@pytest.mark.parametrize("number", range(2, 12))
def test_a_version_follows_from_its_seed_alone(number):
    image = photograph()
    before = image.copy()
    jitter = PhotoJitter()
    first = jitter.version(image, number, [5, number])
    assert np.array_equal(jitter.version(image, number, [5, number]), first)
    assert not np.array_equal(jitter.version(image, number, [6, number]), first)
    assert np.array_equal(image, before)
    assert first.shape == image.shape
    assert first.dtype == np.uint8


def test_without_any_strength_a_version_is_the_photograph_or_its_mirror_image():
    image = photograph()
    still = PhotoJitter(**STILL)
    kinds = set()
    for number in range(2, 22):
        version = still.version(image, number, [0, number])
        mirrored = difference(version, image[:, ::-1]) < difference(version, image)
        kinds.add(mirrored)
        # Light is flattened a little even then, by a twentieth of the contrast.
        assert difference(version, image[:, ::-1] if mirrored else image) < 5
    assert kinds == {False, True}


@pytest.mark.parametrize("name", sorted(STILL))
def test_every_strength_changes_the_picture(name):
    image = photograph()
    still = PhotoJitter(**STILL)
    strong = PhotoJitter(**{**STILL, name: 1.0 if name == "worse" else 0.3})
    numbers = range(2, 8)
    changed = [difference(strong.version(image, n, [3, n]), still.version(image, n, [3, n])) for n in numbers]
    assert max(changed) > 0.5


def test_usual_versions_stay_the_same_scene():
    image = photograph(128)
    for number in range(2, 40):
        version = PhotoJitter().version(image, number, [number])
        likeness = max(
            np.corrcoef(version.ravel(), image.ravel())[0, 1],
            np.corrcoef(version.ravel(), image[:, ::-1].ravel())[0, 1],
        )
        assert likeness > 0.5
