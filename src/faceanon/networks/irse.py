"""IR-SE residual trunk and the ArcFace recogniser on it, in the layout of the public checkpoints (arXiv:1801.07698)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights

from faceanon.networks.eager import inference, one_by_one

WIDTHS = (64, 64, 128, 256, 512)
UNITS = (3, 4, 14, 3)
# What the identity losses of pSp and e4e cut out of FFHQ's frame: rows and columns of 256 px.
CROP = (35, 223, 32, 220)


class Thin(nn.Module):
    """Keep every `stride`-th row and column: the public network's max-pooling over one pixel."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, C, H, W)` to `(B, C, H / stride, W / stride)`, a view."""
        if self.stride == 1:
            return x
        return x[:, :, :: self.stride, :: self.stride]


def folded(conv: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
    """The convolution and the batch norm after it as one convolution, with the norm's running statistics."""
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    weight, bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    return F.conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)


class SEModule(nn.Module):
    """Squeeze and excitation: scale every channel by a gate computed from all channel means."""

    def __init__(self, channels: int, reduction: int = 16) -> None:
        super().__init__()
        inner = max(1, channels // reduction)
        self.fc1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.fc2 = nn.Conv2d(inner, channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Gate `(B, C, H, W)`."""
        gate = F.relu(self.fc1(x.mean((2, 3), keepdim=True)))
        gate = torch.sigmoid(self.fc2(gate))
        if inference(x):
            # Fresh memory costs more than the arithmetic, and without gradients nobody needs the map as it was.
            return x.mul_(gate)
        return x * gate


def make_shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """A unit's way around its convolutions."""
    if in_channels == out_channels:
        return Thin(stride)
    convolution = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out_channels))


class Unit(nn.Module):
    """Residual unit with squeeze and excitation; `stride` 2 halves the map in its second convolution."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.shortcut_layer = make_shortcut(in_channels, out_channels, stride)
        self.res_layer = nn.Sequential(
            nn.BatchNorm2d(in_channels),
            nn.Conv2d(in_channels, out_channels, 3, 1, 1, bias=False),
            nn.PReLU(out_channels),
            nn.Conv2d(out_channels, out_channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out_channels),
            SEModule(out_channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, O, H / stride, W / stride)`."""
        shortcut = self.shortcut_layer(x)
        # Folded norms take their running statistics, and a training wants those of the batch.
        if self.training or not inference(x):
            out: Tensor = self.res_layer(x) + shortcut
            return out
        # Only a norm after a convolution can be folded into it: before one, padding would get the norm's shift too.
        norm, conv1, activate, conv2, norm2, gate = self.res_layer
        gated: Tensor = gate(folded(conv2, norm2, activate(conv1(norm(x)))))
        return gated.add_(shortcut)


def make_input_layer(width: int) -> nn.Sequential:
    """RGB to `width` channels at full resolution."""
    return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.PReLU(width))


def make_body(
    widths: Sequence[int],
    units: Sequence[int],
    strides: Sequence[int] | None = None,
    unit: Callable[[int, int, int], nn.Module] = Unit,
) -> nn.Sequential:
    """Units of every stage in one row.

    Args:
        widths: Channels of the input layer, then of each stage.
        units: Units per stage.
        strides: Stride of the first unit of each stage: 2, or 1 where a stage keeps the resolution. None halves the map
            in every stage.
        unit: Makes a unit of the channels before and behind it and its stride.
    """
    strides = strides or [2] * len(units)
    if len(widths) != len(units) + 1 or len(strides) != len(units):
        given = f"widths {tuple(widths)} must have one entry more than units {tuple(units)}"
        raise ValueError(f"{given}, and strides {tuple(strides)} as many")
    body = []
    # `widths` has one entry more than the others.
    for before, width, count, stride in zip(widths, widths[1:], units, strides, strict=False):
        body.append(unit(before, width, stride))
        for _ in range(count - 1):
            body.append(unit(width, width, 1))
    return nn.Sequential(*body)


