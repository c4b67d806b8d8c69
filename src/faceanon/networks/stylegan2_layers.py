"""Layers of StyleGAN2, named and shaped as in the public PyTorch checkpoints."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.upfirdn import BINOMIAL, Resample, fast_layout

SLOPE = 0.2
EPS = 1e-8


class PixelNorm(nn.Module):
    """Divide `(B, D)` by its root mean square over dimension 1."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `(B, D)`."""
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + EPS)


class FusedLeakyReLU(nn.Module):
    """`leaky_relu(x + bias, 0.2) * sqrt(2)`, bias along dimension 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, C, ...)` to the same shape."""
        bias = self.bias.view(1, -1, *[1] * (x.ndim - 2))
        return F.leaky_relu(x + bias, SLOPE) * math.sqrt(2)


class EqualLinear(nn.Module):
    """Linear layer whose stored weight is N(0, 1) / `lr_mul` and is scaled when it runs.

    Args:
        in_features: Input width.
        out_features: Output width.
        bias_init: Initial effective bias; stored as is.
        lr_mul: Multiplies weight and bias when run.
        activate: Whether leaky ReLU times sqrt(2) follows.
    """

    def __init__(
        self, in_features: int, out_features: int, bias_init: float = 0.0, lr_mul: float = 1.0, activate: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) / lr_mul)
        self.bias = nn.Parameter(torch.full((out_features,), float(bias_init)))
        self.scale = lr_mul / math.sqrt(in_features)
        self.lr_mul = lr_mul
        self.activate = activate

    def forward(self, x: Tensor) -> Tensor:
        """Map `(..., in_features)` to `(..., out_features)`."""
        x = F.linear(x, self.weight * self.scale, self.bias * self.lr_mul)
        return F.leaky_relu(x, SLOPE) * math.sqrt(2) if self.activate else x


class EqualConv2d(nn.Module):
    """Convolution without bias whose N(0, 1) weight is scaled by `1 / sqrt(fan_in)` when it runs."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_channels, in_channels, kernel_size, kernel_size))
        self.scale = 1 / math.sqrt(in_channels * kernel_size**2)
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `(B, I, H, W)`."""
        return F.conv2d(x, self.weight * self.scale, stride=self.stride, padding=self.padding)


class ModulatedConv2d(nn.Module):
    """Convolution whose weight is scaled per sample and input channel by a style, then normalised per output channel.

    No weight per sample is built: the style scales the input, one shared convolution runs, and the demodulation
    coefficients scale its output; the same numbers as scaling the weight.

    Args:
        in_channels: Input channels.
        out_channels: Output channels.
        kernel_size: Odd side of the kernel.
        style_dim: Width of the style.
        demodulate: Whether to normalise the modulated weight.
        upsample: Whether to double the resolution (transposed convolution, then blur).
        blur: One axis of the blur kernel.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        style_dim: int,
        demodulate: bool = True,
        upsample: bool = False,
        blur: tuple[float, ...] = BINOMIAL,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, out_channels, in_channels, kernel_size, kernel_size))
        if upsample:
            slack = len(blur) - 2 - (kernel_size - 1)
            self.blur = Resample(((slack + 1) // 2 + 1, slack // 2 + 1), gain=4.0, taps=blur)
        self.modulation = EqualLinear(style_dim, in_channels, bias_init=1.0)
        self.scale = 1 / math.sqrt(in_channels * kernel_size**2)
        self.padding = kernel_size // 2
        self.demodulate = demodulate
        self.upsample = upsample

    def convolve(self, x: Tensor, style: Tensor) -> tuple[Tensor, Tensor | None]:
        """The output before demodulation `(B, O, H', W')` and its coefficients `(B, O)`, None without demodulation."""
        style = self.modulation(style)  # (B, I)
        weight = self.weight[0] * self.scale
        x = x * style[:, :, None, None]
        if self.upsample:
            x = self.blur(F.conv_transpose2d(x, weight.transpose(0, 1), stride=2))
        else:
            x = F.conv2d(x, weight, padding=self.padding)
        if not self.demodulate:
            return x, None
        energy = style.square() @ weight.square().sum((2, 3)).t()  # (B, O)
        return x, torch.rsqrt(energy + EPS)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """Convolve `(B, I, H, W)` under styles `(B, style_dim)`."""
        x, demodulation = self.convolve(x, style)
        return x if demodulation is None else x * demodulation[:, :, None, None]


class NoiseInjection(nn.Module):
    """One learned scalar times a noise map."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """Add `noise` to `x`, the two broadcast against each other."""
        return x + self.weight * noise


class ConstantInput(nn.Module):
    """The learned 4 x 4 map that every image grows from."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.input = nn.Parameter(torch.randn(1, channels, 4, 4))

    def forward(self, batch: int) -> Tensor:
        """Repeat the map: `(batch, C, 4, 4)`."""
        return fast_layout(self.input.expand(batch, -1, -1, -1))


class StyledConv(nn.Module):
    """Modulated convolution, noise, bias and leaky ReLU."""

    def __init__(self, in_channels: int, out_channels: int, style_dim: int, upsample: bool = False) -> None:
        super().__init__()
        self.conv = ModulatedConv2d(in_channels, out_channels, 3, style_dim, upsample=upsample)
        self.noise = NoiseInjection()
        self.activate = FusedLeakyReLU(out_channels)

    def forward(self, x: Tensor, style: Tensor, noise: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, O, H', W')` under styles `(B, style_dim)` and noise `(B or 1, O or 1, H', W')`."""
        x, demodulation = self.conv.convolve(x, style)
        assert demodulation is not None  # StyledConv always demodulates
        # leaky ReLU is positively homogeneous: sqrt(2) goes into the small factors and saves a pass over the maps
        gain = math.sqrt(2)
        shift = fast_layout(gain * self.noise(self.activate.bias[None, :, None, None], noise))
        return F.leaky_relu(torch.addcmul(shift, x, gain * demodulation[:, :, None, None]), SLOPE)


class ToRGB(nn.Module):
    """Project features to RGB and add the up-sampled image of the previous resolution."""

    def __init__(self, in_channels: int, style_dim: int, upsample: bool = True) -> None:
        super().__init__()
        if upsample:
            self.upsample = Resample((2, 1), up=2, gain=4.0)
        self.conv = ModulatedConv2d(in_channels, 3, 1, style_dim, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, x: Tensor, style: Tensor, skip: Tensor | None = None) -> Tensor:
        """Draw `(B, 3, H, W)` from `(B, I, H, W)`, adding `skip` `(B, 3, H / 2, W / 2)`."""
        image: Tensor = self.conv(x, style) + self.bias
        return image if skip is None else image + self.upsample(skip)
