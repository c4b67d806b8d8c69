"""Faces and their five points in photographs, by YuNet (Wu et al. 2023) in several views (`photo.views`).

The whole photo is searched upright, at its own size and smaller. In the three other turns it is searched at a small
size, and at its own where upright views saw something that they could not make a face of. Where a turn then shows a
face better than upright views do, the photo, or somebody in it, lies that way, and is searched so in all views.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.photo.agreement import (
    LYING,
    POINTS,
    SCORE,
    SIZE,
    STANDING,
    TURN,
    Bars,
    Rows,
    agreed,
    best,
    main_turn,
    overlaps,
    sides,
    without_parts,
)
from faceanon.photo.detect import Detection
from faceanon.photo.views import ALONE, TURNS, scaled, scales, tiles, turned, turned_back
from faceanon.weights.shipped import open_shipped, usual_threads

STRIDES = (8, 16, 32)
DIVISOR = 32  # the network takes sides that are multiples of this
SMALLEST = 8.0  # px; below it the network tells faces from other things no better than chance
# In a view a face has at most this many pixels. Of larger ones the network takes eyes, mouths and cheeks for faces; the
# next smaller view shows them whole.
LARGEST = 360.0
# What a view shows larger than this, the next smaller view has to show too, with the score that follows: of smooth hair
# and cheeks the network takes some for faces of 300 px and more, and not when they are half as large.
LARGE = 180.0
CONFIRMED = 0.6
# In the views at a quarter and less a face has to have this many pixels. Smaller ones are left to the larger views.
LEAST_IN_SMALL_VIEWS = 12.0
SMALL_VIEW = 0.25
# The boxes of tiny faces are uncertain by a quarter of their side: what may have the wanted size is kept.
UNCERTAIN = 0.75
# Longer side in pixels of the view in which a photo is looked at in other turns first.
GLANCE = 512
# A face seen in another turn has to score so much higher than upright: faces that stand are seen in other turns too.
BETTER = 0.05
# Intersection over union with a face that was found, from which on a weak box is explained by it.
EXPLAINED = 0.2


@dataclass(frozen=True)
class YunetConfig:
    """What YuNet looks for.

    A box is a face if one view alone is sure of it, or if one view finds it probable and a second one sees it too.

    Args:
        min_face: Side of the smallest face in pixels of the photo, at least 8.
        bars: What a face has to score that lies as the photo does.
        overlap: Two boxes whose intersection over union is larger are one face.

    Raises:
        UserError: If `min_face` is below 8 pixels.
    """

    min_face: float = 12.0
    bars: Bars = STANDING
    overlap: float = 0.3

    def __post_init__(self) -> None:
        if not SMALLEST <= self.min_face < math.inf:
            raise UserError(f"the smallest face to look for must have {SMALLEST:g} px or more, not {self.min_face}")


@dataclass(frozen=True)
class View:
    """A photo in one of the sizes at which it is searched.

    Args:
        number: Of the size, the largest first.
        scale: Size over the photo's.
        pixels: RGB `(H, W, 3)` uint8, upright.
    """

    number: int
    scale: float
    pixels: NDArray[np.uint8]


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
        config = self.config
        height, width = image.shape[:2]
        wanted = scales(width, height, config.min_face)
        # Once for all turns: to shrink a large photo takes as long as to search a small view of it.
        views = [View(number, scale, scaled(image, scale)) for number, scale in enumerate(wanted)]
        upright = self._confirmed(self._seen(image, views, turn=0), views)
        rows = np.concatenate([upright, *self._lying(image, views, upright)])
        main = main_turn(rows, config.overlap)
        if main != 0:
            rows = _judged_as_lying(rows, main, views)
        bars = dict.fromkeys((0, *TURNS), LYING) | {main: config.bars}
        faces = []
        for row in without_parts(agreed(rows, config.overlap, bars)):
            x1, y1, x2, y2, score = row[:5].tolist()
            face = Detection((x1, y1, x2, y2), score, row[POINTS].reshape(5, 2))
            if face.size >= UNCERTAIN * config.min_face and score >= config.bars.likely:
                faces.append(face)
        return sorted(faces, key=lambda face: -face.size)

    def _lying(self, image: NDArray[np.uint8], views: Sequence[View], upright: Rows) -> Iterator[Rows]:
        """What those turns show in which somebody may lie, given what upright views show."""
        longer = max(image.shape[:2])
        doubts = _doubts(upright, agreed(upright, self.config.overlap, {0: self.config.bars}), views)
        small = min(views, key=lambda view: abs(view.scale * longer - GLANCE)).number
        # Mostly nobody lies, and a glance is all that the other turns cost.
        glances = {turn: self._seen(image, views, turn, {**doubts, small: None}) for turn in TURNS}
        for turn, seen in glances.items():
            others = [rows for other, rows in glances.items() if other != turn]
            if _lies(seen, upright, np.concatenate(others)):
                yield self._confirmed(self._seen(image, views, turn), views)

    def view(self, image: NDArray[np.uint8], scale: float, least: float) -> Rows:
        """What the network sees in one upright view, of any size of face.

        Args:
            image: RGB `(H, W, 3)` uint8.
            scale: Size of the view over the photo's.
            least: Lowest score to give.

        Returns:
            `(N, 15)`: x1, y1, x2, y2 in pixels of the photo, score, then x, y of the five points.
        """
        return np.concatenate(list(self._parts(image, scaled(image, scale), least)))

    def _seen(
        self, image: NDArray[np.uint8], views: Sequence[View], turn: int, only: Mapping[int, Rows | None] | None = None
    ) -> Rows:
        """What the views of one turn show, as `agreement` has it.

        Args:
            image: RGB `(H, W, 3)` uint8.
            views: Of the photo.
            turn: Quarters of a turn.
            only: Numbers of the views to take, each with the places `(N, 2)` around which to look, or None for
                everywhere; all views when None.
        """
        found = []
        for view in views:
            if only is not None and view.number not in only:
                continue
            places = None if only is None else only[view.number]
            parts = self._parts(image, view.pixels, self.config.bars.again, turn, places)
            rows = np.concatenate([np.empty((0, 15)), *parts])
            scale = view.scale
            shown = sides(rows) * scale
            fits = np.ones(len(rows), bool)
            # The smallest view that counts alone has to show faces of any size: there is no other one for them.
            if max(view.pixels.shape) >= 2 * ALONE:
                fits = shown <= LARGEST
            if not _counts(view):
                rows[:, SCORE] = rows[:, SCORE].clip(max=self.config.bars.again)
            if scale <= SMALL_VIEW:
                fits &= shown >= LEAST_IN_SMALL_VIEWS
            rows = rows[fits]
            found.append(np.column_stack([rows, np.full(len(rows), view.number), np.full(len(rows), turn)]))
        return np.concatenate(found)

    def _confirmed(self, rows: Rows, views: Sequence[View]) -> Rows:
        """The rows that all views of one turn show, without large boxes that the next smaller view does not show."""
        kept = np.ones(len(rows), bool)
        for index, row in enumerate(rows):
            number = int(row[SIZE])
            smaller = views[number + 1 : number + 2]
            # A view that does not count alone confirms nothing.
            if sides(row[None])[0] * views[number].scale <= LARGE or not smaller or not _counts(smaller[0]):
                continue
            again = (rows[:, SIZE] == number + 1) & (overlaps(row, rows) > self.config.overlap)
            kept[index] = rows[again, SCORE].max(initial=0) >= CONFIRMED
        return rows[kept]

    def _parts(
        self,
        image: NDArray[np.uint8],
        shown: NDArray[np.uint8],
        least: float,
        turn: int = 0,
        places: Rows | None = None,
    ) -> Iterator[Rows]:
        """As `view`, of a view's pixels, tile by tile and turned; only tiles that own one of the places, if any."""
        height, width = image.shape[:2]
        # Each axis has its own factor: the sides of the view were rounded to whole pixels.
        factors = np.array([shown.shape[1] / width, shown.shape[0] / height])
        for tile in tiles(shown.shape[1], shown.shape[0]):
            if places is not None and not tile.owns(*(places * factors).T).any():
                continue
            part = shown[tile.top : tile.bottom, tile.left : tile.right]
            rows = self._faces_of(turned(part, turn), least)
            points = turned_back(
                rows[:, [0, 1, 2, 3, *range(5, 15)]].reshape(len(rows), 7, 2), turn, *part.shape[1::-1]
            )
            points += (tile.left, tile.top)
            corners = np.sort(points[:, :2], axis=1)
            owned = tile.owns(*corners.mean(1).T)
            points = points / factors
            corners = corners / factors
            rows = np.column_stack([corners.reshape(-1, 4), rows[:, SCORE], points[:, 2:].reshape(-1, 10)])
            yield rows[owned]

    def _faces_of(self, picture: NDArray[np.uint8], least: float) -> Rows:
        """What the network sees in a picture `(H, W, 3)`, `(N, 15)` in its pixels."""
        height, width = picture.shape[:2]
        # The padding is at the right and below, so the places that the network gives need no shift.
        padded = np.zeros((1, 3, _padded(height), _padded(width)), np.float32)
        # The network takes BGR in [0, 255].
        padded[0, :, :height, :width] = picture[..., ::-1].transpose(2, 0, 1)
        outputs = dict(zip(self._outputs, self._session.run(None, {"input": padded}), strict=True))
        parts = []
        for stride in STRIDES:
            parts.append(_decoded(outputs, stride, padded.shape[3], least))
        candidates = np.concatenate(parts)
        return candidates[best(candidates[:, :4], candidates[:, SCORE], self.config.overlap)]


