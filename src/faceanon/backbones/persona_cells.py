"""Masks, windows and edges in cells of a codec's latents, as Persona and its stages use them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from faceanon.landmarks.drawings import FINE
from faceanon.landmarks.mesh import FaceMesh
from faceanon.networks.codec import LatentCodec
from faceanon.types import Codes

# Of a face that was covered whole no light could be measured, and a training broke off.
LEAST = 0.4  # share of a face's cells that is changed at least, whatever covers it
CLEAR = 0.5  # confidence of the mesh below which a picture shows no face that can be changed


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


def rows_of(codes: Codes, rows: Tensor) -> Codes:
    """The codes of some faces of a batch."""
    return codes.map(lambda item: item[rows])


def bytes_of(image: Tensor) -> NDArray[np.uint8]:
    """Pictures `(B, 3, S, S)` in [-1, 1] as `(B, S, S, 3)` uint8."""
    bytes_ = ((image.detach().float().clamp(-1, 1) + 1) * 127.5).round().byte()
    return bytes_.permute(0, 2, 3, 1).contiguous().cpu().numpy()


def points_of(mesh: FaceMesh, image: Tensor) -> tuple[Tensor, Tensor]:
    """Points `(B, 468, 3)` of pictures `(B, 3, S, S)`, and confidences `(B,)` that they show a face.

    x and y have the picture's edges at -1 and 1, depths the same unit.
    """
    points, confidence = mesh.solid(bytes_of(image))
    places = torch.from_numpy(points) / image.shape[-1] * 2
    # Depth counts from the middle of the head, so it is scaled and not moved.
    places[..., :2] -= 1
    return places.to(image.device), torch.from_numpy(confidence).to(image.device)


def numbers_of(rows: Tensor) -> NDArray[np.float32]:
    """Rows as an array."""
    return rows.detach().float().cpu().numpy()


def halved(image: Tensor) -> Tensor:
    """Pictures `(B, 3, S, S)` of half the size."""
    return F.avg_pool2d(image.float(), 2)


def clear(drawn: Tensor, confidence: Tensor) -> Tensor:
    """Pictures `(B, 3, S, S)`, NaN where the mesh made out no face."""
    return torch.where((confidence >= CLEAR)[:, None, None, None], drawn, torch.nan)


def uncovered(mask: Tensor, covered: Tensor) -> Tensor:
    """Masks `(B, 1, h, h)` without the covered cells; a face of which too little would be left keeps all its cells."""
    left = mask * (1 - covered)
    enough = left.sum((1, 2, 3), keepdim=True) >= LEAST * mask.sum((1, 2, 3), keepdim=True)
    return torch.where(enough, left, mask)


def maps_shown(mask: Tensor, lines: Tensor) -> Tensor:
    """Mask and drawings by cells, `(B, 8, h, h)`: what discriminator and cover finder are told."""
    return torch.cat([mask, F.avg_pool2d(lines, FINE)], 1)


def window_of(mask: Tensor, around: int = 1) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of the cells that masks `(B, 1, h, h)` cover together, with some cells around them.

    The whole where they cover nothing.
    """
    rows = mask.amax((0, 1, 3)).nonzero().flatten()
    columns = mask.amax((0, 1, 2)).nonzero().flatten()
    side = mask.shape[-1]
    if len(rows) == 0:
        return 0, side, 0, side
    top = max(int(rows[0]) - around, 0)
    left = max(int(columns[0]) - around, 0)
    return top, min(int(rows[-1]) + 1 + around, side), left, min(int(columns[-1]) + 1 + around, side)


def pixels_of(window: tuple[int, int, int, int]) -> tuple[slice, slice]:
    """Rows and columns of a picture that lie in a window of cells."""
    top, bottom, left, right = (LatentCodec.shrink * edge for edge in window)
    return slice(top, bottom), slice(left, right)


def joined_in(window: tuple[int, int, int, int], drawn: Tensor, mask: Tensor, image: Tensor) -> Tensor:
    """Pictures `(B, 3, S, S)` with `drawn`, the pixels of a window of cells, softly joined where a mask covers them."""
    rows, columns = pixels_of(window)
    edge = soft_edge(mask, image.shape[-1])[:, :, rows, columns]
    picture = image.float().clone()
    picture[:, :, rows, columns] = picture[:, :, rows, columns] * (1 - edge) + drawn * edge
    return picture
