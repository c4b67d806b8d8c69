"""Gaussian blur of pictures, and of maps with any number of channels."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F


def blurred(picture: Tensor, sigma: float, reach: int, border: Literal["replicate", "reflect"] = "replicate") -> Tensor:
    """Gaussian blur of `(B, C, H, W)`.

    Args:
        picture: Of any number of channels.
        sigma: Standard deviation in pixels.
        reach: Pixels that the Gaussian is taken over, to each side.
        border: What lies beyond the border: its last pixels again and again, or the picture mirrored.

    Examples:
        >>> import torch
        >>> from faceanon.networks.blur import blurred
        >>> blurred(torch.ones(1, 1, 8, 8), sigma=1.5, reach=4).std().item() < 1e-6
        True
    """
    channels = picture.shape[1]
    offsets = torch.arange(-reach, reach + 1, device=picture.device, dtype=torch.float32)
    # A softmax of exponents is the Gaussian, normalised.
    weights = torch.softmax(-(offsets / sigma).square() / 2, 0).to(picture.dtype).expand(channels, 1, -1)
    padded = F.pad(picture, [reach] * 4, mode=border)
    # A Gaussian is the product of two: rows first, then columns, costs less than a square kernel.
    rows = F.conv2d(padded, weights[:, :, None], groups=channels)
    return F.conv2d(rows, weights[..., None], groups=channels)
