"""StyleGAN2's generator as the released trainers run it: one convolution weight a sample, in a grouped convolution.

It reads the parameters of our `Generator` and gives the same pictures; only the calls are others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.networks.stylegan2 import Generator
from faceanon.networks.stylegan2_layers import EPS, SLOPE, ModulatedConv2d, StyledConv, ToRGB


def reference_modulated(conv: ModulatedConv2d, x: Tensor, style: Tensor) -> Tensor:
    """Modulate and demodulate a weight `(B, O, I, k, k)` and convolve `(B, I, H, W)` in B groups."""
    batch, inputs, height, width = x.shape
    outputs = conv.weight.shape[1]
    side = conv.weight.shape[-1]
    weight = conv.scale * conv.weight * conv.modulation(style).view(batch, 1, inputs, 1, 1)
    if conv.demodulate:
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4)) + EPS).view(batch, outputs, 1, 1, 1)
    # The samples stand side by side as channels of one picture, so that a grouped convolution gives each its own
    # weight.
    x = x.reshape(1, batch * inputs, height, width)
    if not conv.upsample:
        x = F.conv2d(x, weight.view(batch * outputs, inputs, side, side), padding=conv.padding, groups=batch)
        return x.view(batch, outputs, height, width)
    # The transposed convolution wants inputs first.
    weight = weight.transpose(1, 2).reshape(batch * inputs, outputs, side, side)
    x = F.conv_transpose2d(x, weight, stride=2, groups=batch)
    blurred: Tensor = conv.blur(x.view(batch, outputs, *x.shape[-2:]))
    return blurred


def _styled(layer: StyledConv, x: Tensor, style: Tensor, noise: Tensor) -> Tensor:
    x = reference_modulated(layer.conv, x, style)
    x = x + layer.noise.weight * noise
    return F.leaky_relu(x + layer.activate.bias[None, :, None, None], SLOPE) * math.sqrt(2)


def _to_rgb(layer: ToRGB, x: Tensor, style: Tensor, skip: Tensor | None) -> Tensor:
    image = reference_modulated(layer.conv, x, style) + layer.bias
    return image if skip is None else image + layer.upsample(skip)


def reference_synthesis(generator: Generator, w_plus: Tensor, features: Mapping[int, Tensor] | None = None) -> Tensor:
    """Draw `(B, 3, S, S)` of `w_plus` `(B, L, D)` with the stored noise; arguments as in `Generator.synthesis`."""
    stored = zip(generator.noise_sides, generator.noises.buffers(), strict=True)
    noises = []
    # Feature maps take the place of the noise in all layers of their resolution.
    for side, item in stored:
        noises.append((features or {}).get(side, item))
    styles = w_plus.unbind(1)
    x = generator.input.input.repeat(len(w_plus), 1, 1, 1)
    x = _styled(generator.conv1, x, styles[0], noises[0])
    image = _to_rgb(generator.to_rgb1, x, styles[1], None)
    for block, to_rgb in enumerate(generator.to_rgbs):
        # Row 0 is that of `conv1`, so layer i of `convs` has row i + 1. The colours of a block read the row that the
        # first layer of the next block reads too.
        row = 2 * block + 1
        for offset in (0, 1):
            layer = generator.convs[row - 1 + offset]
            assert isinstance(layer, StyledConv)
            x = _styled(layer, x, styles[row + offset], noises[row + offset])
        assert isinstance(to_rgb, ToRGB)
        image = _to_rgb(to_rgb, x, styles[row + 2], image)
    return image
