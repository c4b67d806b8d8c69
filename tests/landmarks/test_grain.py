"""The grain on new faces: as much as is missing, up to a bound, and nowhere else."""

import cv2
import numpy as np
import pytest

from faceanon.landmarks.grain import MOST, SHARE, fineness, grain, with_grain

SIDE = 128
KEYS = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
# The middle of the picture is new.
FACE = np.zeros((SIDE, SIDE), bool)
FACE[32:96, 40:88] = True
CELLS = np.zeros((1, 1, 16, 16), np.float32)
CELLS[:, :, 4:12, 5:11] = 1


def photo(strength):
    """A soft picture with grain of its own, `(1, 3, S, S)`."""
    rng = np.random.default_rng(1)
    soft = cv2.resize(rng.uniform(-0.4, 0.4, (4, 4)).astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    own = rng.standard_normal((SIDE, SIDE)).astype(np.float32)
    return np.repeat((soft + strength * own)[None, None], 3, 1)


def put_on(original):
    """The same with a smooth face of another brightness."""
    smooth = cv2.GaussianBlur(original[0, 0], (0, 0), 4) + 0.2
    return np.where(FACE, smooth, original).astype(np.float32)


@pytest.mark.parametrize("strength", [0.005, 0.2], ids=["fine", "coarse"])
def test_a_smooth_face_gets_the_grain_that_is_missing_up_to_a_bound(strength):
    original = photo(strength)
    drawn = put_on(original)
    result = with_grain(drawn, original, CELLS, KEYS[:1])
    middle = np.zeros_like(FACE)
    middle[40:88, 48:80] = True
    wanted = min(SHARE * fineness(original[0], middle), MOST)
    assert fineness(drawn[0], middle) < 0.5 * wanted
    assert fineness(result[0], middle) == pytest.approx(wanted, rel=0.15)
    # Grain is light, not colour, and lies on what is new.
    change = result - drawn
    np.testing.assert_allclose(change[:, 0], change[:, 2], atol=1e-6)
    assert not change[:, :, ~FACE].any()


def test_a_face_as_fine_as_the_photograph_and_no_face_stay():
    original = photo(0.02)
    rough = np.where(FACE, original + 0.2, original)
    np.testing.assert_array_equal(with_grain(rough, original, CELLS, KEYS[:1]), rough)
    np.testing.assert_array_equal(with_grain(original, original, CELLS, KEYS[:1]), original)
    nothing = np.full_like(original, np.nan)
    assert np.isnan(with_grain(nothing, original, CELLS, KEYS[:1])).all()


def test_no_cell_changes_that_may_not():
    original = photo(0.02)
    few = CELLS.copy()
    few[:, :, 8:] = 0
    drawn = put_on(original)
    result = with_grain(drawn, original, few, KEYS[:1])
    assert not (result - drawn)[:, :, 64:].any()
    assert (result - drawn)[:, :, 40:60, 48:80].any()


def test_each_key_has_its_grain():
    first, other = (grain(key, SIDE) for key in KEYS)
    np.testing.assert_array_equal(first, grain(KEYS[0], SIDE))
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.05
    assert fineness(np.repeat(first[None], 3, 0), np.ones((SIDE, SIDE), bool)) == pytest.approx(1, rel=1e-3)
