"""The grain of a photograph on a large face that was put on, whose skin is smoother than what is around it.

Donors' photographs are small, and large faces get from redrawing its light alone: at 256 px the skin of a new face has
two thirds of the fine detail of the old one. Of 20 pairs of 256 px that two vision models saw, who knew nothing of
them, both preferred the face with grain in all 15 that differed; of ten faces of 128 px they preferred it in two.

Arrays only.
"""

from __future__ import annotations

import hashlib

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

FINE = 1.2  # pixels; finer than that is detail
SIZE = 0.7  # of a grain, in pixels
SHARE = 0.95  # of the old skin's detail that the new one may have
MOST = 1.4 / 127.5  # of grain, measured as `fineness` does: more of it is seen as spots
CHANGED = 3 / 127.5  # difference from which a pixel is a new one
LEAST = 64  # pixels of skin without which nothing is measured
LUMA = np.array([0.299, 0.587, 0.114], np.float32)
# In sides of the picture: gaps in what is new that are closed, spots of it that do not count, and the edge's softness.
GAPS, SPOTS, SOFT = 15 / 256, 9 / 256, 2 / 256


def with_grain(pictures: Array, originals: Array, cells: Array, keys: Array) -> Array:
    """Pictures with as much fine detail in what is new as the originals have there, as far as grain can give it.

    Args:
        pictures: `(B, 3, S, S)` in [-1, 1] with new faces; NaN where there is none.
        originals: `(B, 3, S, S)`.
        cells: `(B, 1, h, h)` of 0 and 1, the cells that may change; S is a multiple of h.
        keys: `(B, F, F)`, from which the grain is drawn: were it the same for all, it would be a mark.

    Returns:
        `(B, 3, S, S)`.
    """
    result = pictures.copy()
    side = pictures.shape[-1]
    allowed = cells[:, 0].repeat(side // cells.shape[-1], -2).repeat(side // cells.shape[-1], -1)
    for row in np.flatnonzero(np.isfinite(pictures).all((1, 2, 3))):
        new = _new(pictures[row], originals[row]) & (allowed[row] > 0)
        skin = cv2.erode(new.astype(np.uint8), _square(SPOTS, side)) > 0
        if skin.sum() < LEAST:
            continue
        had = SHARE * fineness(originals[row], skin)
        missing = np.sqrt(max(had**2 - fineness(pictures[row], skin) ** 2, 0))
        soft = cv2.GaussianBlur(new.astype(np.float32), (0, 0), SOFT * side) * new
        result[row] += np.float32(min(missing, MOST)) * soft * grain(keys[row], side)
    return result


def fineness(picture: Array, where: NDArray[np.bool_]) -> float:
    """How much fine detail `(3, S, S)` has: the median of its lightness without what is coarser than `FINE`."""
    return float(np.median(np.abs(_detail(np.tensordot(LUMA, picture, 1)))[where]))


def grain(key: Array, side: int) -> Array:
    """The grain of a key, `(S, S)`, whose fineness is 1."""
    # No file depends on these numbers: what brings a face back replaces them.
    seed = hashlib.sha256(b"faceanon/grain" + key.astype("<f4").tobytes()).digest()
    white = np.random.default_rng(int.from_bytes(seed, "big")).standard_normal((side, side), np.float32)
    grains = np.asarray(cv2.GaussianBlur(white, (0, 0), SIZE), np.float32)
    return np.divide(grains, np.float32(np.median(np.abs(_detail(grains)))))


def _new(picture: Array, original: Array) -> NDArray[np.bool_]:
    """`(S, S)`: where the face is new, without single spots."""
    side = picture.shape[-1]
    changed = (np.abs(picture - original).max(0) > CHANGED).astype(np.uint8)
    whole = cv2.morphologyEx(changed, cv2.MORPH_CLOSE, _square(GAPS, side))
    return cv2.morphologyEx(whole, cv2.MORPH_OPEN, _square(SPOTS, side)) > 0


def _square(share: float, side: int) -> NDArray[np.uint8]:
    """A square for OpenCV's morphology, of an odd number of pixels."""
    pixels = int(share * side) // 2 * 2 + 1
    return np.ones((pixels, pixels), np.uint8)


def _detail(light: Array) -> Array:
    return np.subtract(light, cv2.GaussianBlur(light, (0, 0), FINE))
