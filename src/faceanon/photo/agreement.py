"""What several views say of the faces of one photo, brought together: one row a face.

A row is x1, y1, x2, y2 in pixels of the photo, score, x and y of the five points, number of the view's size, and turn
of the view: `(N, 17)` float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faceanon.photo.views import TURNS

Rows = NDArray[np.float64]

SCORE = 4
POINTS = slice(5, 15)
SIZE = 15  # number of the view's size
TURN = 16
COLUMNS = 17
# A box that lies in a larger face's by so much of its area, and is smaller than this share of it, is an eye, a mouth or
# a patch of skin. A person in front of another one covers less of that one's face, or is about as large.
INSIDE = 0.8
PART_OF = 0.75
# Two faces that lie in different ways do not cover each other by so much of the less sure one's area.
ACROSS = 0.3
# An ear, a lock of hair, what is drawn on a hat: a box around a face, this much smaller, of which the network is not
# sure. A share of the face's width to its sides and of its height above and below it counts as around it. Of 776 faces
# in 48 photographs of groups none is lost by it.
AROUND = (0.45, 0.6, 0.15)
ORNAMENT = 0.3
CLEAR = 0.9


@dataclass(frozen=True)
class Bars:
    """What a box has to score, in [0, 1].

    Args:
        sure: Least score of a face that one view alone finds.
        likely: Least score, in the better view, of a face that two views of one turn find.
        again: Least score in the second view.
    """

    sure: float
    likely: float
    again: float


STANDING = Bars(sure=0.7, likely=0.45, again=0.3)  # for faces that lie as the photo does
# For faces that lie otherwise than the photo: they are rarer than things that look like one.
LYING = Bars(0.85, 0.75, 0.6)


def main_turn(rows: Rows, overlap: float) -> int:
    """How the photo lies, in quarters: the turn in which most of its faces are upright, 0 where none is better."""
    faces = agreed(rows, overlap, dict.fromkeys((0, *TURNS), LYING))
    weight = np.bincount(faces[:, TURN].astype(int), faces[:, SCORE], 1 + len(TURNS))
    return int(weight.argmax())


def agreed(rows: Rows, overlap: float, bars: Mapping[int, Bars]) -> Rows:
    """One row a face, the best view's.

    Args:
        rows: Of all views.
        overlap: Two boxes whose intersection over union is larger are one face.
        bars: What a box has to score, by the turn of its view.
    """
    # Stable, so that boxes of one score keep their order on every machine.
    rows = rows[np.argsort(-rows[:, SCORE], kind="stable")]
    left = np.ones(len(rows), bool)
    kept = []
    for index, row in enumerate(rows):
        if not left[index]:
            continue
        group = left & (overlaps(row, rows) > overlap)
        left &= ~group
        # Only a box of a view of another size counts as a second opinion; in another turn faces look like other things.
        others = group & (rows[:, SIZE] != row[SIZE]) & (rows[:, TURN] == row[TURN])
        seen_again = rows[others, SCORE].max(initial=0)
        bar = bars[int(row[TURN])]
        if row[SCORE] >= bar.sure or (row[SCORE] >= bar.likely and seen_again >= bar.again):
            kept.append(row)
    # Without faces the list is empty, and only the reshape gives it columns.
    return np.array(kept).reshape(-1, COLUMNS)


def without_parts(rows: Rows) -> Rows:
    """The rows without those that are a part of a larger face, in their order.

    Examples:
        >>> import numpy as np
        >>> from faceanon.photo.agreement import without_parts
        >>> face, eye, neighbour = np.zeros((3, 17))
        >>> face[:5] = 0, 0, 400, 500, 0.9
        >>> eye[:5] = 90, 120, 190, 220, 0.8
        >>> neighbour[:5] = 350, 300, 550, 560, 0.7
        >>> without_parts(np.stack([face, eye, neighbour]))[:, 4].tolist()
        [0.9, 0.7]
    """
    sizes = sides(rows)
    kept = np.ones(len(rows), bool)
    for index, row in enumerate(rows):
        # What scores better than the large box is not its part: the large one may be a group taken for a face.
        above = rows[:, SCORE] >= row[SCORE]
        covered = _common(row, rows) / sizes[index] ** 2
        part = (covered >= INSIDE) & (sizes[index] <= PART_OF * sizes)
        crossed = (covered >= ACROSS) & (rows[:, TURN] != row[TURN])
        ornament = _around(row, rows) & (sizes[index] <= ORNAMENT * sizes) & bool(row[SCORE] < CLEAR)
        kept[index] = not (above & (part | crossed | ornament)).any()
    return rows[kept]


def _around(row: NDArray[np.float64], rows: Rows) -> NDArray[np.bool_]:
    """Whether a box's middle lies in or around the heads of faces `(N, 4 or more)`."""
    x = (row[0] + row[2]) / 2
    y = (row[1] + row[3]) / 2
    across, above, below = AROUND
    width = rows[:, 2] - rows[:, 0]
    height = rows[:, 3] - rows[:, 1]
    beside = (rows[:, 0] - across * width <= x) & (x <= rows[:, 2] + across * width)
    near: NDArray[np.bool_] = beside & (rows[:, 1] - above * height <= y) & (y <= rows[:, 3] + below * height)
    return near


def best(boxes: Rows, scores: NDArray[np.float64], overlap: float) -> NDArray[np.intp]:
    """Numbers of the boxes `(N, 4)` that no better one covers by more than `overlap`, the best first.

    As torchvision's `nms` of the same numbers in float64, which a test compares.
    """
    # Stable, so that boxes of one score keep their order on every machine.
    order = np.argsort(-scores, kind="stable")
    kept = []
    while len(order):
        chosen = order[0]
        kept.append(chosen)
        rest = order[1:]
        order = rest[overlaps(boxes[chosen], boxes[rest]) <= overlap]
    return np.array(kept, np.intp)


def sides(rows: Rows) -> NDArray[np.float64]:
    """Sides of squares of the boxes' areas, `(N,)`, of boxes `(N, 4 or more)`."""
    lengths: Rows = rows[:, 2:4] - rows[:, :2]
    return np.sqrt(lengths[:, 0] * lengths[:, 1])


def overlaps(row: NDArray[np.float64], rows: Rows) -> NDArray[np.float64]:
    """Intersection over union `(N,)` of one box with boxes `(N, 4 or more)`."""
    common = _common(row, rows)
    union = sides(row[None]) ** 2 + sides(rows) ** 2 - common
    shares: NDArray[np.float64] = common / union
    return shares


def _common(row: NDArray[np.float64], rows: Rows) -> NDArray[np.float64]:
    """Area `(N,)` that one box shares with boxes `(N, 4 or more)`."""
    low = np.maximum(row[:2], rows[:, :2])
    high = np.minimum(row[2:4], rows[:, 2:4])
    areas: NDArray[np.float64] = np.clip(high - low, 0, None).prod(1)
    return areas
