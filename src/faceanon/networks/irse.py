"""IR-SE residual trunk and the ArcFace recogniser on it, in the layout of the public checkpoints (arXiv:1801.07698)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTHS = (64, 64, 128, 256, 512)
UNITS = (3, 4, 14, 3)
CROP = (35, 223, 32, 220)


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
        return x * torch.sigmoid(self.fc2(gate))


class Unit(nn.Module):
    """Residual unit with squeeze and excitation; `stride` 2 halves the map in its second convolution."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.shortcut_layer: nn.Module
        if in_channels == out_channels:
            self.shortcut_layer = nn.MaxPool2d(1, stride)
        else:
            self.shortcut_layer = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )
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
        out: Tensor = self.res_layer(x) + self.shortcut_layer(x)
        return out


def make_input_layer(width: int) -> nn.Sequential:
    """RGB to `width` channels at full resolution."""
    return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.PReLU(width))


def make_body(widths: Sequence[int], units: Sequence[int]) -> nn.Sequential:
    """Units of every stage in one row; the first of each stage halves the map.

    Args:
        widths: Channels of the input layer, then of each stage.
        units: Units per stage.
    """
    if len(widths) != len(units) + 1:
        raise ValueError(f"widths {tuple(widths)} must have one entry more than units {tuple(units)}")
    body = []
    for before, width, count in zip(widths, widths[1:], units, strict=False):
        body.append(Unit(before, width, 2))
        body.extend(Unit(width, width, 1) for _ in range(count - 1))
    return nn.Sequential(*body)


def stage_ends(units: Sequence[int]) -> tuple[int, ...]:
    """Body index of the last unit of every stage: (2, 6, 20, 23) for the 50-layer trunk."""
    return tuple(total - 1 for total in accumulate(units))


def run_trunk(input_layer: nn.Module, body: nn.Sequential, image: Tensor, taps: Sequence[int]) -> dict[int, Tensor]:
    """Maps after the body indices in `taps` (-1 is the input layer); units past the last tap do not run."""
    x = input_layer(image)
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
    """

    def __init__(
        self,
        input_size: int = 112,
        widths: Sequence[int] = WIDTHS,
        units: Sequence[int] = UNITS,
        embedding: int = 512,
        dropout: float = 0.6,
    ) -> None:
        super().__init__()
        self.input_size, self.embedding = input_size, embedding
        self.stage_ends = stage_ends(units)
        side = math.ceil(input_size / 2 ** len(units))
        self.input_layer = make_input_layer(widths[0])
        self.output_layer = nn.Sequential(
            nn.BatchNorm2d(widths[-1]),
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(widths[-1] * side**2, embedding),
            nn.BatchNorm1d(embedding),
        )
        self.body = make_body(widths, units)

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


class IRSE50(IRSE):
    """The public IR-SE50 (`model_ir_se50.pth`): 112 x 112 in [-1, 1] to `(B, 512)`."""

    def __init__(self) -> None:
        super().__init__()
