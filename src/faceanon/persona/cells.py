"""Masks, drawings, light and pose of faces, by the cells of the codec's latents: what Persona knows of a picture."""

from __future__ import annotations

from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.landmarks.drawings import (
    COVERED,
    DRAWINGS,
    FINE,
    LEFT_CHEEK,
    LEFT_EYE,
    MOUTH_CORNERS,
    NOSE_TIP,
    RIGHT_CHEEK,
    RIGHT_EYE,
    draw_face,
    pupils,
)
from faceanon.sealed.coder import CELL

Array = NDArray[Any]
Box = tuple[int, int, int, int]
"""Top, bottom, left and right, in cells."""

SIZE = 128  # side of the faces that are looked at and redrawn, in pixels
LARGE = 256  # ... and of those that get what the small ones of half the size got
CELLS = SIZE // CELL
# Of a face that was covered whole no light could be measured, and a training broke off.
LEAST = 0.4  # share of a face's cells that is changed at least, whatever covers it
STIFFNESS = (1e-4, 0.01, 0.01, 0.01, 0.01, 0.01)  # see `losses.light`


def doubled(mask: Array) -> Array:
    """Masks `(B, 1, h, h)` for pictures of twice the size: one cell becomes four."""
    return mask.repeat(2, -2).repeat(2, -1)


