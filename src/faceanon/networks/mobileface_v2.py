"""MobileFace's second identification network, a recogniser in the manner of MobileNetV2 (published for MXNet)."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

EPS = 1e-3  # MXNet's default, which the published graph leaves as it is
BLOCKS = 3  # of a stage: one of stride 2, then residual ones


class Inverted(nn.Module):
    """Widen, convolve each channel, narrow linearly; a residual where the stride is 1."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.residual = stride == 1
        self.expand = nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide, EPS), nn.ReLU6())
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide, EPS), nn.ReLU6()
        )
        self.project = nn.Sequential(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs, EPS))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, I, H, W)` -> `(B, O, H / stride, W / stride)`, rounded up."""
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        if self.residual:
            return x + out
        return out


class MobileFaceV2(nn.Module):
    """A recogniser for ArcFace's crop of 112 px.

    Args:
        embedding: Length E of the embedding.
        widths: Channels of the stem, then of each stage; a stage is one block of stride 2 and two residual ones.
        expansion: Inner width of a block over its input's.
    """

    def __init__(
        self, embedding: int = 256, widths: tuple[int, ...] = (32, 32, 32, 64, 128), expansion: int = 3
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 2, 1), nn.BatchNorm2d(widths[0], EPS), nn.ReLU6())
        blocks: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            blocks += [Inverted(inputs, outputs, 2, expansion)]
            for _ in range(BLOCKS - 1):
                blocks.append(Inverted(outputs, outputs, 1, expansion))
        self.blocks = nn.Sequential(*blocks)
        # Each stride of 2 rounds up.
        side = -(-112 // 2 ** len(widths))
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(widths[-1] * side * side, embedding, bias=False), nn.BatchNorm1d(embedding, EPS)
        )

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, 112, 112)` RGB in [-1, 1] -> `(B, E)`, not normalised."""
        # Trained on (value - 127.5) / 128.
        maps = self.blocks(self.stem(image * (127.5 / 128)))
        embedding: Tensor = self.head(maps)
        return embedding
