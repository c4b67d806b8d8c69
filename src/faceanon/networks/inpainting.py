"""U-Nets that fill a hole: told whom to draw at its narrowest point, modulated in each layer, or on latents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.face_painter import FacePainter
from faceanon.networks.stylegan2_layers import SLOPE, EqualLinear, FusedLeakyReLU, ModulatedConv2d, PixelNorm

GROUPS = 4
MAPPING_LAYERS = 4  # between z and the styles


class Normed(nn.Sequential):
    """3 x 3 convolution, group norm, leaky ReLU.

    Args:
        inputs: Channels before.
        outputs: Channels after, a multiple of 4.
        stride: 2 halves the side.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        super().__init__(convolution, nn.GroupNorm(GROUPS, outputs), nn.LeakyReLU(SLOPE))


class ContextEncoder(nn.Module):
    """One map at full size, then one for every halving.

    Args:
        inputs: Channels of the context.
        widths: Channels of the maps, finest first; multiples of 4.
    """

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        strides = [1] + [2] * (len(widths) - 1)
        pairs = pairwise((inputs, *widths))
        self.levels = nn.ModuleList()
        for (before, after), stride in zip(pairs, strides, strict=True):
            self.levels.append(Normed(before, after, stride))

    def forward(self, context: Tensor) -> list[Tensor]:
        """`(B, I, S, S)` -> maps `(B, C, S / 2^i, S / 2^i)`, i from 0."""
        maps: list[Tensor] = []
        for level in self.levels:
            context = level(context)
            maps.append(context)
        return maps


class IdentityUNet(nn.Module):
    """U-Net into whose narrowest map a vector is unfolded.

    Args:
        inputs: Channels of the context.
        key_dim: Length K of the vector.
        image_size: Side S in pixels, a multiple of 2^(levels - 1).
        widths: Channels of the maps, finest first; multiples of 4.
    """

    def __init__(self, inputs: int, key_dim: int, image_size: int, widths: Sequence[int]) -> None:
        super().__init__()
        # The first map keeps the full side, so there is one halving fewer than there are maps.
        side = image_size >> (len(widths) - 1)
        deepest = widths[-1]
        self.encoder = ContextEncoder(inputs, widths)
        self.unfold = nn.Sequential(nn.Linear(key_dim, deepest * side * side), nn.Unflatten(1, (deepest, side, side)))
        self.join = Normed(2 * deepest, deepest)
        steps = list(pairwise(reversed(widths)))
        ups = []
        for deep, fine in steps:
            ups.append(nn.Sequential(Normed(deep + fine, fine), Normed(fine, fine)))
        self.ups = nn.ModuleList(ups)
        self.head = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, context: Tensor, key: Tensor) -> Tensor:
        """`(B, I, S, S)` and `(B, K)` -> `(B, 3, S, S)` in [-1, 1]."""
        maps = self.encoder(context)
        x = self.join(torch.cat([maps.pop(), self.unfold(key)], 1))
        for up in self.ups:
            x = up(torch.cat([_doubled(x), maps.pop()], 1))
        drawn: Tensor = self.head(x).tanh()
        return drawn


class StyledBlock(nn.Module):
    """Modulated convolution, bias, leaky ReLU.

    Args:
        inputs: Channels before.
        outputs: Channels after.
        style_dim: Width D of the style.
    """

    def __init__(self, inputs: int, outputs: int, style_dim: int) -> None:
        super().__init__()
        self.conv = ModulatedConv2d(inputs, outputs, 3, style_dim)
        self.activate = FusedLeakyReLU(outputs)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """`(B, I, H, W)` under styles `(B, D)` -> `(B, O, H, W)`."""
        out: Tensor = self.activate(self.conv(x, style))
        return out


class StyleUNet(nn.Module):
    """U-Net whose decoder is modulated by a mapped z, as StyleGAN2's layers are.

    Args:
        inputs: Channels of the context.
        style_dim: Width D of z and of the styles.
        widths: Channels of the maps, finest first; multiples of 4.
    """

    def __init__(self, inputs: int, style_dim: int, widths: Sequence[int]) -> None:
        super().__init__()
        mapped = []
        for _ in range(MAPPING_LAYERS):
            # As in StyleGAN: the mapping network learns a hundred times more slowly than the rest.
            mapped.append(EqualLinear(style_dim, style_dim, lr_mul=0.01, activate=True))
        self.mapping = nn.Sequential(PixelNorm(), *mapped)
        self.encoder = ContextEncoder(inputs, widths)
        self.middle = StyledBlock(widths[-1], widths[-1], style_dim)
        steps = list(pairwise(reversed(widths)))
        first = []
        for deep, fine in steps:
            first.append(StyledBlock(deep + fine, fine, style_dim))
        self.first = nn.ModuleList(first)
        second = []
        for _, fine in steps:
            second.append(StyledBlock(fine, fine, style_dim))
        self.second = nn.ModuleList(second)
        self.head = nn.Conv2d(widths[0], 3, 1)

    def forward(self, context: Tensor, z: Tensor) -> Tensor:
        """`(B, I, S, S)` and `(B, D)` -> `(B, 3, S, S)`, not clamped."""
        style = self.mapping(z)
        maps = self.encoder(context)
        x = self.middle(maps.pop(), style)
        for first, second in zip(self.first, self.second, strict=True):
            x = second(first(torch.cat([_doubled(x), maps.pop()], 1), style), style)
        drawn: Tensor = self.head(x)
        return drawn


class CellUNet(nn.Module):
    """The U-Net of face_painter.py on a context of latents, every block modulated by a vector.

    It says what to add to the latents that it sees; before training that is nothing.

    Args:
        inputs: Channels I of the context: first those of the latents, then what else is known.
        key_dim: Length K of the vector.
        cells: Cells h a side of the latents: 16 or 32.
        channels: Channels C of the latents.
    """

    def __init__(self, inputs: int, key_dim: int, cells: int, channels: int) -> None:
        super().__init__()
        self.channels = channels
        # All cells are painted, and seen through what the painter calls maps: so the context may reach everywhere.
        self.painter = FacePainter(cells, channels, inputs, key_dim)
        last = self.painter.leave[str(cells)][-1]  # type: ignore[index]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, context: Tensor, key: Tensor) -> Tensor:
        """`(B, I, h, h)` and `(B, K)` -> latents `(B, C, h, h)`."""
        seen = context[:, : self.channels]
        everywhere = torch.ones_like(context[:, :1])
        added: Tensor = self.painter(seen, everywhere, context, key)
        return seen + added


def _doubled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
