"""What a picture becomes in a file."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from faceanon.metrics.checks import check_finite


def to_bytes(image: Tensor) -> Tensor:
    """`(B, 3, S, S)` nominally in [-1, 1] -> uint8 `(B, S, S, 3)`, clamped and rounded to the nearest.

    Raises:
        ValueError: NaN or infinite values, which would pass for black.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.saved import to_bytes
        >>> picture = torch.tensor([-1.0, 0.5, 1.3]).view(1, 3, 1, 1)
        >>> to_bytes(picture).flatten()
        tensor([  0, 191, 255], dtype=torch.uint8)
    """
    return ((check_finite("picture", image.detach()).clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).cpu()


def from_bytes(pixels: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """Uint8 `(B, S, S, 3)` -> float32 `(B, 3, S, S)` in [-1, 1]."""
    return pixels.to(device).permute(0, 3, 1, 2).float() / 127.5 - 1


def saved(image: Tensor, quality: int | None = None) -> Tensor:
    """Write every picture into a PNG, or a JPEG of some quality, and read it back.

    Args:
        image: `(B, 3, S, S)` nominally in [-1, 1].
        quality: JPEG quality from 1 to 100; None for PNG.

    Returns:
        `(B, 3, S, S)` float32 on 256 levels in [-1, 1], on the device of `image`.

    Raises:
        ValueError: NaN or infinite values.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.saved import saved
        >>> picture = torch.rand(1, 3, 32, 32) * 2 - 1
        >>> bool((saved(picture) - picture).abs().max() <= 1 / 255)  # half a level
        True
        >>> bool((saved(picture, quality=75) - picture).abs().max() <= 1 / 255)
        False
    """
    read = []
    for pixels in to_bytes(image).numpy():
        file = io.BytesIO()
        if quality is None:
            # PNG loses nothing at any level, so the fastest one does.
            Image.fromarray(pixels).save(file, "PNG", compress_level=1)
        else:
            Image.fromarray(pixels).save(file, "JPEG", quality=quality)
        # A copy, since torch warns of arrays that cannot be written to, as Pillow's are.
        read.append(torch.from_numpy(np.array(Image.open(file).convert("RGB"))))
    return from_bytes(torch.stack(read), image.device)
