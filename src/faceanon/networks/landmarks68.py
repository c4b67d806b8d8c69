"""MobileFaceNet as a regressor of 68 landmarks, in the layout of pytorch_face_landmark's checkpoint (arXiv:1804.07573).

The landmark terms of RiDDLE and iFADIT stand on it. The file, `mobilefacenet_model_best.pth.tar`, has the tensors
under `state_dict`. Same idea as `mobileface.MobileFaceNet`, other keys, and another head.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.mobileface import MobileFaceConvUnit

POINTS = 68
JAW = 17
INPUT_SIZE = 112


def _point(inputs: int, outputs: int, linear: bool = False) -> MobileFaceConvUnit:
    return MobileFaceConvUnit(inputs, outputs, 1, linear=linear)


def _depthwise(channels: int, stride: int = 1) -> MobileFaceConvUnit:
    return MobileFaceConvUnit(channels, channels, 3, stride, 1, groups=channels)


class Landmarks68Bottleneck(nn.Module):
    """Inverted residual: widen, convolve each channel, narrow linearly.

    Args:
        inputs: Channels in.
        outputs: Channels out.
        wide: Channels in between.
        stride: 1 adds the input to the output, 2 halves the map.
    """

    def __init__(self, inputs: int, outputs: int, wide: int, stride: int) -> None:
        super().__init__()
        self.conv = _point(inputs, wide)
        self.conv_dw = _depthwise(wide, stride)
        self.project = _point(wide, outputs, linear=True)
        self.residual = stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """`(B, I, H, W)` -> `(B, O, H / stride, W / stride)`."""
        out: Tensor = self.project(self.conv_dw(self.conv(x)))
        if self.residual:
            return x + out
        return out


class Landmarks68Stage(nn.Module):
    """Bottlenecks of stride 1 in a row."""

    def __init__(self, channels: int, wide: int, count: int) -> None:
        super().__init__()
        self.model = nn.Sequential(*(Landmarks68Bottleneck(channels, channels, wide, 1) for _ in range(count)))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, C, H, W)` to its own shape."""
        out: Tensor = self.model(x)
        return out


class Landmarks68Head(nn.Module):
    """Weigh every place of a `(B, 512, 7, 7)` map, then a linear layer and a batch norm: `(B, outputs)`."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv_6_dw = MobileFaceConvUnit(512, 512, 7, groups=512, linear=True)
        self.linear = nn.Linear(512, outputs, bias=False)
        self.bn = nn.BatchNorm1d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, 512, 7, 7)` features -> `(B, outputs)` numbers."""
        out: Tensor = self.bn(self.linear(self.conv_6_dw(x).flatten(1)))
        return out


class Landmarks68(nn.Module):
    """68 landmarks of a face that fills the picture, in iBUG's order: the first 17 are the jaw.

    RiDDLE's loss drops the jaw (`points[:, JAW:]`) and takes the mean square in pixels of a 112 px picture, which is
    56 squared times the mean square of ours.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = MobileFaceConvUnit(3, 64, 3, 2, 1)
        self.conv2_dw = _depthwise(64)
        self.conv_23 = Landmarks68Bottleneck(64, 64, 128, 2)
        self.conv_3 = Landmarks68Stage(64, 128, 4)
        self.conv_34 = Landmarks68Bottleneck(64, 128, 256, 2)
        self.conv_4 = Landmarks68Stage(128, 256, 6)
        self.conv_45 = Landmarks68Bottleneck(128, 128, 512, 2)
        self.conv_5 = Landmarks68Stage(128, 256, 2)
        self.conv_6_sep = _point(128, 512)
        self.output_layer = Landmarks68Head(2 * POINTS)

    def forward(self, image: Tensor) -> Tensor:
        """Find the landmarks.

        Args:
            image: `(B, 3, S, S)` RGB in [-1, 1], averaged down (or repeated) to 112 px. The public weights want a
                detector's square box enlarged by a fifth; the losses feed FFHQ's framing as it is.

        Returns:
            `(B, 68, 2)` (x, y) in [-1, 1]: -1 is the left or upper edge of the picture. Not clamped.
        """
        # The network was trained on [0, 1].
        x = (image + 1) / 2
        if x.shape[-2:] != (INPUT_SIZE, INPUT_SIZE):
            x = F.adaptive_avg_pool2d(x, INPUT_SIZE)
        x = self.conv_3(self.conv_23(self.conv2_dw(self.conv1(x))))
        x = self.conv_5(self.conv_45(self.conv_4(self.conv_34(x))))
        places: Tensor = self.output_layer(self.conv_6_sep(x))  # in [0, 1] of the side
        return places.reshape(-1, POINTS, 2) * 2 - 1
