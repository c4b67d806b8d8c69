"""StyleGAN2 discriminator in the layout of the public PyTorch checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from faceanon.networks.eager import in_turn
from faceanon.networks.stylegan2_layers import ActivatedConv, EqualConv2d, EqualLinear, FusedLeakyReLU
from faceanon.networks.stylegan2_tables import channel_table
from faceanon.networks.upfirdn import Resample, fast_layout


class SkipDown(nn.Sequential):
    """Blur, then 1 x 1 convolution, at half the resolution; the blur is evaluated only where the convolution looks."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(Resample((1, 1), down=2), EqualConv2d(in_channels, out_channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, O, H / 2, W / 2)`, divided by sqrt(2)."""
        blur, conv = self
        assert isinstance(conv, EqualConv2d)
        return conv.biased(blur(x), gain=1 / math.sqrt(2))


class ResBlock(nn.Module):
    """Two 3 x 3 convolutions to half the resolution beside a skip, summed and divided by sqrt(2)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = ActivatedConv(EqualConv2d(in_channels, in_channels, 3, padding=1), FusedLeakyReLU(in_channels))
        self.conv2 = ActivatedConv(
            Resample((2, 2)),
            EqualConv2d(in_channels, out_channels, 3, stride=2),
            FusedLeakyReLU(out_channels),
            gain=1.0,  # sqrt(2) of the activation over sqrt(2) of the sum
        )
        self.skip = SkipDown(in_channels, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, O, H / 2, W / 2)`."""
        out: Tensor = self.skip(x)
        # In place: neither the skip's gradient nor anybody else needs its map as it was.
        return out.add_(self.conv2(self.conv1(x)))


def minibatch_stddev(x: Tensor, largest: int = 4) -> Tensor:
    """Append one channel: the mean deviation among the samples of a group; `(B, C, H, W)` to `(B, C + 1, H, W)`.

    The group is the largest divisor of B up to `largest`. For B below 5 or divisible by 4 that is the public network's
    group; other batches, which the public network refuses, work too.

    Examples:
        >>> import torch
        >>> from faceanon.networks.discriminator import minibatch_stddev
        >>> alike = torch.ones(4, 8, 4, 4)
        >>> different = torch.randn(4, 8, 4, 4)
        >>> bool(minibatch_stddev(alike)[:, 8].max() < 0.001), bool(minibatch_stddev(different)[:, 8].min() > 0.5)
        (True, True)
    """
    batch, channels, height, width = x.shape
    divisors = []
    for size in range(1, largest + 1):
        if batch % size == 0:
            divisors.append(size)
    group = max(divisors)
    y = x.reshape(group, batch // group, channels, height, width)  # sample i is in subgroup i mod (B / group)
    # The small number keeps the root's gradient finite where all pictures of a group are alike.
    deviation = torch.sqrt(y.var(0, unbiased=False) + 1e-8).mean((1, 2, 3))  # (B / group,)
    return torch.cat([x, deviation.repeat(group).view(batch, 1, 1, 1).expand(-1, 1, height, width)], 1)


class Discriminator(nn.Module):
    """Tell pictures from drawings.

    Args:
        size: Side S of the image in px, a power of two from 8.
        channel_multiplier: Widens the layers from 64 px up, 2 in the public checkpoints.
        channels: Channels per resolution in px, instead of the public table.

    Examples:
        >>> import torch
        >>> from faceanon.networks.discriminator import Discriminator
        >>> discriminator = Discriminator(size=16, channels={4: 16, 8: 16, 16: 8})
        >>> discriminator(torch.zeros(2, 3, 16, 16)).shape
        torch.Size([2, 1])
    """

    def __init__(self, size: int, channel_multiplier: int = 2, channels: Mapping[int, int] | None = None) -> None:
        super().__init__()
        self.size = size
        self.channels = channel_table(size, channel_multiplier, channels)
        sides = sorted(self.channels, reverse=True)
        widest = self.channels[size]
        last = self.channels[4]
        blocks = []
        for a, b in pairwise(sides):
            blocks.append(ResBlock(self.channels[a], self.channels[b]))
        self.convs = nn.Sequential(
            ActivatedConv(EqualConv2d(3, widest, 1), FusedLeakyReLU(widest)),
            *blocks,
        )
        # One channel more than the blocks give: that of `minibatch_stddev`.
        self.final_conv = ActivatedConv(EqualConv2d(last + 1, last, 3, padding=1), FusedLeakyReLU(last))
        # 16 is the number of places in the last map, 4 x 4.
        self.final_linear = nn.Sequential(EqualLinear(last * 16, last, activate=True), EqualLinear(last, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Logits `(B, 1)` of images `(B, 3, S, S)` in [-1, 1].

        Raises:
            ValueError: If the images are not S x S.
        """
        if image.shape[1:] != (3, self.size, self.size):
            wanted = f"(B, 3, {self.size}, {self.size})"
            raise ValueError(f"image is {tuple(image.shape)}; this discriminator takes {wanted}")
        # Only the convolutions may go picture by picture: the deviation compares pictures of the batch.
        x = self.final_conv(minibatch_stddev(in_turn(self.convs, fast_layout(image))))
        logits: Tensor = self.final_linear(x.flatten(1))
        return logits
