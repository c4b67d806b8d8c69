"""The discriminator of a generator on latents."""

from __future__ import annotations

from torch import Tensor

from faceanon.networks.face_painter import PaintingDiscriminator
from faceanon.networks.latents import CodecUser


class CellDiscriminator(CodecUser):
    """Tell the latents of photographs from drawn ones, place by place; pictures go through the codec's encoder first.

    Args:
        cells: Cells a side of the latents.
        channels: Channels of the latents.
        width: Channels of the first layers, a multiple of 16.

    Attributes:
        init_args: Arguments that build it again.

    Examples:
        >>> import torch
        >>> from faceanon.networks.cell_discriminator import CellDiscriminator
        >>> discriminator = CellDiscriminator(cells=16, channels=32, width=16)
        >>> discriminator(torch.zeros(2, 32, 16, 16)).shape  # three logits for each of 256 places
        torch.Size([2, 768])
    """

    def __init__(self, cells: int = 16, channels: int = 32, width: int = 96) -> None:
        super().__init__()
        self.init_args = {"cells": cells, "channels": channels, "width": width}
        self.channels = channels
        # No maps: a generator gets no drawings that its latents would have to match.
        self.net = PaintingDiscriminator(cells, channels, 0, width)

    def forward(self, drawn: Tensor) -> Tensor:
        """Logits `(B, 3 N)`, higher for photographs, of latents `(B, channels, h, h)` or pictures `(B, 3, S, S)`."""
        if drawn.shape[1] != self.channels:
            drawn = self.codec.encode(drawn)
        logits: Tensor = self.net(drawn)
        return logits
