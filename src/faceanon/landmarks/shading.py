"""Bring a face that was put on into the light of its surroundings.

A donor was photographed in other light: hard shadows, dark eye sockets, a bright side. A network
(`networks.shading.ShadingNet`) sees the new face together with hair, neck and background, and says by how much each
part should be brighter or darker. It has never seen the face that was there, so it can tell nothing of the person.

Nothing here needs torch; both engines share it. Pictures are RGB `(S, S, 3)` uint8, points are in pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from faceanon.landmarks.geometry import DARKEST, EYE_CORNERS, Array, Pixels, eye_distance

SIDE = 64  # of a sheet, what the network sees; pictures have a multiple of it
GREY = 4.6  # natural logarithm of a middle colour, `DARKEST` added
STRENGTH = 0.6  # share of what the network says that is done
MOST = 1.0  # natural logarithm of how much brighter or darker a pixel may become

# From sheets `(B, 6, 64, 64)` to changes `(B, 3, 32, 32)` of the logarithms of colours.
Shader = Callable[[Array], Array]


def sheet(picture: Pixels, edge: Array, mesh: Array) -> Array:
    """What the network sees of a picture, `(6, 64, 64)`.

    The first three channels are logarithms of the colours, the fourth says where the new face is. The last two are
    places in the face: right of the middle between the eyes, and down from it, in distances between the eyes.

    Args:
        picture: `(S, S, 3)` with the new face.
        edge: `(S, S, 1)` in [0, 1], how much of each pixel it takes.
        mesh: `(468, 2 or 3)` points of the face.
    """
    small = cv2.resize(picture.astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    colours = np.log(small + np.float32(DARKEST)) - np.float32(GREY)
    where = cv2.resize(edge[..., 0], (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    left, right = mesh[list(EYE_CORNERS), :2]
    distance = eye_distance(mesh)
    across, down = (right - left) / distance
    steps = (np.arange(SIDE, dtype=np.float32) + 0.5) * (len(picture) / SIDE)
    middle = (left + right) / 2
    x = ((steps - middle[0]) / distance)[None]
    y = ((steps - middle[1]) / distance)[:, None]
    places = [across * x + down * y, across * y - down * x]
    stacked: Array = np.stack([*np.moveaxis(colours, 2, 0), where, *places]).astype(np.float32)
    return stacked


def shaded(picture: Pixels, edge: Array, field: Array) -> Pixels:
    """A picture whose new face has other light, `(S, S, 3)`; beyond the face nothing changes.

    Args:
        picture: `(S, S, 3)`.
        edge: `(S, S, 1)` in [0, 1], how much of each pixel the new face takes.
        field: `(3, h, h)`, what is added to the logarithms of the colours.
    """
    side = len(picture)
    fine = cv2.resize(np.moveaxis(field, 0, 2), (side, side), interpolation=cv2.INTER_LINEAR)
    change = (STRENGTH * fine).clip(-MOST, MOST)
    lit = (picture + np.float32(DARKEST)) * np.exp(change * edge) - np.float32(DARKEST)
    rounded: Pixels = lit.round().clip(0, 255).astype(np.uint8)
    return rounded
