"""The network of MediaPipe's Face Mesh: 468 points of a face and whether it is one, in torch.

Kartynnik et al., "Real-time Facial Surface Geometry from Monocular Video on Mobile GPUs", CVPR Workshops 2019. The
tensors are those of the public file; in torch, a loss can ask where a drawn face has its eyes and its mouth.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

POINTS = 468
INPUT_SIZE = 192  # side of the picture that the network looks at, in pixels


class MeshBlock(nn.Module):
    """A depthwise and a pointwise convolution with a residual, then PReLU.

    Args:
        inputs: Channels of the input.
        outputs: Channels of the output; not fewer than `inputs`.
        stride: 1, or 2 to halve the resolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.added = outputs - inputs
        # With a stride of 2 the public network pads at the bottom and at the right alone, as `_padded` does.
        padding = 1 if stride == 1 else 0
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride, padding, groups=inputs, bias=False)
        self.pointwise = nn.Conv2d(inputs, outputs, 1)
        self.activation = nn.PReLU(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, inputs, h, w)` -> `(B, outputs, h / stride, w / stride)`."""
        kept = x
        seen = x
        if self.stride == 2:
            kept = F.max_pool2d(x, 2)
            seen = _padded(x)
        if self.added:
            # Where channels are added, the new ones have nothing to keep.
            kept = F.pad(kept, (0, 0, 0, 0, 0, self.added))
        out: Tensor = self.activation(kept + self.pointwise(self.depthwise(seen)))
        return out


class FaceMeshNet(nn.Module):
    """Points and confidence of face crops."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2)
        self.stem_activation = nn.PReLU(16)
        trunk: list[nn.Module] = [MeshBlock(16, 16), MeshBlock(16, 16)]
        for inputs, outputs in ((16, 32), (32, 64), (64, 128), (128, 128)):
            trunk += [MeshBlock(inputs, outputs, 2), MeshBlock(outputs, outputs), MeshBlock(outputs, outputs)]
        self.trunk = nn.Sequential(*trunk)
        self.points = nn.Sequential(
            MeshBlock(128, 128, 2),
            MeshBlock(128, 128),
            MeshBlock(128, 128),
            nn.Conv2d(128, 32, 1),
            nn.PReLU(32),
            MeshBlock(32, 32),
            # Without padding: the 3 x 3 places that are left become one.
            nn.Conv2d(32, 3 * POINTS, 3),
        )
        self.face = nn.Sequential(
            MeshBlock(128, 128, 2), nn.Conv2d(128, 32, 1), nn.PReLU(32), MeshBlock(32, 32), nn.Conv2d(32, 1, 3)
        )

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        """Find the points.

        Args:
            crops: RGB `(B, 3, 192, 192)` in [0, 1]; the face's box takes 1 / 1.4 of the side.

        Returns:
            Points `(B, 468, 3)`, x, y and depth in pixels of the crop, and the confidence `(B,)` in [0, 1].
        """
        x = self.trunk(self.stem_activation(self.stem(_padded(crops))))
        points: Tensor = self.points(x)
        confidence: Tensor = torch.sigmoid(self.face(x))
        return points.reshape(len(crops), POINTS, 3), confidence.reshape(len(crops))


def _padded(x: Tensor) -> Tensor:
    """One row and one column of zeros at the bottom and at the right, where a stride of 2 needs them."""
    return F.pad(x, (0, 1, 0, 1))
