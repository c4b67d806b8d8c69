"""The views in which a photo is searched for faces: how large, which part of it, and lying on which side.

A network that finds faces sees them best at some tens of pixels and upright. So a photo is searched enlarged, as it is,
halved and halved again; a view that is larger than `TILE` in overlapping parts, so that time and memory for one call of
the network are bounded whatever the photo's size; and turned, where somebody may lie on a side or stand on the head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

ENLARGED = 1.5  # the largest view of a small photo, for its smallest faces
ALONE = 256  # px; longer side below which a view is a second opinion alone: small views take dogs for faces
LEAST_SIDE = 128  # px; halving ends where the longer side would fall below it
# No view is searched that shows the smallest wanted face larger than this: a smaller view finds it as well.
ENOUGH = 36.0
TILE = 2048  # px; the longest side of what the network is given at once
# Neighbouring parts share so many pixels. A face that this strip does not hold whole, with what surrounds it, has 40
# pixels and more, and in the next smaller view it has 20, which is enough.
SHARED = 128
TURNS = (1, 2, 3)  # quarters of a turn, against the clock, beside upright


@dataclass(frozen=True)
class Tile:
    """A part of a view, in pixels of the view.

    Args:
        left: Of the part.
        top: Of the part.
        right: Of the part.
        bottom: Of the part.
        core: (left, top, right, bottom) of what no other part is responsible for; endless at the view's own edges.
    """

    left: int
    top: int
    right: int
    bottom: int
    core: tuple[float, float, float, float]

    def owns(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether this part is responsible for faces with their middles at `(N,)` x and y."""
        left, top, right, bottom = self.core
        return (left <= x) & (x < right) & (top <= y) & (y < bottom)


def scales(width: int, height: int, min_face: float) -> list[float]:
    """Sizes of the views of a photo of so many pixels, as multiples of the photo's, the largest first.

    Args:
        width: Of the photo.
        height: Of the photo.
        min_face: Side of the smallest wanted face, in pixels of the photo.

    Examples:
        >>> from faceanon.photo.views import scales
        >>> scales(1000, 700, min_face=12)
        [1.5, 1.0, 0.5, 0.25]
        >>> scales(8000, 6000, min_face=12)  # what is larger is cut into tiles
        [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125]
        >>> scales(4000, 3000, min_face=100)
        [0.25, 0.125, 0.0625]
    """
    longer = max(width, height)
    found = [max(1.0, min(ENLARGED, TILE / longer)), 1.0]
    while found[-1] / 2 * longer >= LEAST_SIDE:
        found.append(found[-1] / 2)
    # The smallest view that counts alone is searched whatever is wanted: faces of any size may fill it.
    alone = min(scale for scale in found if scale >= 1 or scale * longer >= ALONE)
    needed = {alone}
    for scale in found:
        if scale * min_face <= ENOUGH:
            needed.add(scale)
    return sorted(needed, reverse=True)


def scaled(photo: NDArray[np.uint8], scale: float) -> NDArray[np.uint8]:
    """A photo `(H, W, 3)` uint8 so many times as large, at least one pixel a side."""
    height, width = photo.shape[:2]
    rows = max(1, round(height * scale))
    columns = max(1, round(width * scale))
    if (rows, columns) == (height, width):
        return photo
    # Averaging keeps small faces whole where the photo shrinks.
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(photo, (columns, rows), interpolation=how), np.uint8)


def tiles(width: int, height: int) -> Iterator[Tile]:
    """The parts of a view of so many pixels, row by row; one where the view is small enough.

    Examples:
        >>> from faceanon.photo.views import tiles
        >>> [(tile.left, tile.right) for tile in tiles(5000, 100)]
        [(0, 1752), (1624, 3376), (3248, 5000)]
    """
    for top, bottom, above, below in _spans(height):
        for left, right, before, behind in _spans(width):
            yield Tile(left, top, right, bottom, (before, above, behind, below))


def turned(part: NDArray[np.uint8], turn: int) -> NDArray[np.uint8]:
    """A picture `(H, W, 3)` turned by `turn` quarters against the clock."""
    return np.ascontiguousarray(np.rot90(part, turn))


def turned_back(points: NDArray[np.float64], turn: int, width: int, height: int) -> NDArray[np.float64]:
    """Where points of a turned picture lie in the picture as it was.

    Args:
        points: `(..., 2)` x, y in the picture that `turned` gave.
        turn: Quarters of a turn.
        width: Of the picture as it was.
        height: Of the picture as it was.

    Examples:
        >>> import numpy as np
        >>> from faceanon.photo.views import turned_back
        >>> # The lower left corner of a picture turned against the clock was its upper left one.
        >>> turned_back(np.array([0.0, 30.0]), 1, width=30, height=20).tolist()
        [0.0, 0.0]
    """
    x = points[..., 0]
    y = points[..., 1]
    if turn == 1:
        return np.stack([width - y, x], -1)
    if turn == 2:
        return np.stack([width - x, height - y], -1)
    if turn == 3:
        return np.stack([y, height - x], -1)
    return points


def _spans(length: int) -> Iterator[tuple[int, int, float, float]]:
    """Equal overlapping parts of a side: start, stop, and from where to where a part is responsible."""
    count = max(1, math.ceil((length - SHARED) / (TILE - SHARED)))
    size = math.ceil((length + (count - 1) * SHARED) / count)
    first = -math.inf
    for number in range(count):
        # Sizes are rounded up, so the last part would reach beyond the side.
        start = min(number * (size - SHARED), length - size)
        following = min((number + 1) * (size - SHARED), length - size)
        last = math.inf if number == count - 1 else following + SHARED / 2
        yield start, start + size, first, last
        first = last
