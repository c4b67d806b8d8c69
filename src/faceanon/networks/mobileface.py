"""MobileFaceNet, a light recogniser, in the layout of a public checkpoint (Chen et al., arXiv:1804.07573, table 1)."""

from __future__ import annotations

from torch import Tensor, nn

# Expansion, channels, number of blocks and stride of the first one, as in the paper's table 1.
STAGES = ((2, 64, 5, 2), (4, 128, 1, 2), (2, 128, 6, 1), (4, 128, 1, 2), (2, 128, 2, 1))
INPUT_SIZE = (112, 96)


class MobileFaceConvUnit(nn.Module):
    """Convolution, batch norm and, unless linear, PReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        self.prelu = None if linear else nn.PReLU(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)`."""
        x = self.bn(self.conv(x))
        return x if self.prelu is None else self.prelu(x)


class MobileFaceBottleneck(nn.Module):
    """Inverted residual: widen, convolve each channel, narrow linearly; added to its input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        wide = inputs * expansion
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.PReLU(wide),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.PReLU(wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        """`(B, I, H, W)` -> `(B, O, H / stride, W / stride)`."""
        out: Tensor = self.conv(x)
        if self.residual:
            return x + out
        return out


class MobileFaceNet(nn.Module):
    """A recogniser of a million parameters for crops of 112 rows and 96 columns.

    Args:
        embedding: Length E of the embedding.
    """

    def __init__(self, embedding: int = 128) -> None:
        super().__init__()
        self.conv1 = MobileFaceConvUnit(3, 64, 3, 2, 1)
        self.dw_conv1 = MobileFaceConvUnit(64, 64, 3, 1, 1, groups=64)
        blocks = []
        width = 64
        for expansion, outputs, count, stride in STAGES:
            for number in range(count):
                blocks.append(MobileFaceBottleneck(width, outputs, stride if number == 0 else 1, expansion))
                width = outputs
        self.blocks = nn.Sequential(*blocks)
        self.conv2 = MobileFaceConvUnit(width, 512, 1)
        self.linear7 = MobileFaceConvUnit(512, 512, (INPUT_SIZE[0] // 16, INPUT_SIZE[1] // 16), groups=512, linear=True)
        self.linear1 = MobileFaceConvUnit(512, embedding, 1, linear=True)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, 112, 96)` RGB in [-1, 1] -> `(B, E)`, not normalised."""
        # Trained on (value - 127.5) / 128.
        x = self.dw_conv1(self.conv1(image * (127.5 / 128)))
        embedding: Tensor = self.linear1(self.linear7(self.conv2(self.blocks(x))))
        return embedding.flatten(1)
