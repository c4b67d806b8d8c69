"""Masks, windows and edges in cells of a codec's latents, as Persona and its stages use them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from faceanon.landmarks.mesh import FaceMesh
from faceanon.persona.cells import Array, Box, bytes_of, pixels_of
from faceanon.persona.cells import window_of as cells_window


def soft_edge(mask: Tensor, side: int) -> Tensor:
    """How much of each pixel is painted: 0 beyond the mask's cells, rising to 1 over half a cell within them.

    Args:
        mask: `(B, 1, h, h)` of 0 and 1.
        side: Side of the picture in pixels, a multiple of h.

    Returns:
        `(B, 1, side, side)` in [0, 1].
    """
    cell = side // mask.shape[-1]
    pixels = F.interpolate(mask, size=(side, side), mode="nearest")
    # Odd, so that the box has a pixel in its middle.
    span = 2 * (cell // 2) + 1
    # A box of one cell that moves over the mask: one half on the border, 1 from half a cell within it on.
    share = F.avg_pool2d(pixels, span, stride=1, padding=span // 2, count_include_pad=False)
    return (2 * share - 1).clamp(0, 1) * pixels


def numbers_of(rows: Tensor) -> NDArray[np.float32]:
    """Rows as an array."""
    return rows.detach().float().cpu().numpy()


def mesh_points(mesh: FaceMesh, image: Array) -> tuple[Array, Array]:
    """Points `(B, 468, 3)` of pictures `(B, 3, S, S)`, and confidences `(B,)` that they show a face.

    x and y have the picture's edges at -1 and 1, depths the same unit.
    """
    points, confidence = mesh.solid(bytes_of(image))
    places = points / np.float32(image.shape[-1]) * 2
    # Depth counts from the middle of the head, so it is scaled and not moved.
    places[..., :2] -= 1
    return places, confidence


def window_of(mask: Tensor) -> Box:
    """The window of cells that masks `(B, 1, h, h)` cover together, as `persona.cells.window_of`."""
    return cells_window(numbers_of(mask))


def wider(window: Box, side: int) -> Box:
    """A window with one more cell around it, of a map of `side` cells."""
    top, bottom, left, right = window
    return max(top - 1, 0), min(bottom + 1, side), max(left - 1, 0), min(right + 1, side)


def joined_in(window: Box, drawn: Tensor, mask: Tensor, image: Tensor) -> Tensor:
    """Pictures `(B, 3, S, S)` with `drawn`, the pixels of a window of cells, softly joined where a mask covers them."""
    rows, columns = pixels_of(window)
    edge = soft_edge(mask, image.shape[-1])[:, :, rows, columns]
    picture = image.float().clone()
    picture[:, :, rows, columns] = picture[:, :, rows, columns] * (1 - edge) + drawn * edge
    return picture
