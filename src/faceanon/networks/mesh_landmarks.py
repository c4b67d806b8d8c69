"""The 468 points of the face mesh as a bundle's landmark network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from faceanon.networks.boxes import cut_out
from faceanon.networks.face_mesh import INPUT_SIZE, FaceMeshNet

# The place of a face in FFHQ's frame: left, top, right, bottom in sides of the picture; that of `landmarks.mesh`.
BOX = (28 / 256, 44 / 256, 228 / 256, 244 / 256)


class MeshLandmarks(FaceMeshNet):
    """Points of aligned faces, with a gradient that tells how to move them; the tensors are those of the face mesh.

    Args:
        box: What the network looks at: left, top, right and bottom in sides of the picture. It has to be square, since
            its width scales both axes.
    """

    def __init__(self, box: Sequence[float] = BOX) -> None:
        super().__init__()
        self.box = tuple(box)

    def forward(self, image: Tensor) -> Tensor:  # type: ignore[override]
        """`(B, 3, S, S)` in [-1, 1] -> `(B, 468, 2)` float32, x and y in [-1, 1] of the picture."""
        # bfloat16 would round the points to a pixel of the crop and more.
        with torch.autocast(image.device.type, enabled=False):
            crops = cut_out((image.float() + 1) / 2, self.box, INPUT_SIZE)
            points, _ = super().forward(crops)
        left, top, right, _ = self.box
        corner = image.new_tensor([left, top], dtype=torch.float32)
        found: Tensor = points[..., :2] * ((right - left) / INPUT_SIZE) + corner
        return found * 2 - 1
