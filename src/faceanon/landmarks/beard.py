"""Whether a face has hair on chin, jaw or upper lip, so that a bearded person gets a bearded donor.

Skin from the nose to the chin is held against the upper cheeks, which are bare on everybody: how bright it is, of what
colour and how rough, at spots that follow the mesh. A logistic regression makes a chance of that
(`examples/train_beard_reader.py`). It knows nothing of sex.

Nothing here needs torch; both engines share it. Pictures are RGB `(S, S, 3)` uint8, points are in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from faceanon.files import load_arrays
from faceanon.landmarks.drawings import NOSE_TIP, OUTLINE
from faceanon.landmarks.geometry import DARKEST, Array, Pixels
from faceanon.weights.shipped import read_shipped

FILE = "beard.safetensors"
SIDE = 128  # pixels of the pictures that the numbers were found on
BEYOND = 1.16  # a beard reaches over the outline: as far from the nose as this many times the outline
DARKEST_SEEN = -1.5  # natural logarithm of how much darker than the skin; what is darker counts as this
BRIGHTEST_SEEN = 1.0  # ... and brighter
LEAST_ROUGH = 0.01  # added to roughness before its logarithm, so that a smooth spot stays finite
# Upper cheeks below the eyes, at the picture's left and at its right.
LEFT_SKIN = (117, 118, 119, 100, 126, 142, 101, 50, 36, 205)
RIGHT_SKIN = (346, 347, 348, 329, 355, 371, 330, 280, 266, 425)

# `left_points` and `right_points` `(N, 3)`: the corners of the triangle in which a spot lies, numbers of `anchors`;
# `left_shares` and `right_shares` `(N, 3)`: how much each corner counts. Spots at the same place of both lie opposite.
Layout = Mapping[str, Array]


def beard(picture: Pixels, mesh: Array) -> float:
    """How surely a face has a beard or a moustache, in [0, 1].

    Above .5 lie two of a hundred bare faces, nine of ten full beards, and three quarters of those with stubble, a
    moustache or a goatee only.

    Args:
        picture: `(S, S, 3)`, in FFHQ's frame.
        mesh: `(468, 2 or 3)`, the face's points.
    """
    numbers = _shipped()
    score = features(picture, mesh, numbers) @ numbers["weights"] + numbers["start"]
    return float(1 / (1 + np.exp(-np.clip(score, -30, 30))))


def features(picture: Pixels, mesh: Array, layout: Layout) -> Array:
    """What is seen of the lower half of a face at N pairs of opposite spots, `(8 N,)`; its mirror image gives the same.

    Of each pair: the mean and the larger one in brightness, the mean in red and in blue, the mean and the larger one in
    fine and in coarse roughness.

    Args:
        picture: `(S, S, 3)`, in FFHQ's frame.
        mesh: `(468, 2 or 3)`, the face's points.
        layout: Where the spots lie.
    """
    scale = np.float32(SIDE / len(picture))
    points = mesh[:, :2].astype(np.float32) * scale
    # The distance between a spot and its neighbours is one in a picture of this size.
    small = cv2.resize(picture, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.uint8)
    seen = _sheets(small)
    known = anchors(points)
    both = [np.median(_values(seen, points[list(part)]), 0)[:3] for part in (LEFT_SKIN, RIGHT_SKIN)]
    skin = (both[0] + both[1]) / 2
    halves = []
    for half in ("left", "right"):
        spots = (known[layout[f"{half}_points"].astype(np.intp)] * layout[f"{half}_shares"][..., None]).sum(1)
        values = _values(seen, spots)
        colours = (values[:, :3] - skin).clip(DARKEST_SEEN, BRIGHTEST_SEEN)
        bright = colours.mean(-1)
        red = colours[:, 0] - colours[:, 1]
        blue = colours[:, 2] - colours[:, 1]
        rough = np.log(values[:, 3:] + np.float32(LEAST_ROUGH))
        halves.append(np.stack([bright, red, blue, rough[:, 0], rough[:, 1]]))
    mean = (halves[0] + halves[1]) / 2
    larger = np.maximum(halves[0], halves[1])[[0, 3, 4]]
    found: Array = np.concatenate([mean, larger]).ravel().astype(np.float32)
    return found


def anchors(mesh: Array) -> Array:
    """The points of a face `(468, 2)`, then those of its outline moved away from the nose, `(504, 2)`."""
    nose = mesh[NOSE_TIP]
    outer = nose + (mesh[list(OUTLINE)] - nose) * np.float32(BEYOND)
    return np.concatenate([mesh, outer])


def _sheets(picture: Pixels) -> Array:
    """Logarithms of the colours, and how rough the grey is, finely and coarsely, `(S, S, 5)`."""
    colours = np.log(picture.astype(np.float32) + np.float32(DARKEST))
    grey = colours.mean(-1)
    soft = _smooth(grey)
    softer = _smooth(_smooth(_smooth(soft)))
    fine = _smooth(np.abs(grey - soft))
    coarse = _smooth(np.abs(soft - softer))
    sheets: Array = np.dstack([_smooth(colours), fine, coarse]).astype(np.float32)
    return sheets


def _smooth(sheet: Array) -> Array:
    """Each pixel the mean of the nine around it."""
    means: Array = cv2.blur(sheet, (3, 3), borderType=cv2.BORDER_REPLICATE).astype(np.float32)
    return means


def _values(sheets: Array, points: Array) -> Array:
    """Values of sheets `(S, S, C)` at points `(N, 2)`, between the four nearest pixels, `(N, C)`."""
    # The first coordinate of a pixel's middle is .5.
    places = (points - np.float32(0.5)).clip(0, len(sheets) - 1.001)
    left, top = places.astype(int).T
    right, down = (places - places.astype(int)).T[..., None]
    upper = sheets[top, left] * (1 - right) + sheets[top, left + 1] * right
    lower = sheets[top + 1, left] * (1 - right) + sheets[top + 1, left + 1] * right
    values: Array = (upper * (1 - down) + lower * down).astype(np.float32)
    return values


@cache
def _shipped() -> dict[str, Array]:
    return load_arrays(Path(FILE), read_shipped(FILE))
