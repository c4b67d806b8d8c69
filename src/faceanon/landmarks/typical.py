"""How far painted latents (`cast: false`) are from what photographs of faces have at the same place."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from faceanon.weights.shipped import read_tensors

FILE = "typical.safetensors"
BLOCK = 2  # cells a side that share a covariance


class TypicalFaces:
    """Mean and covariance of the latents of synthetic photographs, by place in an aligned face of 128 px.

    A painter that goes wrong (smears, a moustache of a colour that hair does not have) leaves what photographs have.
    Of several faces painted into the same picture, those that lie closer to photographs look more natural; faces in
    different pictures cannot be compared in this way, since light and what lies around the face move them more.

    Args:
        folder: Where `typical.safetensors` lies; the shipped one when None.

    Raises:
        UserError: If the file is missing or damaged.

    Examples:
        >>> import torch
        >>> from faceanon.landmarks.typical import TypicalFaces
        >>> typical = TypicalFaces()
        >>> mask = torch.ones(1, 1, 16, 16)
        >>> usual = typical.mean[None]
        >>> typical.oddness(usual, mask).item(), typical.oddness(usual + 1, mask).item() > 1
        (0.0, True)
    """

    def __init__(self, folder: Path | None = None) -> None:
        tensors = read_tensors(FILE, folder)
        self.mean = tensors["mean"]
        self.whitening = tensors["whitening"]

    @property
    def cells(self) -> int:
        """Cells a side of the latents that it judges."""
        return self.mean.shape[-1]

    def oddness(self, latents: Tensor, mask: Tensor) -> Tensor:
        """Squared Mahalanobis distance to photographs, divided by the channels, mean over the painted cells.

        Args:
            latents: Normalised, `(B, 32, 16, 16)`.
            mask: `(B, 1, 16, 16)` of 0 and 1, the painted cells.

        Returns:
            `(B,)` float32; about 1 for photographs, less for smooth faces, more for odd ones.
        """
        self.mean = self.mean.to(latents.device)
        self.whitening = self.whitening.to(latents.device)
        away = latents.float() - self.mean
        rows, channels, height, width = away.shape
        blocks = away.reshape(rows, channels, height // BLOCK, BLOCK, width // BLOCK, BLOCK)
        # Axes i and j number the blocks, each with a whitening matrix of its own; u and v number the cells in a block.
        white = torch.einsum("ijdc,bciujv->bdiujv", self.whitening, blocks)
        by_cell = white.square().mean(1).reshape(rows, 1, height, width)
        odd: Tensor = (by_cell * mask).sum((1, 2, 3)) / mask.sum((1, 2, 3)).clamp(min=1)
        return odd
