"""Drawings of a face that a network draws along: lines of eyes, pupils, brows, lips, nose and outline, and its mask."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

# Points of the 468-point mesh, in the order in which a line runs through them; left and right are the picture's.
LEFT_EYE = (33, 7, 163, 144, 145, 153, 154, 155, 133, 173, 157, 158, 159, 160, 161, 246)
RIGHT_EYE = (362, 382, 381, 380, 374, 373, 390, 249, 263, 466, 388, 387, 386, 385, 384, 398)
LEFT_BROW = (70, 63, 105, 66, 107, 55, 65, 52, 53, 46)
RIGHT_BROW = (300, 293, 334, 296, 336, 285, 295, 282, 283, 276)
OUTER_LIPS = (61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291, 409, 270, 269, 267, 0, 37, 39, 40, 185)
INNER_LIPS = (78, 95, 88, 178, 87, 14, 317, 402, 318, 324, 308, 415, 310, 311, 312, 13, 82, 81, 80, 191)
NOSE_BRIDGE = (168, 6, 197, 195, 5, 4)
NOSE_BASE = (98, 97, 2, 326, 327)
NOSE_OUTLINE = (197, 209, 129, 64, 98, 97, 2, 326, 327, 294, 358, 429)  # below the bridge
OUTLINE = (
    *(10, 338, 297, 332, 284, 251, 389, 356, 454, 323, 361, 288, 397, 365, 379, 378, 400, 377),
    *(152, 148, 176, 149, 150, 136, 172, 58, 132, 93, 234, 127, 162, 21, 54, 103, 67, 109),
)
NOSE_TIP = 1
LEFT_CHEEK = 234
RIGHT_CHEEK = 454
MOUTH_CORNERS = (61, 291)
EXPRESSION = (*LEFT_EYE, *RIGHT_EYE, *INNER_LIPS)  # the points that tell where eyes and mouth are, and how far open

DRAWINGS = 7  # eyes, pupils, brows, outer lips, inner lips, nose, outline
FINE = 4  # pixels of a drawing along one cell of the latents
MARGIN = 1.06  # the mask is the outline, grown by so much around its middle
COVERED = 0.25  # a cell belongs to the mask where more than so much of it is covered
PUPIL = 0.07  # radius of a drawn pupil, in distances between the eyes
_SHIFT = 3  # cv2 takes points in eighths of a pixel


def pupils(image: NDArray[np.uint8], mesh: NDArray[np.float32]) -> NDArray[np.float32]:
    """Where the eyes look: the middle of what is dark within each eye.

    Args:
        image: RGB `(S, S, 3)` uint8.
        mesh: `(468, 2)` points in pixels of the picture.

    Returns:
        `(2, 2)` x and y in pixels, of the left eye and of the right one; the eye's middle where nothing in it is dark.
    """
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    middles = []
    for points in (LEFT_EYE, RIGHT_EYE):
        outline = mesh[list(points)]
        inside = np.zeros(grey.shape, np.uint8)
        cv2.fillPoly(inside, [np.round(outline).astype(np.int32)], 1)
        rows, columns = np.nonzero(inside)
        if len(rows) == 0:
            middles.append(outline.mean(0))
            continue
        values = grey[rows, columns]
        # White of the eye and skin take the brighter half; only what is darker than that counts.
        darkness = np.maximum(0.0, np.percentile(values, 55) - values)
        if darkness.sum() < 1:
            middles.append(outline.mean(0))
            continue
        middles.append(np.array([(darkness * columns).sum(), (darkness * rows).sum()]) / darkness.sum())
    return np.stack(middles).astype(np.float32)


def draw_face(mesh: NDArray[np.float32], looks: NDArray[np.float32], cells: int) -> NDArray[np.uint8]:
    """Line drawings of a face, and its filled outline.

    Args:
        mesh: `(468, 2)` points, as fractions of the picture's side.
        looks: `(2, 2)` pupils, as fractions of the picture's side.
        cells: Cells a side of the latents.

    Returns:
        `(8, 4 cells, 4 cells)` uint8: the seven drawings, then the outline filled and grown by `MARGIN`.
    """
    side = FINE * cells
    sheet = np.zeros((DRAWINGS + 1, side, side), np.uint8)

    def polyline(number: int, points: tuple[int, ...], closed: bool) -> None:
        line = (mesh[list(points)] * side * 2**_SHIFT).astype(np.int32)
        cv2.polylines(sheet[number], [line], closed, 255, 1, cv2.LINE_AA, _SHIFT)

    polyline(0, LEFT_EYE, True)
    polyline(0, RIGHT_EYE, True)
    between = np.linalg.norm(mesh[list(LEFT_EYE)].mean(0) - mesh[list(RIGHT_EYE)].mean(0))
    radius = int(PUPIL * between * side * 2**_SHIFT)
    for look in looks:
        middle = (look * side * 2**_SHIFT).astype(np.int32)
        cv2.circle(sheet[1], (int(middle[0]), int(middle[1])), radius, 255, -1, cv2.LINE_AA, _SHIFT)
    polyline(2, LEFT_BROW, True)
    polyline(2, RIGHT_BROW, True)
    polyline(3, OUTER_LIPS, True)
    polyline(4, INNER_LIPS, True)
    polyline(5, NOSE_BRIDGE, False)
    polyline(5, NOSE_BASE, False)
    polyline(6, OUTLINE, True)
    outline = mesh[list(OUTLINE)] * side
    middle = outline.mean(0)
    grown = (outline - middle) * MARGIN + middle
    cv2.fillPoly(sheet[DRAWINGS], [grown.astype(np.int32)], 255)
    return sheet
