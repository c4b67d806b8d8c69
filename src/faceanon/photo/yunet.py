"""Faces and their five points in photographs, by YuNet (Wu et al. 2023) at several scales."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.photo.detect import Detection
from faceanon.weights.shipped import open_shipped, usual_threads

STRIDES = (8, 16, 32)
DIVISOR = 32  # the network takes sides that are multiples of this
SMALLEST = 8.0  # px; below it the network tells faces from other things no better than chance

# The views of a photo, as multiples of its size: enlarged for small faces, then halved again and again, since the
# network misses faces that fill it. Halving ends where the longer side would fall below LEAST_SIDE pixels.
ENLARGED = 1.5
LEAST_SIDE = 256
# No view is searched that shows the smallest wanted face larger than this: a smaller view finds it as well.
ENOUGH = 36.0
# In the views at a quarter and less a face has to have this many pixels. Smaller ones are left to the larger views.
LEAST_IN_SMALL_VIEWS = 12.0
SMALL_VIEW = 0.25
# The boxes of tiny faces are uncertain by a quarter of their side: what may have the wanted size is kept.
UNCERTAIN = 0.75


@dataclass(frozen=True)
class YunetConfig:
    """What YuNet looks for.

    A box is a face if one view alone is sure of it, or if one view finds it probable and a second one sees it too.

    Args:
        min_face: Side of the smallest face in pixels of the photo, at least 8.
        max_side: Photos with a longer side are shrunk to it before the search, so that a photo of any size takes
            bounded time and memory; no enlarged view is larger either.
        sure: Least score of a face that one view alone finds, in [0, 1].
        likely: Least score, in the better view, of a face that two views find.
        again: Least score in the second view.
        overlap: Two boxes whose intersection over union is larger are one face.

    Raises:
        UserError: If `min_face` is below 8 pixels, or `max_side` below 32.
    """

    min_face: float = 12.0
    max_side: int = 2048
    sure: float = 0.7
    likely: float = 0.45
    again: float = 0.3
    overlap: float = 0.3

    def __post_init__(self) -> None:
        if not SMALLEST <= self.min_face < math.inf:
            raise UserError(f"the smallest face to look for must have {SMALLEST:g} px or more, not {self.min_face}")
        if self.max_side < DIVISOR:
            raise UserError(f"photos cannot be searched at {self.max_side} px; give {DIVISOR} px or more")


class YunetDetector:
    """YuNet from the file that ships, run by onnxruntime; any number of threads may share one.

    OpenCV's own FaceDetectorYN runs the same file, but only one thread may use it at a time.

    Args:
        config: What to look for.
        threads: Threads of one call; `weights.shipped.usual_threads` when None.
        folder: Where `yunet.onnx` lies; the shipped one when None.

    Raises:
        UserError: If the file is missing or damaged.

    Examples:
        >>> import numpy as np
        >>> from faceanon.photo.party import photo_party
        >>> from faceanon.photo.yunet import YunetDetector
        >>> faces = YunetDetector(threads=1).detect(np.asarray(photo_party()))
        >>> len(faces), faces[0].points.shape
        (3, (5, 2))
    """

    def __init__(
        self, config: YunetConfig | None = None, threads: int | None = None, folder: Path | None = None
    ) -> None:
        self.config = config or YunetConfig()
        self._session = open_shipped("yunet.onnx", threads or usual_threads(), folder)
        self._outputs = [output.name for output in self._session.get_outputs()]

    def detect(self, image: NDArray[np.uint8]) -> list[Detection]:
        """Faces of an RGB photo `(H, W, 3)` uint8, the largest first."""
        views = []
        for number, scale in enumerate(self.scales(image.shape[1], image.shape[0])):
            rows = self.view(image, scale, self.config.again)
            if scale <= SMALL_VIEW:
                rows = rows[_sizes(rows) * scale >= LEAST_IN_SMALL_VIEWS]
            views.append(np.column_stack([rows, np.full(len(rows), number)]))
        faces = []
        for row in self._agreed(np.concatenate(views)):
            x1, y1, x2, y2, score = row[:5].tolist()
            face = Detection((x1, y1, x2, y2), score, row[5:15].reshape(5, 2))
            if face.size >= UNCERTAIN * self.config.min_face:
                faces.append(face)
        return sorted(faces, key=lambda face: -face.size)

    def scales(self, width: int, height: int) -> list[float]:
        """Sizes of the views of a photo of so many pixels, as multiples of the photo's, the largest first."""
        longer = max(width, height)
        whole = min(1.0, self.config.max_side / longer)
        scales = [min(ENLARGED, self.config.max_side / longer), whole]
        while scales[-1] / 2 * longer >= LEAST_SIDE:
            scales.append(scales[-1] / 2)
        needed = []
        for scale in scales:
            if scale * self.config.min_face <= ENOUGH:
                needed.append(scale)
        # The same view twice would look like agreement; and one view there has to be.
        return sorted(set(needed or scales[-1:]), reverse=True)

    def view(self, image: NDArray[np.uint8], scale: float, least: float) -> NDArray[np.float64]:
        """What the network sees in one view.

        Args:
            image: RGB `(H, W, 3)` uint8.
            scale: Size of the view over the photo's.
            least: Lowest score to give.

        Returns:
            `(N, 15)`: x1, y1, x2, y2 in pixels of the photo, score, then x, y of the five points.
        """
        height, width = image.shape[:2]
        rows = max(1, round(height * scale))
        columns = max(1, round(width * scale))
        if (rows, columns) != (height, width):
            # Averaging keeps small faces whole where the photo shrinks.
            how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
            image = np.asarray(cv2.resize(image, (columns, rows), interpolation=how), np.uint8)
        # The padding is at the right and below, so the places that the network gives need no shift.
        padded = np.zeros((1, 3, _padded(rows), _padded(columns)), np.float32)
        # The network takes BGR in [0, 255].
        padded[0, :, :rows, :columns] = image[..., ::-1].transpose(2, 0, 1)
        outputs = dict(zip(self._outputs, self._session.run(None, {"input": padded}), strict=True))
        parts = []
        for stride in STRIDES:
            parts.append(_decoded(outputs, stride, padded.shape[3], least))
        candidates = np.concatenate(parts)
        # Each axis has its own factor: the sides of the view were rounded to whole pixels.
        across = columns / width
        down = rows / height
        candidates[:, [0, 2, *range(5, 15, 2)]] /= across
        candidates[:, [1, 3, *range(6, 15, 2)]] /= down
        return candidates[_best(candidates[:, :4], candidates[:, 4], self.config.overlap)]

    def _agreed(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows of `view` with the view's number behind them -> one row a face, the best view's."""
        # Stable, so that boxes of one score keep their order on every machine.
        rows = rows[np.argsort(-rows[:, 4], kind="stable")]
        left = np.ones(len(rows), bool)
        kept = []
        for index, row in enumerate(rows):
            if not left[index]:
                continue
            group = left & (_overlaps(row, rows) > self.config.overlap)
            left &= ~group
            # Column 15 is the number of the view: only a box of another view counts as a second opinion.
            others = rows[group & (rows[:, 15] != row[15]), 4]
            seen_again = others.max(initial=0) >= self.config.again
            if row[4] >= self.config.sure or (row[4] >= self.config.likely and seen_again):
                kept.append(row)
        # Without faces the list is empty, and only the reshape gives it 16 columns.
        return np.array(kept).reshape(-1, 16)


def _best(boxes: NDArray[np.float64], scores: NDArray[np.float64], overlap: float) -> NDArray[np.intp]:
    """Numbers of the boxes `(N, 4)` that no better one covers by more than `overlap`, the best first.

    As torchvision's `nms` of the same numbers in float64, which a test compares.
    """
    # Stable, so that boxes of one score keep their order on every machine.
    order = np.argsort(-scores, kind="stable")
    sides = boxes[:, 2:] - boxes[:, :2]
    areas = sides[:, 0] * sides[:, 1]
    kept = []
    while len(order):
        best = order[0]
        kept.append(best)
        rest = order[1:]
        low = np.maximum(boxes[best, :2], boxes[rest, :2])
        high = np.minimum(boxes[best, 2:], boxes[rest, 2:])
        shared = np.clip(high - low, 0, None)
        common = shared[:, 0] * shared[:, 1]
        order = rest[common / (areas[best] + areas[rest] - common) <= overlap]
    return np.array(kept, np.intp)


def _padded(side: int) -> int:
    return math.ceil(side / DIVISOR) * DIVISOR


def _decoded(outputs: dict[str, NDArray[np.float32]], stride: int, width: int, least: float) -> NDArray[np.float64]:
    """Boxes, scores and points `(N, 15)` of one of the network's three grids, in pixels of what it was given."""
    classes = np.clip(outputs[f"cls_{stride}"].ravel(), 0, 1)
    objects = np.clip(outputs[f"obj_{stride}"].ravel(), 0, 1)
    # The score of OpenCV's FaceDetectorYN, to which the thresholds belong.
    scores = np.sqrt(classes * objects)
    chosen = np.nonzero(scores >= least)[0]
    # The network's grid lies flat, row by row; it spans the padded width, a multiple of every stride.
    row, column = np.divmod(chosen, width // stride)
    cell = np.stack([column, row], 1).astype(np.float64)
    box = outputs[f"bbox_{stride}"].reshape(-1, 4)[chosen]
    # Middles are offsets from the cell's corner, in cells; sides are logarithms of sides in cells.
    middle = (cell + box[:, :2]) * stride
    half = np.exp(box[:, 2:]) * stride / 2
    points = (outputs[f"kps_{stride}"].reshape(-1, 5, 2)[chosen] + cell[:, None]) * stride
    return np.column_stack([middle - half, middle + half, scores[chosen], points.reshape(-1, 10)])


def _sizes(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sides of squares of the boxes' areas, `(N,)`, of boxes `(N, 4 or more)`."""
    sides: NDArray[np.float64] = rows[:, 2:4] - rows[:, :2]
    return np.sqrt(sides[:, 0] * sides[:, 1])


def _overlaps(row: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Intersection over union `(N,)` of one box with boxes `(N, 4 or more)`."""
    low = np.maximum(row[:2], rows[:, :2])
    high = np.minimum(row[2:4], rows[:, 2:4])
    common = np.clip(high - low, 0, None).prod(1)
    union = _sizes(row[None]) ** 2 + _sizes(rows) ** 2 - common
    overlaps: NDArray[np.float64] = common / union
    return overlaps
