"""The codec of photographs: FLUX.2's autoencoder distilled into two small convolutional networks.

The layout is that of the public files `taef2_encoder.pth` and `taef2_decoder.pth` (madebyollin/taesd, MIT), so that
their tensors load unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

LATENT_CHANNELS = 32
WIDTH = 64
POOL_WIDTH = 256
LEVELS = 3  # halvings between picture and latents
SHRINK = 2**LEVELS  # pixels of the picture along one cell of the latents
LOCAL = 3  # layers of the decoder at the picture's full resolution, from its last enlargement on
REACH = 5  # pixels that these layers look to each side: one convolution, three of a block, one


class SoftClamp(nn.Module):
    """Keep latents within -3 to 3: `3 tanh(z / 3)`."""

    def forward(self, latents: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return 3.0 * torch.tanh(latents / 3.0)


class Taef2Block(nn.Module):
    """Three convolutions with a residual; at the latents' resolution a normalised mixture is added first.

    Args:
        pooled: Whether to add `pool(x)` first, as the blocks at the latents' resolution do.
    """

    def __init__(self, pooled: bool = False) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
        )
        self.skip = nn.Identity()
        self.fuse = nn.ReLU()
        self.pool: nn.Sequential | None = None
        if pooled:
            self.pool = nn.Sequential(
                nn.Conv2d(WIDTH, POOL_WIDTH, 1, bias=False),
                nn.GroupNorm(4, POOL_WIDTH),
                nn.ReLU(),
                nn.Conv2d(POOL_WIDTH, WIDTH, 1, bias=False),
            )

    def forward(self, x: Tensor) -> Tensor:
        """`(B, 64, H, W)` -> `(B, 64, H, W)`."""
        if self.pool is not None:
            x = x + self.pool(x)
        fused: Tensor = self.fuse(self.conv(x) + self.skip(x))
        return fused


class Taef2Encoder(nn.Sequential):
    """Picture `(B, 3, H, W)` in [0, 1] -> latents `(B, 32, H / 8, W / 8)`; H and W are multiples of 8.

    The latents have a standard deviation near 1 and reach about 6.
    """

    def __init__(self) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, WIDTH, 3, padding=1), Taef2Block()]
        for level in range(LEVELS):
            layers.append(nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1, bias=False))
            at_latents = level == LEVELS - 1
            for _ in range(3):
                layers.append(Taef2Block(pooled=at_latents))
        layers.append(nn.Conv2d(WIDTH, LATENT_CHANNELS, 3, padding=1))
        super().__init__(*layers)


class Taef2Decoder(nn.Sequential):
    """Latents `(B, 32, h, w)` -> picture `(B, 3, 8 h, 8 w)`, nominally in [0, 1] and not clamped."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [SoftClamp(), nn.Conv2d(LATENT_CHANNELS, WIDTH, 3, padding=1), nn.ReLU()]
        for level in range(LEVELS):
            at_latents = level == 0
            for _ in range(3):
                layers.append(Taef2Block(pooled=at_latents))
            layers.append(nn.Upsample(scale_factor=2))
            layers.append(nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False))
        layers.append(Taef2Block())
        layers.append(nn.Conv2d(WIDTH, 3, 3, padding=1))
        super().__init__(*layers)

    def part(self, latents: Tensor, window: tuple[int, int, int, int]) -> Tensor:
        """A part of the picture, the same as if the whole were drawn, without what only the rest of it needs.

        The first layers look at everything. The last five convolutions take more than half of the work, and a pixel of
        theirs depends on its neighbours alone.

        Args:
            latents: `(B, 32, h, w)`.
            window: Top, bottom, left and right of the part, in cells of the latents.

        Returns:
            `(B, 3, 8 (bottom - top), 8 (right - left))`.
        """
        layers = list(self)
        x = latents
        # Drawn whole: the first blocks normalise over the whole map.
        for layer in layers[:-LOCAL]:
            x = layer(x)
        height, width = x.shape[-2:]
        top, bottom, left, right = (SHRINK * edge for edge in window)
        # At the picture's border nothing is added: there the whole picture's convolutions see padding too.
        above = max(top - REACH, 0)
        before = max(left - REACH, 0)
        x = x[:, :, above : min(bottom + REACH, height), before : min(right + REACH, width)]
        x = x.contiguous(memory_format=torch.channels_last)
        for layer in layers[-LOCAL:]:
            x = layer(x)
        return x[:, :, top - above : bottom - above, left - before : right - before]
