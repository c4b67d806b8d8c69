"""What face detectors still make of a changed picture: found or not, where, and with which points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.errors import UserError
from faceanon.metrics.cache import CachedOriginals, network_digest
from faceanon.metrics.checks import check_image
from faceanon.metrics.interval import rate_interval
from faceanon.metrics.saved import to_bytes
from faceanon.photo.detect import Detection, Detector, shipped_detector
from faceanon.photo.mtcnn import MtcnnDetector

SMALLEST = 12  # pixels; faces fill the picture, so anything small is no face


def make_detector(name: str, side: int) -> Detector:
    """A detector by the name that protocols use, for faces that fill pictures of `side` pixels.

    Raises:
        UserError: An unknown name; `Evaluation(detectors=...)` takes any detector.
    """
    return shipped_detector(name, max(SMALLEST, side / 4))


class DlibDetector:
    """dlib's frontal face detector (one upsampling) with its 68 points; dlib and its file are the user's to bring.

    Args:
        predictor: Path of `shape_predictor_68_face_landmarks.dat`.

    Raises:
        UserError: The file or the package dlib is missing.
    """

    def __init__(self, predictor: str | Path) -> None:
        if not Path(predictor).is_file():
            raise UserError(f"no file {predictor}: give dlib's shape_predictor_68_face_landmarks.dat")
        try:
            # Here, since dlib is optional: all other detectors work without it.
            import dlib  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise UserError("the dlib detector needs the package dlib; run: pip install dlib") from error
        self._detector: Any = dlib.get_frontal_face_detector()
        self._predictor: Any = dlib.shape_predictor(str(predictor))

    def detect(self, image: NDArray[np.uint8]) -> list[Detection]:
        """Faces of an RGB photo `(H, W, 3)` uint8 with `(68, 2)` points, the largest first."""
        # Enlarged once, as papers do: dlib looks for faces of 80 px and more.
        boxes, scores, _ = self._detector.run(image, 1, 0.0)
        detections = []
        for box, score in zip(boxes, scores, strict=True):
            shape = self._predictor(image, box)
            coordinates = []
            for part in shape.parts():
                coordinates.append((part.x, part.y))
            points = np.array(coordinates, dtype=np.float64)
            edges = (float(box.left()), float(box.top()), float(box.right()), float(box.bottom()))
            detections.append(Detection(edges, float(score), points))
        return sorted(detections, key=lambda face: -face.size)


def largest_faces(detector: Detector, image: Tensor) -> list[Detection | None]:
    """The largest face of each of `(B, 3, S, S)` in [-1, 1], None where the detector finds nothing.

    Raises:
        ValueError: Wrong shape or range, no row, or NaN.
    """
    # Detectors take 8-bit pictures, and give the largest face first.
    pixels = to_bytes(check_image("image", image)).numpy()
    return [next(iter(detector.detect(picture)), None) for picture in pixels]


def detector_digest(detector: Detector) -> str | None:
    """All that what a detector finds depends on, as one line; None for one that does not show it."""
    # Of other detectors the networks are not known. None keeps what they find out of the cache.
    if not isinstance(detector, MtcnnDetector):
        return None
    networks = []
    for net in (detector.pnet, detector.rnet, detector.onet):
        networks.append(network_digest(net))
    return f"mtcnn {detector.config} {detector.device} {networks}"


def pack(faces: Sequence[Detection | None]) -> Tensor:
    """`(B, 5 + 2 K)` float64: box, score and K points of each face; NaN where there is none."""
    rows: list[list[float] | None] = []
    for face in faces:
        if face is None:
            # Its row is filled with NaN below, once it is known how many points a face has.
            rows.append(None)
        else:
            rows.append([*face.box, face.score, *face.points.flatten().tolist()])
    lengths = []
    for row in rows:
        if row is not None:
            lengths.append(len(row))
    width = max(lengths, default=5)
    return torch.tensor([row or [float("nan")] * width for row in rows], dtype=torch.float64)


def _packed(detector: Detector, image: Tensor) -> Tensor:
    return pack(largest_faces(detector, image))


def unpack(rows: Tensor) -> list[Detection | None]:
    """The faces that `pack` was given."""
    faces: list[Detection | None] = []
    for row in rows.tolist():
        left, top, right, bottom, score, *points = row
        face = Detection((left, top, right, bottom), score, np.array(points).reshape(-1, 2))
        # NaN is the only number that differs from itself.
        if left != left:
            faces.append(None)
        else:
            faces.append(face)
    return faces


class DetectorAgreement(Metric):
    """Detection rate, and how far boxes and points have moved where a face is found before and after.

    The box distance is the mean over the four edges of the absolute difference (iFADIT), the landmark distance the mean
    over both coordinates of all points of the absolute difference (RiDDLE); both in pixels.

    Examples:
        >>> import numpy as np
        >>> from faceanon.metrics.detection import DetectorAgreement
        >>> from faceanon.photo.detect import Detection
        >>> face = Detection((10.0, 10.0, 50.0, 50.0), 0.9, np.zeros((5, 2)))
        >>> metric = DetectorAgreement()
        >>> metric.update([face, None], [face, face])  # of two anonymized pictures one still shows a face
        >>> metric.compute()["detection_rate"].item()
        0.5
    """

    full_state_update = False
    found: list[Tensor]
    distance: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("found", "distance"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, faces: Sequence[Detection | None], reference: Sequence[Detection | None]) -> None:
        """Add what was found in changed pictures, and in their originals.

        Raises:
            ValueError: Different numbers of pictures, none at all, or faces with different numbers of points.
        """
        if len(faces) != len(reference) or not faces:
            raise ValueError(f"give as many faces as originals, at least one; got {len(faces)} and {len(reference)}")
        rows = []
        for face, other in zip(faces, reference, strict=True):
            rows.append(_distances(face, other))
        rates = []
        for face in faces:
            rates.append(float(face is not None))
        self.found.append(torch.tensor(rates, device=self.device))
        self.distance.append(torch.tensor(rows, dtype=torch.float64, device=self.device))

    def rows(self) -> Tensor:
        """1 where a face was found in the changed picture, else 0: `(N,)`."""
        return dim_zero_cat(self.found)

    def compute(self) -> dict[str, Tensor]:
        """`detection_rate`, `box_distance`, `landmark_distance`; distances are NaN where no face was found twice."""
        box, points = dim_zero_cat(self.distance).reshape(-1, 2).nanmean(0)
        return {"detection_rate": self.rows().mean(), "box_distance": box, "landmark_distance": points}


def _distances(face: Detection | None, other: Detection | None) -> tuple[float, float]:
    if face is None or other is None:
        return float("nan"), float("nan")
    if face.points.shape != other.points.shape:
        raise ValueError(f"faces must have the same points, got {face.points.shape} and {other.points.shape}")
    box = float(np.abs(np.subtract(face.box, other.box)).mean())
    return box, float(np.abs(face.points - other.points).mean())


class DetectionSuite:
    """Every detector's opinion of originals, anonymized and recovered pictures.

    Args:
        detectors: By name.
        draws: Bootstrap samples behind an interval.
        seed: Of the bootstrap.
    """

    def __init__(self, detectors: Mapping[str, Detector], draws: int = 1000, seed: int = 0) -> None:
        self.detectors = detectors
        self.draws = draws
        self.seed = seed
        self.metrics: dict[str, DetectorAgreement] = {}

    def update(
        self, original: Tensor, versions: Mapping[str, Tensor], originals: CachedOriginals | None = None
    ) -> None:
        """Add originals `(B, 3, S, S)` in [-1, 1], and versions of them by name (`anonymized`, `recovered`).

        `originals` knows what detectors find in the originals.
        """
        known = originals or CachedOriginals(original)
        for name, detector in self.detectors.items():
            reference = unpack(known.tensor(f"detector/{name}", partial(_packed, detector)))
            # Against themselves: of the originals only the detection rate counts. `compute` leaves their distances out.
            self._metric(f"{name}/original", original).update(reference, reference)
            for what, image in versions.items():
                self._metric(f"{name}/{what}", image).update(largest_faces(detector, image), reference)

    def _metric(self, name: str, image: Tensor) -> DetectorAgreement:
        make: Callable[[], DetectorAgreement] = DetectorAgreement
        if name not in self.metrics:
            self.metrics[name] = make().to(image.device)
        return self.metrics[name]

    def compute(self, people: Tensor) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        """Value and interval by metric name; `people` `(N,)` are the labels over the whole test.

        Figures of the anonymized pictures carry no suffix; those of originals and recovered pictures do.
        """
        figures = {}
        intervals = {}
        for key, metric in self.metrics.items():
            detector, what = key.rsplit("/", 1)
            suffix = "" if what == "anonymized" else f"/{what}"
            values = metric.compute()
            # `compute` gathers the rows of all processes, but `rows` alone does not.
            with metric.sync_context():
                rows = metric.rows().cpu().numpy()
            for name, value in values.items():
                # A distance is NaN, which differs from itself, where no face was found twice.
                if value == value and (what != "original" or name == "detection_rate"):
                    figures[f"{name}/{detector}{suffix}"] = float(value)
            rate = rate_interval(rows, people.cpu().numpy(), self.draws, self.seed)
            intervals[f"detection_rate/{detector}{suffix}"] = rate
        return figures, intervals
