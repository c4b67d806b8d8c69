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


def noisy(side=256):
    """Fine detail everywhere, `(side, side, 3)` uint8: what a small face has not."""
    return np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)


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
    image = noisy() if name == "small" else photograph()
    still = PhotoJitter(**STILL)
    shares = {"worse", "dark", "small"}
    strong = PhotoJitter(**{**STILL, name: 1.0 if name in shares else 0.3})
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


def test_small_versions_have_lost_their_detail_and_keep_the_rest():
    image = noisy() // 4 + photograph(256) // 2
    small = PhotoJitter(**{**STILL, "small": 1.0})
    still = PhotoJitter(**STILL)
    for number in range(2, 8):
        version = small.version(image, number, [number]).astype(float)
        whole = still.version(image, number, [number]).astype(float)
        detail = np.abs(np.diff(version, axis=1)).mean()
        assert detail < 0.3 * np.abs(np.diff(whole, axis=1)).mean()
        assert abs(version.mean() - whole.mean()) < 1


def test_dark_versions_have_a_seventh_to_two_thirds_of_the_light():
    image = photograph()
    dark = PhotoJitter(**{**STILL, "dark": 1.0})
    still = PhotoJitter(**STILL)
    shares = []
    for number in range(2, 40):
        version = dark.version(image, number, [number])
        whole = still.version(image, number, [number])
        shares.append(version.mean() / whole.mean())
    assert 0.14 < min(shares) < 0.25
    assert 0.55 < max(shares) < 0.66