def drawn_lines(meshes: Array, images: Array) -> tuple[Array, Array]:
    """Drawings and masks of a batch of faces.

    Args:
        meshes: `(B, 468, 2)` points in [-1, 1] of the picture.
        images: `(B, 3, S, S)` in [-1, 1], where the pupils are looked for.

    Returns:
        Drawings `(B, 7, 4 h, 4 h)` in [0, 1], and masks `(B, 1, h, h)` of 0 and 1, 1 for the cells of the face.
    """
    side = images.shape[-1]
    points = (meshes + 1) / 2
    pictures = bytes_of(images)
    sheets = []
    for mesh, picture in zip(points, pictures, strict=True):
        eyes = (pupils(picture, mesh * side) / side).astype(np.float32)
        sheets.append(draw_face(mesh, eyes, side // CELL))
    drawn = np.stack(sheets).astype(np.float32) / 255
    mask = (cell_means(drawn[:, DRAWINGS:]) > COVERED).astype(np.float32)
    return drawn[:, :DRAWINGS], mask


def cell_means(drawn: Array) -> Array:
    """Means over the cells: `(B, C, 64, 64)` -> `(B, C, 16, 16)`."""
    batch, channels, height, width = drawn.shape
    blocks = drawn.reshape(batch, channels, height // FINE, FINE, width // FINE, FINE)
    means: Array = blocks.mean((3, 5), dtype=np.float32)
    return means


def folded(drawn: Array) -> Array:
    """As torch's `pixel_unshuffle` by 4: `(B, C, 64, 64)` -> `(B, 16 C, 16, 16)`."""
    batch, channels, height, width = drawn.shape
    blocks = drawn.reshape(batch, channels, height // FINE, FINE, width // FINE, FINE)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(batch, -1, height // FINE, width // FINE)


def uncovered(mask: Array, covered: Array) -> Array:
    """Masks without the covered cells; a face of which too little would be left keeps all its cells."""
    left = mask * (1 - covered)
    enough = left.sum((1, 2, 3), keepdims=True) >= LEAST * mask.sum((1, 2, 3), keepdims=True)
    return np.where(enough, left, mask)


@cache
def _polynomials() -> Array:
    """As `losses.light.polynomials`: `(256, 6)`."""
    steps = (np.arange(CELLS, dtype=np.float32) + 0.5) / CELLS * 2 - 1
    y, x = np.meshgrid(steps, steps, indexing="ij")
    return np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], -1).reshape(-1, len(STIFFNESS))


def fit_light(colours: Array, mask: Array) -> Array:
    """As `losses.light.fit_light`: coefficients `(B, 6, 3)`."""
    terms = _polynomials()
    area = mask.sum((1, 2, 3))[:, None, None]
    masked = terms * mask.reshape(len(mask), 1, -1).transpose(0, 2, 1)
    system = masked.transpose(0, 2, 1) @ terms / area + np.diag(np.array(STIFFNESS, np.float32))
    target = masked.transpose(0, 2, 1) @ colours.reshape(len(mask), 3, -1).transpose(0, 2, 1) / area
    solution: Array = np.linalg.solve(system, target).astype(np.float32)
    return solution


def light_surface(coefficients: Array) -> Array:
    """As `losses.light.light_surface`: `(B, 3, 16, 16)`."""
    colours = _polynomials() @ coefficients
    return colours.transpose(0, 2, 1).reshape(len(coefficients), 3, CELLS, CELLS)


def pose(meshes: Array) -> Array:
    """Three numbers `(B, 3)`, about -2 to 2, that grow with a head's yaw, pitch and roll.

    Args:
        meshes: `(B, 468, 2)` in [-1, 1] of the picture.
    """
    left = meshes[:, list(LEFT_EYE)].mean(1)
    right = meshes[:, list(RIGHT_EYE)].mean(1)
    middle = (left + right) / 2
    across = right - left
    across = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-12)
    # The line of the eyes turned by 90 degrees. A picture's y grows downwards, so this points to the mouth.
    down = np.stack([-across[:, 1], across[:, 0]], 1)
    mouth = meshes[:, list(MOUTH_CORNERS)].mean(1)
    nose = meshes[:, NOSE_TIP] - middle
    width = np.linalg.norm(meshes[:, RIGHT_CHEEK] - meshes[:, LEFT_CHEEK], axis=1)
    # A head in profile has its mouth close to its eyes in the picture; a pixel of 256 keeps the ratio finite.
    height = ((mouth - middle) * down).sum(1).clip(2 / 256, None)
    yaw = (nose * across).sum(1) / width * 8
    # A head whose nose's tip lies 0.55 of the way from the eyes to the mouth has a pitch of 0.
    pitch = ((nose * down).sum(1) / height - 0.55) * 8
    roll = np.arctan2(across[:, 1], across[:, 0]) * 4
    return np.stack([yaw, pitch, roll], 1)


def bytes_of(image: Array) -> NDArray[np.uint8]:
    """Pictures `(B, 3, S, S)` in [-1, 1] as `(B, S, S, 3)` uint8."""
    bytes_ = np.rint((image.clip(-1, 1) + 1) * np.float32(127.5)).astype(np.uint8)
    return np.ascontiguousarray(bytes_.transpose(0, 2, 3, 1))


def halved(image: Array) -> Array:
    """Pictures `(B, 3, S, S)` of half the size."""
    # In torch's order: the last bit decides how a value between two bytes is rounded before the mesh looks at it.
    total = image[..., ::2, ::2] + image[..., ::2, 1::2]
    total = total + image[..., 1::2, ::2]
    total = total + image[..., 1::2, 1::2]
    halved: Array = total / np.float32(4)
    return halved


def window_of(mask: NDArray[Any]) -> Box:
    """Top, bottom, left and right of the cells that masks cover together; the whole where they cover nothing."""
    rows = np.flatnonzero(mask.max((0, 1, 3)))
    columns = np.flatnonzero(mask.max((0, 1, 2)))
    if len(rows) == 0:
        return 0, mask.shape[-1], 0, mask.shape[-1]
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def pixels_of(window: Box) -> tuple[slice, slice]:
    """Rows and columns of a picture that lie in a window of cells."""
    top, bottom, left, right = (CELL * edge for edge in window)
    return slice(top, bottom), slice(left, right)


def soft_edge(mask: Array) -> Array:
    """As `backbones.persona_cells.soft_edge`: `(B, 1, S, S)` in [0, 1]."""
    pixels = mask.repeat(CELL, -2).repeat(CELL, -1)
    span = (2 * (CELL // 2) + 1,) * 2
    beyond = cv2.BORDER_CONSTANT
    ones = cv2.boxFilter(np.ones(pixels.shape[-2:], np.float32), -1, span, normalize=False, borderType=beyond)
    edges = np.empty_like(pixels)
    for row, picture in enumerate(pixels[:, 0]):
        # Over the part of the box that lies in the picture: torch's mean leaves padding out
        # (`count_include_pad=False`).
        share = cv2.boxFilter(np.ascontiguousarray(picture), -1, span, normalize=False, borderType=beyond) / ones
        edges[row, 0] = (2 * share - 1).clip(0, 1) * picture
    return edges
