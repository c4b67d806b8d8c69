"""BiSeNet without spatial path, in the layout of the public face parser `79999_iter.pth` (arXiv:1808.00897)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# ImageNet's, of RGB in [0, 1].
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class ConvBNReLU(nn.Module):
    """Convolution without bias, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, 1, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, O, H, W)`."""
        return F.relu(self.bn(self.conv(x)))


class BasicBlock(nn.Module):
    """ResNet's unit of two 3 x 3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, O, H / stride, W / stride)`."""
        residual = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            x = self.downsample(x)
        return F.relu(residual + x)


class ResNet18(nn.Module):
    """ResNet-18 (arXiv:1512.03385) without its head; starts from random weights, nothing is fetched.

    Args:
        width: Channels of the first stage; each further stage doubles them.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        widths = (width, width, 2 * width, 4 * width, 8 * width)
        layers = []
        for stage, (before, after) in enumerate(pairwise(widths)):
            # The first convolution and the pooling behind it bring the map to 1/4, so the first stage keeps its side.
            stride = 1 if stage == 0 else 2
            layers.append(nn.Sequential(BasicBlock(before, after, stride), BasicBlock(after, after, 1)))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps at 1/8, 1/16 and 1/32 of `(B, 3, H, W)`, with 2, 4 and 8 times `width` channels."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(image))), 3, 2, 1)
        eighth = self.layer2(self.layer1(x))
        sixteenth = self.layer3(eighth)
        return eighth, sixteenth, self.layer4(sixteenth)


class AttentionRefinement(nn.Module):
    """Convolve, then scale every channel by a gate computed from all channel means."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = ConvBNReLU(inputs, outputs)
        self.conv_atten = nn.Conv2d(outputs, outputs, 1, bias=False)
        self.bn_atten = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, O, H, W)`."""
        x = self.conv(x)
        return x * torch.sigmoid(self.bn_atten(self.conv_atten(x.mean((2, 3), keepdim=True))))


class ContextPath(nn.Module):
    """ResNet-18 whose deep maps, gated and joined by the picture's mean, are brought up to 1/8 of its side."""

    def __init__(self, width: int) -> None:
        super().__init__()
        context = 2 * width
        self.resnet = ResNet18(width)
        self.arm16 = AttentionRefinement(4 * width, context)
        self.arm32 = AttentionRefinement(8 * width, context)
        self.conv_head32 = ConvBNReLU(context, context)
        self.conv_head16 = ConvBNReLU(context, context)
        self.conv_avg = ConvBNReLU(8 * width, context, kernel=1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The trunk's map at 1/8 of `(B, 3, H, W)`, the context at 1/8, and the context at 1/16."""
        eighth, sixteenth, deepest = self.resnet(image)
        # (B, 2 * width, 1, 1): one vector for the whole picture, added at every place.
        overall = self.conv_avg(deepest.mean((2, 3), keepdim=True))
        coarse = self.conv_head32(_nearest(self.arm32(deepest) + overall, sixteenth))
        fine = self.conv_head16(_nearest(self.arm16(sixteenth) + coarse, eighth))
        return eighth, fine, coarse


class FeatureFusion(nn.Module):
    """Join two maps and add to every channel its gated self."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convblk = ConvBNReLU(inputs, outputs, kernel=1)
        self.conv1 = nn.Conv2d(outputs, outputs // 4, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs // 4, outputs, 1, bias=False)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Map two of `(B, I / 2, H, W)` to `(B, O, H, W)`."""
        x: Tensor = self.convblk(torch.cat([first, second], 1))
        gate = torch.sigmoid(self.conv2(F.relu(self.conv1(x.mean((2, 3), keepdim=True)))))
        return x + x * gate


class BiSeNetHead(nn.Module):
    """Logits from a map, at the map's size."""

    def __init__(self, inputs: int, middle: int, n_classes: int) -> None:
        super().__init__()
        self.conv = ConvBNReLU(inputs, middle)
        self.conv_out = nn.Conv2d(middle, n_classes, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)` to `(B, C, H, W)`."""
        logits: Tensor = self.conv_out(self.conv(x))
        return logits


class BiSeNet(nn.Module):
    """Parse faces that are already normalised as ImageNet's; `FaceParser` takes pictures in [-1, 1].

    Args:
        n_classes: Number of classes C; the public file's are `parsing_classes.BISENET`.
        width: Channels of the trunk's first stage, to which all other widths are proportional; 64 in the public file.
    """

    def __init__(self, n_classes: int = 19, width: int = 64) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.cp = ContextPath(width)
        # It joins the trunk's map at 1/8 and the context, which have 2 * width channels each.
        self.ffm = FeatureFusion(4 * width, 4 * width)
        self.conv_out = BiSeNetHead(4 * width, 4 * width, n_classes)
        # Both help a training alone (`aux`).
        self.conv_out16 = BiSeNetHead(2 * width, width, n_classes)
        self.conv_out32 = BiSeNetHead(2 * width, width, n_classes)

    def forward(self, image: Tensor, aux: bool = False) -> Tensor | tuple[Tensor, ...]:
        """Logits at the size of the input.

        Args:
            image: `(B, 3, H, W)` RGB: [0, 1] less `MEAN`, divided by `STD`. The public weights know 512 px faces.
            aux: Whether the two heads that only help training are wanted too.

        Returns:
            Logits `(B, C, H, W)`; with `aux` those of the final head and of the heads at 1/8 and 1/16.
        """
        eighth, fine, coarse = self.cp(image)
        logits = _enlarge(self.conv_out(self.ffm(eighth, fine)), image)
        if not aux:
            return logits
        return logits, _enlarge(self.conv_out16(fine), image), _enlarge(self.conv_out32(coarse), image)


def _nearest(x: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(x, size=like.shape[-2:], mode="nearest")


def _enlarge(logits: Tensor, image: Tensor) -> Tensor:
    """Bring logits to the size of `image`: bilinear, corners aligned."""
    return F.interpolate(logits, size=image.shape[-2:], mode="bilinear", align_corners=True)


def _resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear; where it shrinks every pixel counts, as in the image library that fed the public network."""
    if x.shape[-2:] == size:
        return x
    shrinks = x.shape[-2] > size[0] or x.shape[-1] > size[1]
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False, antialias=shrinks)


class FaceParser(BiSeNet):
    """`BiSeNet` on pictures in [-1, 1] of any size: resized, normalised as ImageNet's, parsed, logits resized back.

    Its state dict is `BiSeNet`'s.

    Args:
        n_classes: Number of classes C.
        width: Channels of the trunk's first stage.
        working_size: Side in px at which it looks; None takes pictures as they come. The public weights want 512.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, n_classes: int = 19, width: int = 64, working_size: int | None = 512) -> None:
        super().__init__(n_classes, width)
        self.working_size = working_size
        mean = torch.tensor(MEAN)[:, None, None]
        std = torch.tensor(STD)[:, None, None]
        self.register_buffer("shift", 2 * mean - 1, persistent=False)  # [-1, 1] instead of [0, 1]
        self.register_buffer("scale", 2 * std, persistent=False)

    def forward(self, image: Tensor, aux: bool = False) -> Tensor | tuple[Tensor, ...]:
        """Logits `(B, C, H, W)` of `(B, 3, H, W)` RGB in [-1, 1]; with `aux` those of all three heads."""
        height, width = image.shape[-2:]
        size = (self.working_size or height, self.working_size or width)
        logits = super().forward((_resize(image, size) - self.shift) / self.scale, aux)
        if isinstance(logits, Tensor):
            return _resize(logits, (height, width))
        return tuple(_resize(head, (height, width)) for head in logits)
