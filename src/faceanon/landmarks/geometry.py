"""Measures of a face's points, and the pixels that they enclose.

Nothing here needs torch. Pictures are RGB `(S, S, 3)` uint8, points are in pixels, x before y.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.landmarks.drawings import (
    INNER_LIPS,
    LEFT_BROW,
    LEFT_CHEEK,
    NOSE_TIP,
    RIGHT_BROW,
    RIGHT_CHEEK,
)

Array = NDArray[np.float32]
Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]

ELLIPSE = (0.5, 0.54, 0.36, 0.46)  # centre x and y, half axes, in sides: where an aligned face lies
EYE_CORNERS = (33, 263)  # the outer ones; their distance is the measure of a face
LIP_MIDDLES = (13, 14)  # of the inner lips, upper and lower
DARKEST = 8.0  # added to colours before their logarithm, so that black stays finite
HAIR = 0.7  # natural logarithm by which a colour differs from the skin's where it is hair
RIM = 1.06  # up to here, around the middle of the outline, skin is the face's: points end a little within it
BESIDE_HAIR = 1 / 50  # width of what is taken for hair beside pixels that are, in sides of the picture


def eye_distance(mesh: Array) -> float:
    """Distance between the outer corners of the eyes of `(468, 2 or 3)`; at least a pixel, also in profile."""
    left, right = mesh[list(EYE_CORNERS), :2]
    return max(float(np.linalg.norm(left - right)), 1.0)


def openness(mesh: Array) -> float:
    """Height of the gap between the lips of `(468, 2 or 3)`, in distances between the eyes."""
    upper, lower = mesh[list(LIP_MIDDLES), :2]
    return float(np.linalg.norm(upper - lower) / eye_distance(mesh))


def turn(mesh: Array) -> float:
    """How far a face `(468, 2 or 3)` is turned: 0 from the front, 1 and -1 in profile.

    Above 0 more of the picture's left half of the face is seen, below 0 more of the right half.
    """
    nose, left, right = mesh[[NOSE_TIP, LEFT_CHEEK, RIGHT_CHEEK], :2]
    before = float(np.linalg.norm(nose - left))
    behind = float(np.linalg.norm(nose - right))
    return (before - behind) / max(before + behind, 1.0)


def upwards(mesh: Array) -> Array:
    """Straight up on a face `(468, 2)`, whichever way the head is tilted: a unit vector from the mouth to the brows."""
    up = mesh[[*LEFT_BROW, *RIGHT_BROW]].mean(0) - mesh[list(INNER_LIPS)].mean(0)
    unit: Array = up / max(float(np.linalg.norm(up)), 1e-3)
    return unit


def heights(mesh: Array, side: int) -> Array:
    """How far up on a face `(468, 2)` the pixels of its picture lie, `(S, S)`."""
    across, down = upwards(mesh)
    steps = np.arange(side, dtype=np.float32) + 0.5
    distances: Array = steps[None] * across + steps[:, None] * down
    return distances


def above_brows(mesh: Array, side: int) -> Array:
    """How far above the highest point of the brows of a face `(468, 2)` the pixels of its picture lie, `(S, S)`."""
    above: Array = heights(mesh, side) - (mesh[[*LEFT_BROW, *RIGHT_BROW]] @ upwards(mesh)).max()
    return above


def unlike_skin(picture: Pixels, tone: Array) -> Mask:
    """Pixels whose colour is far from the skin's, `(S, S)`.

    Args:
        picture: `(S, S, 3)`.
        tone: `(3,)` of the skin, natural logarithms of its colours, `DARKEST` added.
    """
    # Between two colours a channel: as the difference of logarithms, without a logarithm a pixel.
    least = np.exp(tone - HAIR) - DARKEST
    most = np.exp(tone + HAIR) - DARKEST
    unlike: Mask = ((picture < least) | (picture > most)).any(-1)
    return unlike


def filled(points: Array, height: int, width: int | None = None) -> Mask:
    """Pixels within a polygon `(N, 2)`, `(height, width)`; a square where no width is given."""
    sheet = np.zeros((height, width or height), np.uint8)
    cv2.fillPoly(sheet, [np.round((points - 0.5) * 8).astype(np.int32)], 1, shift=3)
    return sheet > 0


def around(points: Array, share: float) -> Array:
    """Points moved towards their middle, or away from it where `share` is above 1."""
    middle = points.mean(0)
    moved: Array = middle + (points - middle) * np.float32(share)
    return moved


def tidy(mask: Mask) -> Mask:
    """A mask without single pixels."""
    opened: Mask = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3))) > 0
    return opened


def wider(mask: Mask, share: float = BESIDE_HAIR) -> Mask:
    """A mask with what lies beside it, up to half of a share of the picture's side."""
    step = odd_number(share * len(mask))
    wide: Mask = cv2.dilate(mask.astype(np.uint8), np.ones((step, step))) > 0
    return wide


def odd_number(width: float) -> int:
    """An odd whole number near to a width, so that a square of this side has a middle pixel."""
    return max(int(width), 1) | 1
