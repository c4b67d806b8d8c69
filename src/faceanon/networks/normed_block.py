"""The block of the small U-Nets that look at faces (`cover_finder`, `shading`)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = 8  # of a group norm


class NormedBlock(nn.Module):
    """Two convolutions, each after a group norm and SiLU, with a residual.

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
