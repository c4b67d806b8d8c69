"""How light and colour are spread over faces: the numbers that a stranger should share with the person."""

from __future__ import annotations

import torch
from torch import Tensor

from faceanon.losses.light import polynomials

AT_ONCE = 256  # pictures


@torch.no_grad()
def colour_moments(images: Tensor, counts: Tensor | None = None) -> Tensor:
    """Means of each colour over pictures, plain and weighted by x, y, x^2, x y and y^2.

    The first of them is the skin's colour, the next two say from where the light comes.

    Args:
        images: `(N, 3, S, S)` uint8.
        counts: `(S, S)` in [0, 1], how much a pixel counts; all alike by default.

    Returns:
        `(N, 18)` float32, of colours in [-1, 1] and of places in [-1, 1].

    Examples:
        >>> import torch
        >>> from faceanon.stages.colour_moments import colour_moments
        >>> grey = torch.full((2, 3, 8, 8), 255, dtype=torch.uint8)
        >>> colour_moments(grey)[0, :2]  # the mean, and the weight of the right over the left
        tensor([1., 0.])
    """
    side = images.shape[-1]
    if counts is None:
        counts = torch.ones(side, side)
    counts = counts.cpu()
    weights = polynomials(side, counts.device) * counts.view(-1, 1) / counts.sum()
    found = []
    for few in images.split(AT_ONCE):  # type: ignore[no-untyped-call]
        colours = few.cpu().float() / 127.5 - 1
        # `(n, 3, S S)` times `(S S, 6)`: six moments of each of three colours.
        found.append((colours.flatten(2) @ weights).flatten(1))
    return torch.cat(found)
