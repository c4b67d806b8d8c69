"""A small network that finds the cells of a face that something else covers: masks, hands, hair, dark glasses."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = 8
WIDTHS = (32, 48, 56)  # channels of the cells, of two by two cells, and of four by four


class CoverBlock(nn.Module):
    """Two convolutions with a residual.

    Args:
        channels: Channels of the map, a multiple of 8.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(GROUPS, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, channels, h, w)` -> the same shape."""
        middle = self.conv1(F.silu(self.norm1(x)))
        out: Tensor = self.conv2(F.silu(self.norm2(middle)))
        return x + out


class CoverFinderNet(nn.Module):
    """How likely each cell of a face is covered, for latents of any size.

    Args:
        channels: Channels of the latents.
        maps: Channels that say where the face is: its mask and the drawings of eyes, brows, lips, nose and outline.
    """

    def __init__(self, channels: int = 32, maps: int = 8) -> None:
        super().__init__()
        fine, middle, coarse = WIDTHS
        self.enter = nn.Conv2d(channels + maps, fine, 3, padding=1)
        self.fine = CoverBlock(fine)
        self.to_middle = nn.Conv2d(fine, middle, 3, stride=2, padding=1)
        self.middle = CoverBlock(middle)
        self.to_coarse = nn.Conv2d(middle, coarse, 3, stride=2, padding=1)
        self.coarse = CoverBlock(coarse)
        # What the whole picture looks like: its light, its skin, whether it is sharp.
        self.whole = nn.Linear(coarse, coarse)
        self.from_coarse = nn.Conv2d(coarse, middle, 1)
        self.middle_again = CoverBlock(middle)
        self.from_middle = nn.Conv2d(middle, fine, 1)
        self.fine_again = CoverBlock(fine)
        self.norm = nn.GroupNorm(GROUPS, fine)
        self.leave = nn.Conv2d(fine, 1, 1)

    def forward(self, latents: Tensor, maps: Tensor) -> Tensor:
        """Find covered cells.

        Args:
            latents: `(B, channels, h, h)` normalised latents; h is a multiple of 4.
            maps: `(B, maps, h, h)` in [0, 1].

        Returns:
            Logits `(B, 1, h, h)`, higher where something covers the face; they mean nothing outside its mask.
        """
        fine = self.fine(self.enter(torch.cat([latents, maps], 1)))
        middle = self.middle(self.to_middle(fine))
        coarse = self.coarse(self.to_coarse(middle))
        coarse = coarse + self.whole(coarse.mean((2, 3)))[:, :, None, None]
        middle = self.middle_again(middle + F.interpolate(self.from_coarse(coarse), scale_factor=2.0))
        fine = self.fine_again(fine + F.interpolate(self.from_middle(middle), scale_factor=2.0))
        out: Tensor = self.leave(F.silu(self.norm(fine)))
        return out
