"""Which cells of a face count as covered, from how likely something covers each of them; without torch.

A cell that is wrongly called covered shows the person. So a cover counts only where the network is sure, where several
such cells lie together, and while enough of the face is left to be changed; an eye is covered as a whole or not.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.landmarks.drawings import FINE, LEFT_EYE, RIGHT_EYE

SURE = 0.7  # probability above which a cell is covered
SURE_OF_EYES = 0.85  # ... on average over the cells of an eye, for any of them to be
CORE = 0.92  # ... on average over the cells that hang together in a cover
FEWEST = 0.03  # share of the face that hangs together in a cover; smaller ones do not count
ONE_EYE = 0.15  # ... in a cover over one eye alone: a hand or hair, not one of two lenses
MOST = 0.6  # share of the face that covers may take; beyond that none counts
EYE_SHARE = 0.1  # a cell belongs to an eye where more than so much of it lies within the lids


def covered_cells(
    chances: NDArray[np.float32], mask: NDArray[np.bool_], mesh: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Cells of one face that count as covered.

    Args:
        chances: `(h, h)` in [0, 1], how likely something covers a cell.
        mask: `(h, h)`, the cells of the face.
        mesh: `(468, 2)` points in [-1, 1] of the picture.

    Returns:
        `(h, h)`, some cells of the mask.
    """
    sure = (chances > SURE) & mask
    eyes = [eye_cells(mesh, eye, len(mask)) & mask for eye in (LEFT_EYE, RIGHT_EYE)]
    hidden = []
    for cells in eyes:
        hidden.append(bool(cells.any()) and bool(chances[cells].mean() > SURE_OF_EYES))
        if hidden[-1]:
            sure |= cells
        else:
            sure &= ~cells
    count, areas = cv2.connectedComponents(sure.astype(np.uint8), connectivity=4)
    # Area 0 is all that is not covered.
    for area in range(1, count):
        cells = areas == area
        fewest = FEWEST
        if hidden[0] != hidden[1] and (cells & eyes[hidden.index(True)]).any():
            fewest = ONE_EYE
        if cells.sum() < fewest * mask.sum() or chances[cells].mean() < CORE:
            sure &= ~cells
    if sure.sum() > MOST * mask.sum():
        return np.zeros_like(sure)
    return sure


def covered_in(
    chances: NDArray[np.float32], masks: NDArray[np.bool_], meshes: NDArray[np.float32]
) -> NDArray[np.float32]:
    """As `covered_cells` for B faces: `(B, 1, h, h)`, `(B, 1, h, h)` and `(B, 468, 2)` -> `(B, 1, h, h)` of 0 and 1."""
    found = np.zeros(chances.shape, np.float32)
    for row in range(len(chances)):
        found[row, 0] = covered_cells(chances[row, 0], masks[row, 0], meshes[row])
    return found


def eye_cells(mesh: NDArray[np.float32], eye: tuple[int, ...], cells: int) -> NDArray[np.bool_]:
    """The cells in which an eye lies.

    Args:
        mesh: `(468, 2)` points in [-1, 1] of the picture.
        eye: Points of its lids, in the order in which they go round it.
        cells: Cells a side.

    Returns:
        `(cells, cells)`.
    """
    side = FINE * cells
    sheet = np.zeros((side, side), np.float32)
    outline = (mesh[list(eye)] + 1) / 2 * side
    cv2.fillPoly(sheet, [np.round(outline).astype(np.int32)], 1.0)
    # Drawn finer than the cells, so that the mean over a cell is the share of it within the lids.
    share = cv2.resize(sheet, (cells, cells), interpolation=cv2.INTER_AREA)
    return np.asarray(share > EYE_SHARE)
