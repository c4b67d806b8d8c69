"""A network that enlarges a face: latents of a picture of 128 px to latents of the same picture of 256 px."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = 8


class EnlargingBlock(nn.Module):
    """Two convolutions with a residual.

    Args:
        width: Channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, width, h, h)` -> the same shape."""
        added: Tensor = self.second(F.silu(self.first(F.silu(self.norm(x)))))
        return x + added


class LatentEnlarger(nn.Module):
    """Fill in the details that a small picture of a face has not, so that it fits a large picture around it.

    Args:
        channels: Channels of the latents.
        width: Channels of the layers.
        blocks: Blocks at the size of the large picture.

    Examples:
        >>> import torch
        >>> from faceanon.networks.latent_enlarger import LatentEnlarger
        >>> net = LatentEnlarger(width=16, blocks=1)
        >>> net(torch.zeros(2, 32, 16, 16), torch.zeros(2, 32, 32, 32), torch.ones(2, 1, 32, 32)).shape
        torch.Size([2, 32, 32, 32])
    """

    def __init__(self, channels: int = 32, width: int = 72, blocks: int = 3) -> None:
        super().__init__()
        self.enter = nn.Conv2d(channels, 2 * width, 3, padding=1)
        self.coarse = EnlargingBlock(2 * width)
        self.grow = nn.Conv2d(2 * width, 4 * width, 1)
        self.around = nn.Conv2d(channels + 1, width, 3, padding=1)
        self.fine = nn.Sequential(*[EnlargingBlock(width) for _ in range(blocks)])
        self.leave = nn.Sequential(nn.GroupNorm(GROUPS, width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, small: Tensor, large: Tensor, mask: Tensor) -> Tensor:
        """The large picture with the face of the small one.

        Args:
            small: `(B, channels, h, h)`, normalised latents of the small picture, the face among them.
            large: `(B, channels, 2 h, 2 h)`, of the large one; what lies under the mask is not looked at.
            mask: `(B, 1, 2 h, 2 h)` of 0 and 1, the cells to fill.

        Returns:
            `(B, channels, 2 h, 2 h)`, outside the mask as given.
        """
        around = large * (1 - mask)
        coarse = self.grow(self.coarse(self.enter(small)))
        # Each cell of the small picture becomes four, with channels of their own.
        fine = F.pixel_shuffle(coarse, 2) + self.around(torch.cat([around, mask], 1))
        filled: Tensor = self.leave(self.fine(fine))
        return around + mask * filled
