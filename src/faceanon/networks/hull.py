"""The convex hull of points as pixels, by operations that export and run on any device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SIDES = 32  # of the polygon that stands for a convex hull


def convex_hull(points: Tensor, side: int) -> Tensor:
    """The pixels in the convex hull of points, drawn as a polygon of `SIDES` sides around it.

    Args:
        points: `(B, P, 2)`, x and y in [-1, 1] of the picture.
        side: Of the picture, in pixels.

    Returns:
        `(B, 1, side, side)`, 1 inside and 0 outside.

    Examples:
        >>> import torch
        >>> from faceanon.networks.hull import convex_hull
        >>> corners = torch.tensor([[[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]]])
        >>> int(convex_hull(corners, 8).sum())  # half of the side, squared
        16
    """
    angles = torch.arange(SIDES, device=points.device) * (2 * math.pi / SIDES)
    across = angles.cos()
    down = angles.sin()
    # How far the points reach in each direction; a pixel that reaches further in any of them lies outside. No matrix
    # product: under autocast it would be rounded to a pixel.
    reach = (points[..., :1] * across + points[..., 1:] * down).amax(1)
    steps = (torch.arange(side, device=points.device) + 0.5) / side * 2 - 1
    along = steps[None, :, None] * across + steps[:, None, None] * down
    return (along[None] <= reach[:, None, None]).all(-1)[:, None].float()
