"""Compact networks that look at faces: judge, parser, landmark net and perceptual net of small bundles."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, cat, nn
from torch.nn import functional as F


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """3x3 convolution, batch norm, leaky ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1, inplace=True)
    )


class ConvRecogniser(nn.Module):
    """A plain convolutional recogniser, unlike IR-SE in every layer, so that it can judge what IR-SE has trained.

    Args:
        image_size: Side of the pictures, in pixels.
        widths: Channels after each stride-2 stage.
        embedding: Length E of the embedding.
    """

    def __init__(self, image_size: int = 64, widths: Sequence[int] = (32, 64, 96, 128), embedding: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in zip((3, *widths[:-1]), widths, strict=True):
            layers += [block(inputs, outputs, 2), block(outputs, outputs)]
        # Every stage halves the side. Convolutions round up, so only a multiple of 2^stages fits the head.
        side = image_size >> len(widths)
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(widths[-1] * side * side, embedding), nn.BatchNorm1d(embedding)
        )

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` in [-1, 1] -> `(B, E)`, not normalised."""
        embedding: Tensor = self.head(self.trunk(image))
        return embedding


class UNetParser(nn.Module):
    """A small U-Net face parser.

    Args:
        n_classes: Number of classes C.
        widths: Channels at each level, finest first.
    """

    def __init__(self, n_classes: int = 10, widths: Sequence[int] = (16, 32, 48, 64)) -> None:
        super().__init__()
        self.down = nn.ModuleList()
        for level, (inputs, outputs) in enumerate(zip((3, *widths[:-1]), widths, strict=True)):
            self.down.append(nn.Sequential(block(inputs, outputs, 1 if level == 0 else 2), block(outputs, outputs)))
        self.up = nn.ModuleList()
        # From the coarsest level up: (64, 48), (48, 32) and (32, 16) for the default widths.
        for coarse, fine in zip(widths[:0:-1], widths[-2::-1], strict=True):
            self.up.append(block(coarse + fine, fine))
        self.head = nn.Conv2d(widths[0], n_classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` in [-1, 1] -> logits `(B, C, S, S)`."""
        skips: list[Tensor] = []
        hidden = image
        for layer in self.down:
            hidden = layer(hidden)
            skips.append(hidden)
        # The last map is left out: the way up begins with it.
        for layer, skip in zip(self.up, skips[-2::-1], strict=True):
            hidden = F.interpolate(hidden, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            hidden = layer(cat([hidden, skip], 1))
        logits: Tensor = self.head(hidden)
        return logits


class LandmarkNet(nn.Module):
    """Regress landmarks with strided convolutions and one hidden layer.

    Args:
        image_size: Side of the pictures, in pixels.
        points: Number K of landmarks.
        widths: Channels after each stride-2 stage.
    """

    def __init__(self, image_size: int = 64, points: int = 16, widths: Sequence[int] = (16, 32, 64, 64)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in zip((3, *widths[:-1]), widths, strict=True):
            layers += [block(inputs, outputs, 2), block(outputs, outputs)]
        side = image_size >> len(widths)
        head = [nn.Flatten(), nn.Linear(widths[-1] * side * side, 128), nn.LeakyReLU(0.1), nn.Linear(128, 2 * points)]
        self.net = nn.Sequential(*layers, *head)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` in [-1, 1] -> `(B, K, 2)` (x, y) in [-1, 1]."""
        points: Tensor = self.net(image)
        return points.reshape(len(points), -1, 2)


class PerceptualNet(nn.Module):
    """A VGG-like trunk; trained to regress what a picture shows, used for the distance between its feature maps.

    Args:
        widths: Channels at each level; each level but the first halves the side.
    """

    def __init__(self, widths: Sequence[int] = (16, 32, 48, 64)) -> None:
        super().__init__()
        self.levels = nn.ModuleList()
        for level, (inputs, outputs) in enumerate(zip((3, *widths[:-1]), widths, strict=True)):
            self.levels.append(nn.Sequential(block(inputs, outputs, 1 if level == 0 else 2), block(outputs, outputs)))

    def forward(self, image: Tensor) -> list[Tensor]:
        """`(B, 3, S, S)` in [-1, 1] -> one map `(B, C, S / 2^i, S / 2^i)` per level i."""
        maps: list[Tensor] = []
        for level in self.levels:
            image = level(image)
            maps.append(image)
        return maps
