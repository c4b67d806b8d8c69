"""Faces and their five points in a photo: what a detector gives, and the detectors that are installed by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError

if TYPE_CHECKING:
    import torch

CELL = 12  # side of the smallest face that a detector is asked for, in pixels: what one cell of MTCNN sees


@dataclass(frozen=True)
class Detection:
    """One face; pixel i covers [i, i + 1).

    Args:
        box: x1, y1, x2, y2 in pixels; may stick out of the photo.
        score: Probability of being a face.
        points: `(5, 2)` float64 x, y: of the face laid upright the eye at the left, the eye at the right, nose, mouth
            corner at the left, at the right.

    Examples:
        >>> import numpy as np
        >>> from faceanon.photo.detect import Detection
        >>> Detection(box=(10.0, 20.0, 50.0, 110.0), score=0.99, points=np.zeros((5, 2))).size
        60.0
    """

    box: tuple[float, float, float, float]
    score: float
    points: NDArray[np.float64]

    @property
    def size(self) -> float:
        """Side of a square of the box's area, in pixels."""
        return math.sqrt(max(0.0, self.box[2] - self.box[0]) * max(0.0, self.box[3] - self.box[1]))


class Detector(Protocol):
    """Anything that finds faces; give your own to `Pipeline`."""

    def detect(self, image: NDArray[np.uint8]) -> list[Detection]:
        """Faces of an RGB photo `(H, W, 3)` uint8, the largest first."""
        ...


def shipped_detector(
    name: str, min_face: float, device: torch.device | str = "cpu", threshold: float | None = None
) -> Detector:
    """A detector whose networks are installed with faceanon, by its name.

    Args:
        name: `mtcnn` or `yunet`.
        min_face: Side of the smallest face to find, in pixels of the photo.
        device: Where the networks run; YuNet's always runs on the CPU.
        threshold: Least score of a face; the detector's own rule when None.

    Raises:
        UserError: If there is no detector of this name, or it finds no faces as small.
    """
    # Here, since those modules take `Detection` from this one, and YuNet needs no torch.
    if name == "mtcnn":
        from faceanon.photo.mtcnn import MtcnnConfig, MtcnnDetector

        config = MtcnnConfig(min_face=min_face)
        if threshold is not None:
            first, second, _ = config.thresholds
            config = replace(config, thresholds=(min(first, threshold), min(second, threshold), threshold))
        return MtcnnDetector(config, device)
    if name == "yunet":
        from faceanon.photo.agreement import STANDING, Bars
        from faceanon.photo.yunet import YunetConfig, YunetDetector

        bars = STANDING
        if threshold is not None:
            bars = Bars(sure=threshold, likely=threshold, again=min(STANDING.again, threshold))
        return YunetDetector(YunetConfig(min_face, bars))
    raise UserError(f"no detector {name!r}: there are mtcnn and yunet")
