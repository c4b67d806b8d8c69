"""The mesh of 468 points of a face, as MediaPipe's Face Mesh finds it (`networks.face_mesh`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.networks.boxes import cut_out
from faceanon.networks.face_mesh import INPUT_SIZE, POINTS, FaceMeshNet
from faceanon.weights.shipped import shipped_network

FILE = "mesh.safetensors"
# SHA-256 of the ONNX file that the tensors were taken from, without loss; prepared pictures are filed under it.
PUBLISHED = "f35eaec77e10f34de943e684166b624af5bf571fc6bec80235a16cc192789e69"

# What the network sees of a face in FFHQ's frame: left, top, right, bottom in sides of the picture. It was trained on
# 1.4 times a detector's box. Any square of 190 to 240 px around the face's middle at 256 px gives the same points
# within their noise, and a second look at the box of the first look's points gains nothing.
BOX = (28 / 256, 44 / 256, 228 / 256, 244 / 256)

# Points of the mesh around each eye (image left, image right), of the nose's tip and of the mouth's corners.
LEFT_EYE = (33, 133, 160, 159, 158, 144, 145, 153)
RIGHT_EYE = (362, 263, 385, 386, 387, 380, 374, 373)
NOSE = 1
LEFT_MOUTH = 61
RIGHT_MOUTH = 291


class FaceMesh:
    """The mesh network that ships.

    Args:
        folder: Where `mesh.safetensors` lies; the shipped one when None.
        batch: Most faces in one call of the network.

    Raises:
        UserError: If the file is missing or damaged.

    Examples:
        >>> import numpy as np
        >>> from faceanon.landmarks.mesh import FaceMesh
        >>> from faceanon.photo.party import photo_party
        >>> face = np.array(photo_party().crop((14, 14, 270, 270)))
        >>> points, confidence = FaceMesh().points(face[None])
        >>> points.shape, bool(confidence[0] > 0.9)
        ((1, 468, 2), True)
    """

    def __init__(self, folder: Path | None = None, batch: int = 32) -> None:
        self.batch = batch
        self.net = shipped_network(FaceMeshNet, FILE, folder)

    def points(self, faces: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Points of aligned faces.

        Args:
            faces: RGB `(B, S, S, 3)` uint8, in FFHQ's frame.

        Returns:
            Points `(B, 468, 2)` float32, x and y in pixels of the picture, where pixel i covers [i, i + 1); and the
            network's confidence `(B,)` float32 in [0, 1] that it looks at a face.

        Raises:
            ValueError: If the pictures are not square, not RGB or not uint8.
        """
        points, confidence = self.solid(faces)
        return np.ascontiguousarray(points[..., :2]), confidence

    def solid(self, faces: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """As `points`, with the depth of each point: `(B, 468, 3)`.

        Depth is in pixels of the picture too and grows away from the viewer; 0 is about the middle of the head.
        """
        if faces.ndim != 4 or faces.shape[1] != faces.shape[2] or faces.shape[3] != 3 or faces.dtype != np.uint8:
            raise ValueError(f"aligned faces are (B, S, S, 3) uint8, not {faces.shape} {faces.dtype}")
        # Empty first parts: without any face the results are empty, and `concatenate` has something to join.
        places = [np.zeros((0, POINTS, 3), np.float32)]
        confidences = [np.zeros(0, np.float32)]
        for start in range(0, len(faces), self.batch):
            found, confidence = self.raw(box_crops(faces[start : start + self.batch]))
            places.append(found)
            confidences.append(confidence)
        side = faces.shape[1]
        # Depth is scaled like x and y; only these are shifted by the corner of the box.
        corner = np.array([*BOX[:2], 0], np.float32) * side
        scale = np.float32((BOX[2] - BOX[0]) * side / INPUT_SIZE)
        return np.concatenate(places) * scale + corner, np.concatenate(confidences)

    def raw(self, crops: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The network itself.

        Args:
            crops: RGB `(B, 192, 192, 3)` float32 in [0, 1]; the face's box takes 1 / 1.4 of the side.

        Returns:
            Points `(B, 468, 3)` in pixels of the crop, depth included, and the confidence `(B,)` in [0, 1].
        """
        pictures = torch.from_numpy(crops).permute(0, 3, 1, 2).to(self._device)
        with torch.no_grad(), self._exact():
            points, confidence = self.net(pictures)
        return points.cpu().numpy(), confidence.cpu().numpy()

    def seen(self, pictures: Tensor) -> Tensor:
        """Points of drawn pictures, with a gradient that tells how to move them.

        Args:
            pictures: `(B, 3, S, S)` nominally in [-1, 1], in FFHQ's frame.

        Returns:
            `(B, 468, 2)` float32, x and y in [-1, 1] of the picture.
        """
        if self._device != pictures.device:
            self.net.to(pictures.device)
        with self._exact():
            points, _ = self.net(cut_out((pictures.float() + 1) / 2, BOX, INPUT_SIZE))
        corner = pictures.new_tensor(BOX[:2], dtype=torch.float32)
        places: Tensor = points[..., :2] * ((BOX[2] - BOX[0]) / INPUT_SIZE) + corner
        return places * 2 - 1

    def _exact(self) -> torch.autocast:
        """No autocast: bfloat16 would round the points to a pixel of the crop and more."""
        return torch.autocast(self._device.type, enabled=False)

    @property
    def _device(self) -> torch.device:
        return self.net.stem.weight.device


def box_crops(faces: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What the network sees of aligned faces `(B, S, S, 3)` uint8: `(B, 192, 192, 3)` in [0, 1]."""
    crops = cut_out(torch.from_numpy(np.ascontiguousarray(faces)).permute(0, 3, 1, 2).float() / 255, BOX, INPUT_SIZE)
    return np.ascontiguousarray(crops.permute(0, 2, 3, 1).numpy())
