"""Layers of StyleGAN2, named and shaped as in the public PyTorch checkpoints."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.eager import inference
from faceanon.networks.upfirdn import BINOMIAL, Resample, fast_layout

SLOPE = 0.2
EPS = 1e-8


class PixelNorm(nn.Module):
    """Divide `(B, D)` by its root mean square over dimension 1.

    Examples:
        >>> import torch
        >>> from faceanon.networks.stylegan2_layers import PixelNorm
        >>> PixelNorm()(torch.tensor([[3.0, 4.0, 0.0, 0.0]]))
        tensor([[1.2000, 1.6000, 0.0000, 0.0000]])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Scale every row of `(B, D)` to a root mean square of 1."""
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + EPS)


class FusedLeakyReLU(nn.Module):
    """`leaky_relu(x + bias, 0.2) * sqrt(2)`, bias along dimension 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, C, ...)` to the same shape."""
        # Inside the activation, which is positively homogeneous.
        gain = math.sqrt(2)
        bias = gain * self.bias.view(1, -1, *[1] * (x.ndim - 2))
        return F.leaky_relu_(torch.add(bias, x, alpha=gain), SLOPE)


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
        if self.activate:
            return F.leaky_relu(x, SLOPE) * math.sqrt(2)
        return x


class EqualConv2d(nn.Module):
    """Convolution without bias whose N(0, 1) weight is scaled by `1 / sqrt(fan_in)` when it runs."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_channels, in_channels, kernel_size, kernel_size))
        self.scale = 1 / math.sqrt(in_channels * kernel_size**2)
        self.stride = stride
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `(B, I, H, W)`."""
        return self.biased(x)

    def biased(self, x: Tensor, bias: Tensor | None = None, gain: float = 1.0) -> Tensor:
        """`gain` times the convolution, plus `bias` `(O,)`."""
        return F.conv2d(x, self.weight * (gain * self.scale), bias, stride=self.stride, padding=self.padding)


class ActivatedConv(nn.Sequential):
    """Modules, the last two of which are an `EqualConv2d` and its `FusedLeakyReLU`; those run as one.

    Args:
        modules: The modules, keyed by their position.
        gain: Multiplies the result; sqrt(2) is what the activation alone would do. Goes into weight and bias, which
            saves two passes over the map.
    """

    def __init__(self, *modules: nn.Module, gain: float | None = None) -> None:
        super().__init__(*modules)
        self.gain = math.sqrt(2) if gain is None else gain

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)`."""
        *first, conv, activate = self
        assert isinstance(conv, EqualConv2d)
        assert isinstance(activate, FusedLeakyReLU)
        for module in first:
            x = module(x)
        return F.leaky_relu_(conv.biased(x, self.gain * activate.bias, self.gain), SLOPE)


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
            # Padding with which transposed convolution and blur together exactly double the side.
            slack = len(blur) - 2 - (kernel_size - 1)
            # Three of four samples are inserted zeros, so the filter has to sum to 4.
            self.blur = Resample(((slack + 1) // 2 + 1, slack // 2 + 1), gain=4.0, taps=blur)
        # A bias of 1, so that a style of zeros leaves the weight as it is.
        self.modulation = EqualLinear(style_dim, in_channels, bias_init=1.0)
        self.scale = 1 / math.sqrt(in_channels * kernel_size**2)
        self.padding = kernel_size // 2
        self.demodulate = demodulate
        self.upsample = upsample

    def forward(self, x: Tensor, style: Tensor, gain: float = 1.0) -> Tensor:
        """`gain` times the convolution of `(B, I, H, W)` under styles `(B, style_dim)`."""
        style = self.modulation(style)  # (B, I)
        if self.weight.shape[-1] == 1:
            return self._project(x, style, gain)
        weight = self.weight[0] * self.scale
        if self._folds(x):
            weight = weight * style[0, :, None, None]
            if self.demodulate:
                weight = weight * torch.rsqrt(weight.square().sum((1, 2, 3), keepdim=True) + EPS)
            return self._convolve(x, weight * gain)
        x = self._convolve(x * style[:, :, None, None], weight)
        if not self.demodulate:
            return x * gain
        # What the squares of the modulated weight sum to, without a weight for each sample.
        energy = style.square() @ weight.square().sum((2, 3)).t()  # (B, O)
        return x * (gain * torch.rsqrt(energy + EPS))[:, :, None, None]

    def _folds(self, x: Tensor) -> bool:
        """Whether the style goes into the weight: for a single sample whose map is larger than the weight."""
        large = x.shape[-2] * x.shape[-1] >= 4 * self.weight.shape[1]
        exact = not torch.is_autocast_enabled(x.device.type)  # there the demodulation stays in float32
        return inference(x) and exact and large and len(x) == 1

    def _convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        if not self.upsample:
            return F.conv2d(x, weight, padding=self.padding)
        # A transposed convolution takes its weight as (I, O, k, k).
        blurred: Tensor = self.blur(F.conv_transpose2d(x, weight.transpose(0, 1), stride=2))
        return blurred

    def _project(self, x: Tensor, style: Tensor, gain: float) -> Tensor:
        """A kernel of one pixel is a matrix per sample; it has fewer rows than a map has pixels."""
        weight = (self.scale * self.weight[:, :, :, 0, 0]) * style[:, None]  # (B, O, I)
        if self.demodulate:
            weight = weight * torch.rsqrt(weight.square().sum(2, keepdim=True) + EPS)
        return (weight * gain @ x.flatten(2)).view(-1, weight.shape[1], *x.shape[2:])


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
        # leaky ReLU is positively homogeneous: sqrt(2) goes into the small factors. What follows changes the new map in
        # place: fresh memory costs more than the arithmetic
        gain = math.sqrt(2)
        x = self.conv(x, style, gain)
        x += gain * self.activate.bias[:, None, None]
        x += (gain * self.noise.weight * noise).to(x.dtype)
        return F.leaky_relu_(x, SLOPE)


class ToRGB(nn.Module):
    """Project features to RGB and add the up-sampled image of the previous resolution.

    Args:
        in_channels: Channels of the features.
        style_dim: Width of the style.
        upsample: Whether there is a previous resolution.
        channels: Channels of the image: 3, or those of latents.
    """

    def __init__(self, in_channels: int, style_dim: int, upsample: bool = True, channels: int = 3) -> None:
        super().__init__()
        if upsample:
            self.upsample = Resample((2, 1), up=2, gain=4.0)
        self.conv = ModulatedConv2d(in_channels, channels, 1, style_dim, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor, style: Tensor, skip: Tensor | None = None) -> Tensor:
        """Draw `(B, channels, H, W)` from `(B, I, H, W)`, adding `skip` `(B, channels, H / 2, W / 2)`."""
        image: Tensor = self.conv(x, style) + self.bias
        if skip is not None:
            image = image + self.upsample(skip)
        return image