def stage_ends(units: Sequence[int]) -> tuple[int, ...]:
    """Body index of the last unit of every stage: (2, 6, 20, 23) for the 50-layer trunk."""
    return tuple(total - 1 for total in accumulate(units))


def _enter(input_layer: nn.Module, image: Tensor) -> Tensor:
    if isinstance(input_layer, nn.Sequential) and not input_layer.training and inference(image):
        conv, norm, activate = input_layer
        x: Tensor = activate(folded(conv, norm, image))
    else:
        x = input_layer(image)
    return x


def run_trunk(input_layer: nn.Module, body: nn.Sequential, image: Tensor, taps: Sequence[int]) -> dict[int, Tensor]:
    """Maps after the body indices in `taps` (-1 is the input layer); units past the last tap do not run."""
    # In training a batch norm looks at the whole batch.
    if one_by_one(image) and not body.training:
        parts = []
        for item in image.chunk(len(image)):
            parts.append(run_trunk(input_layer, body, item, taps))
        joined = {}
        for tap in parts[0]:
            joined[tap] = torch.cat([part[tap] for part in parts])
        return joined
    x = _enter(input_layer, image)
    maps = {-1: x} if -1 in taps else {}
    for index in range(max(taps) + 1):
        x = body[index](x)
        if index in taps:
            maps[index] = x
    return maps


class IRSE(nn.Module):
    """Face recogniser: a picture to a point on the unit sphere.

    Args:
        input_size: Side of the picture in px.
        widths: Channels of the input layer, then of the four stages.
        units: Units per stage.
        embedding: Width E of the embedding.
        dropout: Probability before the last linear layer, in training.

    Attributes:
        unit: Makes a unit of the channels before and behind it and its stride.
    """

    unit: Callable[[int, int, int], nn.Module] = Unit

    def __init__(
        self,
        input_size: int = 112,
        widths: Sequence[int] = WIDTHS,
        units: Sequence[int] = UNITS,
        embedding: int = 512,
        dropout: float = 0.6,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.embedding = embedding
        self.stage_ends = stage_ends(units)
        # Each stride of 2 rounds up.
        side = math.ceil(input_size / 2 ** len(units))
        self.input_layer = make_input_layer(widths[0])
        self.output_layer = nn.Sequential(
            nn.BatchNorm2d(widths[-1]),
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(widths[-1] * side**2, embedding),
            nn.BatchNorm1d(embedding),
        )
        self.body = make_body(widths, units, unit=self.unit)

    def forward(self, image: Tensor) -> Tensor:
        """L2-normalised embedding `(B, E)` of aligned faces `(B, 3, input_size, input_size)` in [-1, 1]."""
        if image.shape[1:] != (3, self.input_size, self.input_size):
            raise ValueError(
                f"image is {tuple(image.shape)}; this recogniser takes (B, 3, {self.input_size}, {self.input_size})"
            )
        return F.normalize(self.output_layer(self.body(self.input_layer(image))))

    def stages(self, image: Tensor) -> list[Tensor]:
        """Maps after the input layer and after each stage: side of the picture, then 1/2, 1/4, 1/8, 1/16 of it."""
        return list(run_trunk(self.input_layer, self.body, image, (-1, *self.stage_ends)).values())

    def embed(self, image: Tensor, crop: tuple[int, int, int, int] | None = CROP) -> Tensor:
        """Embed pictures of another size and framing.

        Args:
            image: `(B, 3, S, S)` in [-1, 1].
            crop: Rows and columns (top, bottom, left, right) in px of a 256 px picture, to which `image` is resized
                first; the default cuts the recogniser's framing out of FFHQ's. None takes the whole picture.

        Returns:
            `(B, E)`, L2-normalised.
        """
        if crop is not None:
            if image.shape[-2:] != (256, 256):
                image = F.adaptive_avg_pool2d(image, 256)
            top, bottom, left, right = crop
            image = image[:, :, top:bottom, left:right]
        if image.shape[-2:] != (self.input_size, self.input_size):
            image = F.adaptive_avg_pool2d(image, self.input_size)
        embedding: Tensor = self(image)
        return embedding
