"""What lies in front of a face, as training sees it: cells that stay as they are."""

from __future__ import annotations

import torch
from torch import Tensor

SHARE = 0.25  # of training pictures that something covers
SMALLEST = 0.08  # half axes of a cover, as shares of the side
LARGEST = 0.35
MIDDLE = 0.5  # covers lie around the middle of the picture, where the face is
SPREAD = 0.18  # standard deviation of their places


def random_covers(rows: int, cells: int) -> Tensor:
    """Draw which cells something covers: an ellipse, turned in any way, in a quarter of the pictures.

    A network that meets such holes in its mask learns to join a face to hands, microphones and masks that stay. The
    numbers come from torch's random state.

    Args:
        rows: Number of pictures B.
        cells: Cells a side.

    Returns:
        `(B, 1, cells, cells)` float32, 1 where a cell is covered.

    Examples:
        >>> import torch
        >>> from faceanon.landmarks.covers import random_covers
        >>> covers = random_covers(1000, 16)
        >>> bool(0.15 < covers.amax((1, 2, 3)).mean() < 0.35)  # a quarter of the pictures
        True
    """
    # Drawn for all pictures, covered or not: what is used of the random state depends on their number alone.
    drawn = torch.rand(rows, 3)
    place = MIDDLE + SPREAD * torch.randn(rows, 2)
    half = SMALLEST + (LARGEST - SMALLEST) * torch.rand(rows, 2)
    steps = (torch.arange(cells) + 0.5) / cells
    across = steps[None, None, :] - place[:, 0, None, None]
    down = steps[None, :, None] - place[:, 1, None, None]
    angle = torch.pi * drawn[:, 0, None, None]
    # In the ellipse's own axes and in units of its half axes it is the unit circle.
    along = (across * angle.cos() + down * angle.sin()) / half[:, 0, None, None]
    beside = (down * angle.cos() - across * angle.sin()) / half[:, 1, None, None]
    inside = along.square() + beside.square() < 1
    chosen = drawn[:, 1, None, None] < SHARE
    return (inside & chosen)[:, None].float()
