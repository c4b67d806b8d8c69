"""FaceNet's Inception-ResNet-v1, in the layout of facenet-pytorch's public checkpoints (arXiv:1602.07261)."""

from __future__ import annotations

from torch import Tensor, cat, nn
from torch.nn import functional as F

EPS = 1e-3  # of every batch norm: the network came from TensorFlow
EMBEDDING = 512
INPUT_SIZE = 160
PUBLISHED_SCALE = 127.5 / 128  # [-1, 1] to (value - 127.5) / 128, on which the public files were trained


class FaceNetConvUnit(nn.Module):
    """Convolution without bias, batch norm, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, I, H, W)`."""
        return F.relu(self.bn(self.conv(x)))


def _branch(inputs: int, *units: tuple[int, int | tuple[int, int], int, int | tuple[int, int]]) -> nn.Sequential:
    """Units in a row, each given as (outputs, kernel, stride, padding)."""
    layers = []
    for outputs, kernel, stride, padding in units:
        layers.append(FaceNetConvUnit(inputs, outputs, kernel, stride, padding))
        inputs = outputs
    return nn.Sequential(*layers)


class FaceNetBlock(nn.Module):
    """Residual block: its branches side by side, narrowed by a 1 x 1 convolution with bias, scaled and added.

    Args:
        channels: Channels in and out.
        branches: The branches, named `branch0`, `branch1`, ... in the checkpoint.
        inner: Channels of all branches together.
        scale: Factor of the residual.
        activated: Whether a ReLU follows the sum.
    """

    def __init__(
        self, channels: int, branches: tuple[nn.Module, ...], inner: int, scale: float, activated: bool = True
    ) -> None:
        super().__init__()
        self.names = _register(self, branches)
        self.conv2d = nn.Conv2d(inner, channels, 1)
        self.scale = scale
        self.activated = activated

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, C, H, W)` to its own shape."""
        branches = []
        for name in self.names:
            branches.append(getattr(self, name)(x))
        residual = self.conv2d(cat(branches, 1))
        out: Tensor = residual * self.scale + x
        if self.activated:
            return F.relu(out)
        return out


class Reduction(nn.Module):
    """Halve the map: convolving branches and a max pool side by side, joined along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.names = _register(self, branches)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, I, H, W)` -> `(B, O, (H - 1) // 2, (W - 1) // 2)`."""
        branches = []
        for name in self.names:
            branches.append(getattr(self, name)(x))
        return cat([*branches, F.max_pool2d(x, 3, 2)], 1)


def _register(owner: nn.Module, branches: tuple[nn.Module, ...]) -> tuple[str, ...]:
    for number, branch in enumerate(branches):
        # Under the names of the public checkpoint.
        owner.add_module(f"branch{number}", branch)
    return tuple(f"branch{number}" for number in range(len(branches)))


def block35(scale: float) -> FaceNetBlock:
    """Block at 1/8 of the side, 256 channels."""
    point = (32, 1, 1, 0)
    full = (32, 3, 1, 1)
    branches = (FaceNetConvUnit(256, 32, 1), _branch(256, point, full), _branch(256, point, full, full))
    return FaceNetBlock(256, branches, 96, scale)


def block17(scale: float) -> FaceNetBlock:
    """Block at 1/16 of the side, 896 channels, with a 7 x 7 convolution split in two."""
    split = _branch(896, (128, 1, 1, 0), (128, (1, 7), 1, (0, 3)), (128, (7, 1), 1, (3, 0)))
    return FaceNetBlock(896, (FaceNetConvUnit(896, 128, 1), split), 256, scale)


def block8(scale: float, activated: bool = True) -> FaceNetBlock:
    """Block at 1/32 of the side, 1792 channels, with a 3 x 3 convolution split in two."""
    split = _branch(1792, (192, 1, 1, 0), (192, (1, 3), 1, (0, 1)), (192, (3, 1), 1, (1, 0)))
    return FaceNetBlock(1792, (FaceNetConvUnit(1792, 192, 1), split), 384, scale, activated)


class InceptionResnetV1(nn.Module):
    """Face recogniser: a picture to a point on the unit sphere.

    The public files are bare state dicts with the classifier they were trained with, `logits`, which is left out here:
    `20180402-114759-vggface2.pt` has 8631 classes, `20180408-102900-casia-webface.pt` 10575.

    Args:
        dropout: Probability before the last linear layer, in training.
        input_scale: Factor on the pictures; `PUBLISHED_SCALE` gives the public files exactly what they were trained on,
            1 leaves pictures as they are, 0.4 % too strong in contrast.
    """

    def __init__(self, dropout: float = 0.6, input_scale: float = 1.0) -> None:
        super().__init__()
        self.input_scale = input_scale
        self.conv2d_1a = FaceNetConvUnit(3, 32, 3, 2)
        self.conv2d_2a = FaceNetConvUnit(32, 32, 3)
        self.conv2d_2b = FaceNetConvUnit(32, 64, 3, 1, 1)
        self.conv2d_3b = FaceNetConvUnit(64, 80, 1)
        self.conv2d_4a = FaceNetConvUnit(80, 192, 3)
        self.conv2d_4b = FaceNetConvUnit(192, 256, 3, 2)
        self.repeat_1 = nn.Sequential(*(block35(0.17) for _ in range(5)))
        self.mixed_6a = Reduction(
            FaceNetConvUnit(256, 384, 3, 2), _branch(256, (192, 1, 1, 0), (192, 3, 1, 1), (256, 3, 2, 0))
        )
        self.repeat_2 = nn.Sequential(*(block17(0.10) for _ in range(10)))
        point = (256, 1, 1, 0)
        self.mixed_7a = Reduction(
            _branch(896, point, (384, 3, 2, 0)),
            _branch(896, point, (256, 3, 2, 0)),
            _branch(896, point, (256, 3, 1, 1), (256, 3, 2, 0)),
        )
        self.repeat_3 = nn.Sequential(*(block8(0.20) for _ in range(5)))
        # The last block is neither scaled down nor activated.
        self.block8 = block8(1.0, activated=False)
        self.dropout = nn.Dropout(dropout)
        self.last_linear = nn.Linear(1792, EMBEDDING, bias=False)
        self.last_bn = nn.BatchNorm1d(EMBEDDING, EPS)

    def forward(self, image: Tensor) -> Tensor:
        """L2-normalised embedding `(B, 512)` of aligned faces.

        Args:
            image: `(B, 3, 160, 160)` float RGB in [-1, 1].

        Raises:
            ValueError: `image` has another shape.
        """
        if image.shape[1:] != (3, INPUT_SIZE, INPUT_SIZE):
            raise ValueError(f"image is {tuple(image.shape)}; this recogniser takes (B, 3, {INPUT_SIZE}, {INPUT_SIZE})")
        x = self.conv2d_2b(self.conv2d_2a(self.conv2d_1a(image * self.input_scale)))
        x = self.conv2d_4b(self.conv2d_4a(self.conv2d_3b(F.max_pool2d(x, 3, 2))))
        # (B, 256, 17, 17) becomes (B, 896, 8, 8), then (B, 1792, 3, 3).
        x = self.repeat_2(self.mixed_6a(self.repeat_1(x)))
        x = self.block8(self.repeat_3(self.mixed_7a(x)))
        embedding: Tensor = self.last_bn(self.last_linear(self.dropout(x.mean((2, 3)))))
        return F.normalize(embedding)
