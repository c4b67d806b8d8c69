"""A small U-Net face parser in the layout of a public checkpoint, with CelebAMask-HQ's classes."""

from __future__ import annotations

from torch import Tensor, cat, nn
from torch.nn import functional as F


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with a ReLU."""
    first = nn.Conv2d(inputs, outputs, 3, padding=1)
    second = nn.Conv2d(outputs, outputs, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())


class SmallUNet(nn.Module):
    """U-Net of two levels; it knows faces at one scale, so pictures are brought to that scale and logits back.

    Args:
        n_classes: Number of classes C.
        working_size: Side in pixels at which it looks; None takes pictures as they come. The public weights want 256.
    """

    def __init__(self, n_classes: int = 19, working_size: int | None = None) -> None:
        super().__init__()
        self.working_size = working_size
        self.enc1 = _twice(3, 32)
        self.enc2 = _twice(32, 64)
        self.bottleneck = _twice(64, 128)
        self.up1 = nn.ConvTranspose2d(128, 64, 2, 2)
        self.dec1 = _twice(128, 64)
        self.up2 = nn.ConvTranspose2d(64, 32, 2, 2)
        self.dec2 = _twice(64, 32)
        self.out = nn.Conv2d(32, n_classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` RGB in [-1, 1] -> logits `(B, C, S, S)`; the working side must be a multiple of 4."""
        size = image.shape[-1]
        logits = self._logits(_resize(image, self.working_size or size))
        return _resize(logits, size)

    def _logits(self, image: Tensor) -> Tensor:
        fine = self.enc1(image)
        coarse = self.enc2(F.max_pool2d(fine, 2))
        deep = self.bottleneck(F.max_pool2d(coarse, 2))
        up = self.dec1(cat([self.up1(deep), coarse], 1))
        logits: Tensor = self.out(self.dec2(cat([self.up2(up), fine], 1)))
        return logits


def _resize(x: Tensor, size: int) -> Tensor:
    """Bilinear when it grows, averaging when it shrinks."""
    if x.shape[-1] == size:
        return x
    if x.shape[-1] > size:
        return F.adaptive_avg_pool2d(x, size)
    return F.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