def _counts(view: View) -> bool:
    """Whether a view counts alone; smaller ones are second opinions."""
    return max(view.pixels.shape) >= ALONE or view.scale >= 1


def _doubts(rows: Rows, faces: Rows, views: Sequence[View]) -> dict[int, Rows]:
    """By number of the view, the middles `(N, 2)` of boxes that are no face and lie on none."""
    doubts: dict[int, list[NDArray[np.float64]]] = {}
    for row in rows:
        number = int(row[SIZE])
        # An enlarged view would cost most; what it shows, the photo itself shows too.
        if views[number].scale > 1 or (overlaps(row, faces) > EXPLAINED).any():
            continue
        doubts.setdefault(number, []).append((row[:2] + row[2:4]) / 2)
    return {number: np.stack(middles) for number, middles in doubts.items()}


def _lies(turned_rows: Rows, upright: Rows, otherwise: Rows) -> bool:
    """Whether a turn shows a face that is probable, better than any upright one there, and than any other turn's."""
    for row in turned_rows:
        there = upright[overlaps(row, upright) > EXPLAINED, SCORE].max(initial=0)
        # Whoever lies on a side is seen upside down in the turn that is opposite, too.
        elsewhere = otherwise[overlaps(row, otherwise) > EXPLAINED, SCORE].max(initial=0)
        if row[SCORE] >= max(LYING.likely, there + BETTER, elsewhere):
            return True
    return False


def _judged_as_lying(rows: Rows, main: int, views: Sequence[View]) -> Rows:
    """The rows of a photo that lies, without those of its own turn if nobody in it lies that way.

    Other turns are searched only if somebody lies so; the photo's own turn has been searched already.

    Args:
        rows: Of all turns.
        main: How the photo lies, in quarters of a turn, not 0.
        views: Of the photo.
    """
    own = rows[:, TURN] == 0
    others: Rows = rows[~own]
    # Of other turns, too, an enlarged view is not asked first.
    enlarged = [view.number for view in views if view.scale > 1]
    glance = own & ~np.isin(rows[:, SIZE], enlarged)
    if _lies(rows[glance], rows[rows[:, TURN] == main], others):
        return rows
    return others


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
