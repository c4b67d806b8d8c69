"""Faces and their five points by SCRFD, from a file of an InsightFace pack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from faceanon.networks.scrfd import Scrfd
from faceanon.photo.detect import Detection


class ScrfdDetector:
    """SCRFD from a file of an InsightFace pack.

    Args:
        path: The ONNX file, e.g. det_10g.onnx.
        min_face: Smaller faces are left out, by their size in pixels of the photo.
        device: Where the network runs.
        threshold: Least score of a face.

    Raises:
        UserError: If the file or the package insightface is missing, or the file is no such detector.
    """

    def __init__(
        self,
        path: str | Path,
        min_face: float = 20,
        device: torch.device | str = "cpu",
        threshold: float = 0.5,
    ) -> None:
        self.net = Scrfd(path, threshold, device=device)
        self.min_face = min_face

    def detect(self, image: NDArray[np.uint8]) -> list[Detection]:
        """Faces of an RGB photo `(H, W, 3)` uint8, the largest first."""
        rows = zip(*self.net(image), strict=True)
        faces = []
        for box, score, points in rows:
            faces.append(Detection(tuple(box.tolist()), float(score), points))
        return sorted((face for face in faces if face.size >= self.min_face), key=lambda face: -face.size)
