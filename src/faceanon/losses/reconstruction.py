"""Pixel terms; pictures are `(B, 3, S, S)` in [-1, 1]."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

PixelNorm = Literal["l1", "smooth_l1", "l2"]
_NORMS = {"l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss, "l2": F.mse_loss}


def pixel_loss(output: Tensor, target: Tensor, norm: PixelNorm = "l1", weight: Tensor | None = None) -> Tensor:
    """Mean pixel distance: L1 in DBAF (eq. 13; 34 per picture), SmoothL1 in its released code.

    The papers print a norm; that it is a mean over the pixels is our reading.

    Args:
        output: The drawn pictures.
        target: What they should be.
        norm: The distance.
        weight: `(B, 1, S, S)` of mean 1, or None.

    Examples:
        >>> import torch
        >>> from faceanon.losses.reconstruction import pixel_loss
        >>> black = -torch.ones(1, 3, 8, 8)
        >>> grey = torch.zeros(1, 3, 8, 8)
        >>> pixel_loss(black, grey), pixel_loss(black, grey, "smooth_l1")
        (tensor(1.), tensor(0.5000))
    """
    if weight is None:
        return _NORMS[norm](output, target)
    return (_NORMS[norm](output, target, reduction="none") * weight).mean()


def gradient_loss(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """L1 between neighbour differences, which keeps edges that a pixel distance blurs away.

    Examples:
        >>> import torch
        >>> from faceanon.losses.reconstruction import gradient_loss
        >>> sharp = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(1, 3, 4, 4)
        >>> brighter = sharp + 0.5
        >>> blurred = torch.tensor([0.0, 0.33, 0.67, 1.0]).expand(1, 3, 4, 4)
        >>> gradient_loss(brighter, sharp), bool(gradient_loss(blurred, sharp) > 0)
        (tensor(0.), True)
    """
    # Differences are linear: those of the difference are the difference of both pictures' own.
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

    Examples:
        >>> import torch
        >>> from faceanon.losses.reconstruction import part_weight
        >>> parsing = torch.zeros(1, 8, 8, dtype=torch.int64)
        >>> parsing[0, 4, 4] = 3  # one pixel of an eye
        >>> weight = part_weight(parsing, parts=(3,), emphasis=3.0)
        >>> (weight[0, 0, 4, 4] / weight[0, 0, 0, 0]).item(), round(weight.mean().item(), 4)
        (4.0, 1.0)
    """
    inside = torch.isin(parsing, torch.tensor(parts, device=parsing.device)).float()[:, None]
    weight = 1 + emphasis * F.max_pool2d(inside, 3, 1, 1)
    return weight / weight.mean((1, 2, 3), keepdim=True)


def round_to_8_bit(image: Tensor) -> Tensor:
    """The picture as an 8-bit file holds it, with the gradient of the identity (straight-through).

    Args:
        image: `(B, 3, S, S)`, nominally in [-1, 1]; clamped.

    Examples:
        >>> import torch
        >>> from faceanon.losses.reconstruction import round_to_8_bit
        >>> picture = torch.full((1, 3, 2, 2), 0.1).requires_grad_()
        >>> saved = round_to_8_bit(picture)
        >>> round(saved[0, 0, 0, 0].item(), 4)  # 140 / 127.5 - 1
        0.098
        >>> saved.sum().backward()
        >>> picture.grad.unique()  # as if nothing had been rounded
        tensor([1.])
    """
    clamped = image.clamp(-1, 1)
    rounded = ((clamped + 1) * 127.5).round() / 127.5 - 1
    return clamped + (rounded - clamped).detach()
