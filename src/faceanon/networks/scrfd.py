"""InsightFace's face detector SCRFD (det_10g.onnx, det_2.5g.onnx, det_500m.onnx), Guo et al., arXiv:2105.04714."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.networks.onnx_file import open_session


class Scrfd:
    """The detector of an InsightFace pack, decoded by insightface.

    Args:
        path: The ONNX file; a variant with five points.
        threshold: Least score of a face.
        sides: The photo is searched at these sides in px; the small one finds faces that fill the photo. Files of fixed
            input size keep their own.
        device: Where it runs; `cuda` needs an onnxruntime that can.

    Raises:
        UserError: If the file or the package insightface is missing, or the file is no such detector.
    """

    def __init__(
        self,
        path: str | Path,
        threshold: float = 0.5,
        sides: Sequence[int] = (128, 640),
        device: torch.device | str = "cuda",
    ) -> None:
        examples = "det_10g.onnx of buffalo_l or det_500m.onnx of buffalo_s"
        path, session = open_session(path, "detector", examples, device)
        count = len(session.get_outputs())
        # Scores, boxes and points at three or five strides.
        if count not in (9, 15):
            raise UserError(
                f"{path} is no SCRFD detector with five points: it has {count} outputs instead of 9; "
                "choose det_10g.onnx or det_500m.onnx"
            )
        # After `open_session`, which names the package to install where it is missing.
        from insightface.model_zoo.scrfd import SCRFD

        self.net = SCRFD(str(path), session)
        # insightface's numbers of devices: -1 is the CPU.
        cpu = 0
        if session.get_providers() == ["CPUExecutionProvider"]:
            cpu = -1
        self.net.prepare(cpu, det_thresh=threshold, input_size=[(side, side) for side in sides])

    def __call__(
        self, image: NDArray[np.uint8]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Search an RGB photo `(H, W, 3)` uint8.

        Returns:
            Boxes `(N, 4)` x1, y1, x2, y2 in px, scores `(N,)` and points `(N, 5, 2)` x, y: eye at the photo's left, eye
            at its right, nose, mouth corner left, right. Best score first.
        """
        boxes, points = self.net.detect(np.ascontiguousarray(image[..., ::-1]))  # it takes BGR
        rows = np.asarray(boxes, np.float64).reshape(-1, 5)
        return rows[:, :4], rows[:, 4], np.asarray(points, np.float64).reshape(-1, 5, 2)
