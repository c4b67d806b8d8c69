"""The face parser published with CelebAMask-HQ, a U-Net, in the layout of its checkpoint (arXiv:1907.11922).

RiDDLE's parse loss, and DBAF's after it, compare its logits; both know the file as `parsenet.pth`, a bare state dict.
Its classes are `parsing_classes.CELEBAMASK_HQ`, another order than BiSeNet's. No numbers of the public network were at
hand: keys, shapes and wiring follow its published code, and are tested as such.
"""

from __future__ import annotations

from torch import Tensor, cat, nn
from torch.nn import functional as F

WIDTHS = (16, 32, 64, 128, 256)
WORKING_SIZE = 512


class UNetConvUnit(nn.Sequential):
    """3 x 3 convolution with bias, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class DoubleConv(nn.Module):
    """Two units of convolution, batch norm and ReLU, one after the other; the size stays."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = UNetConvUnit(inputs, outputs)
        self.conv2 = UNetConvUnit(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, I, H, W)` -> `(B, O, H, W)`."""
        out: Tensor = self.conv2(self.conv1(x))
        return out


class Up(nn.Module):
    """Double the side of the coarse map and join it behind the fine one."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = DoubleConv(inputs, outputs)
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, 2)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        """`(B, I / 2, H, W)` and `(B, I, H / 2, W / 2)` -> `(B, O, H, W)`."""
        out: Tensor = self.conv(cat([fine, self.up(coarse)], 1))
        return out


class CelebAMaskParser(nn.Module):
    """U-Net of four levels; it knows faces at one scale, so pictures are brought to that scale and logits back.

    Both ways by adaptive averaging, as in the published losses: where a side doubles, every pixel is repeated.

    Args:
        n_classes: Number of classes C.
        working_size: Side in pixels at which it looks, a multiple of 16; None takes pictures as they come.
    """

    def __init__(self, n_classes: int = 19, working_size: int | None = WORKING_SIZE) -> None:
        super().__init__()
        self.working_size = working_size
        first, second, third, fourth, deepest = WIDTHS
        self.conv1 = DoubleConv(3, first)
        self.conv2 = DoubleConv(first, second)
        self.conv3 = DoubleConv(second, third)
        self.conv4 = DoubleConv(third, fourth)
        self.center = DoubleConv(fourth, deepest)
        self.up_concat4 = Up(deepest, fourth)
        self.up_concat3 = Up(fourth, third)
        self.up_concat2 = Up(third, second)
        self.up_concat1 = Up(second, first)
        self.final = nn.Conv2d(first, n_classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` RGB in [-1, 1] -> logits `(B, C, S, S)`.

        Raises:
            ValueError: The side at which it looks is no multiple of 16.
        """
        size = (image.shape[-2], image.shape[-1])
        if self.working_size is None:
            look = size
        else:
            look = (self.working_size, self.working_size)
        # Four halvings.
        if any(side % 16 for side in look):
            raise ValueError(f"the parser looks at {look[0]} x {look[1]} px; both must be multiples of 16")
        return _resize(self._logits(_resize(image, look)), size)

    def _logits(self, image: Tensor) -> Tensor:
        maps = [self.conv1(image)]
        for down in (self.conv2, self.conv3, self.conv4, self.center):
            maps.append(down(F.max_pool2d(maps[-1], 2)))
        x = maps.pop()
        for up in (self.up_concat4, self.up_concat3, self.up_concat2, self.up_concat1):
            x = up(maps.pop(), x)
        logits: Tensor = self.final(x)
        return logits


def _resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(x.shape[-2:]) == size:
        return x
    return F.adaptive_avg_pool2d(x, size)
