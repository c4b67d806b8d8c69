"""Colours of a picture between its pixels."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

LONGEST = 2**14  # row of places that OpenCV is given; it takes fewer than 2 ** 15 rows and columns


def colours_at(picture: NDArray[Any], places: NDArray[np.float32], how: int, beyond: int) -> NDArray[Any]:
    """A picture `(H, W, C)` at any number of places `(..., 2)`, right and down: `(..., C)`.

    OpenCV rounds a place to the 32nd part of a pixel.

    Args:
        picture: uint8 or float32.
        places: (0, 0) is the middle of the first pixel.
        how: `cv2.INTER_CUBIC` or `cv2.INTER_LINEAR`.
        beyond: The picture beyond its edges: `cv2.BORDER_REFLECT` or `cv2.BORDER_REPLICATE`.
    """
    count = places.size // 2
    # Rows have one length, so the last one is filled up.
    rows = np.zeros((-(-count // LONGEST), min(LONGEST, count), 2), np.float32)
    rows.reshape(-1, 2)[:count] = places.reshape(-1, 2)
    found = cv2.remap(picture, rows[..., 0], rows[..., 1], how, borderMode=beyond)
    channels = picture.shape[2]
    return found.reshape(-1, channels)[:count].reshape(*places.shape[:-1], channels).astype(picture.dtype)
