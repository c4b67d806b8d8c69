"""Pixel terms; pictures are `(B, 3, S, S)` in [-1, 1]."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

PixelNorm = Literal["l1", "smooth_l1", "l2"]
_NORMS = {"l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss, "l2": F.mse_loss}


def pixel_loss(output: Tensor, target: Tensor, norm: PixelNorm = "l1", weight: Tensor | None = None) -> Tensor:
    """Mean pixel distance: L1 in the DBAF paper (eq. 12), SmoothL1 in its released code.

    Args:
        output: The drawn pictures.
        target: What they should be.
        norm: The distance.
        weight: `(B, 1, S, S)` of mean 1, or None.
    """
    if weight is None:
        return _NORMS[norm](output, target)
    return (_NORMS[norm](output, target, reduction="none") * weight).mean()


def gradient_loss(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """L1 between neighbour differences, which keeps edges that a pixel distance blurs away."""
    difference = output - target
    if weight is None:
        weight = torch.ones_like(output[:, :1])
    down = ((difference[:, :, 1:] - difference[:, :, :-1]).abs() * weight[:, :, 1:]).mean()
    right = ((difference[..., 1:] - difference[..., :-1]).abs() * weight[..., 1:]).mean()
    return down + right


def part_weight(parsing: Tensor, parts: tuple[int, ...], emphasis: float) -> Tensor:
    """Weights `(B, 1, S, S)` of mean 1 per picture that count the small parts of a face `1 + emphasis` times.

    Args:
        parsing: `(B, S, S)` int64 classes.
        parts: The classes to emphasise, dilated by a pixel.
        emphasis: How much more they count.
    """
    inside = torch.isin(parsing, torch.tensor(parts, device=parsing.device)).float()[:, None]
    weight = 1 + emphasis * F.max_pool2d(inside, 3, 1, 1)
    return weight / weight.mean((1, 2, 3), keepdim=True)


def round_to_8_bit(image: Tensor) -> Tensor:
    """The picture as an 8-bit file holds it, with the gradient of the identity (straight-through).

    Args:
        image: `(B, 3, S, S)`, nominally in [-1, 1]; clamped.
    """
    clamped = image.clamp(-1, 1)
    rounded = ((clamped + 1) * 127.5).round() / 127.5 - 1
    return clamped + (rounded - clamped).detach()
