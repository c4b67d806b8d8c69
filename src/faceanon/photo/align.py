"""FFHQ-style alignment: five points -> a turned square. `photo.crop_paste` cuts it out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.manifest import CropGeometry

Box = tuple[int, int, int, int]
MARGIN = 4  # pixels around the square: bicubic filters reach two, and a face smaller than the model's reaches more


def geometry_from_points(points: NDArray[np.floating]) -> CropGeometry:
    """The square of FFHQ (Karras et al. 2019): half its side is 2 eye distances or 1.8 eye-to-mouth distances.

    Args:
        points: `(5, 2)` x, y as in `Detection.points`.

    Examples:
        >>> import numpy as np
        >>> from faceanon.photo.align import geometry_from_points
        >>> points = np.array([[30, 40], [70, 40], [50, 60], [35, 80], [65, 80]], dtype=float)
        >>> square = geometry_from_points(points)
        >>> square.side, square.axis_y  # four times the distance of the eyes, upright
        (160.0, 0.0)
    """
    left_eye, right_eye, _, left_mouth, right_mouth = np.asarray(points, dtype=np.float64)
    eyes = (left_eye + right_eye) / 2
    mouth = (left_mouth + right_mouth) / 2
    across = right_eye - left_eye
    down = mouth - eyes
    # Both say which way is right; the mean resists a bad point.
    direction = across + np.array([down[1], -down[0]])
    half = max(2.0 * math.hypot(*across), 1.8 * math.hypot(*down))
    # Points that coincide have no direction; the guard keeps the division finite.
    axis = direction / max(math.hypot(*direction), 1e-9) * half
    # FFHQ's square lies a tenth of the way from the eyes to the mouth below the eyes.
    center = eyes + 0.1 * down
    return CropGeometry(float(center[0]), float(center[1]), float(axis[0]), float(axis[1]))


def reframed(geometry: CropGeometry, scale: float, right: float, down: float) -> CropGeometry:
    """FFHQ's square, moved to where a bundle's faces were framed when it was trained.

    Args:
        geometry: The square of `geometry_from_points`.
        scale: Side of the wanted square over this one's.
        right: How far the wanted middle lies towards the face's right edge, in sides of this square.
        down: How far towards the chin, likewise.

    Examples:
        >>> from faceanon.manifest import CropGeometry
        >>> from faceanon.photo.align import reframed
        >>> square = CropGeometry(100.0, 80.0, 20.0, 0.0)
        >>> reframed(square, scale=1.5, right=0.0, down=0.25)  # a quarter of its side of 40 px towards the chin
        CropGeometry(center_x=100.0, center_y=90.0, axis_x=30.0, axis_y=0.0)
    """
    # One side to the right; down is that, turned: (-y, x).
    x = 2 * geometry.axis_x
    y = 2 * geometry.axis_y
    return CropGeometry(
        geometry.center_x + right * x - down * y,
        geometry.center_y + right * y + down * x,
        geometry.axis_x * scale,
        geometry.axis_y * scale,
    )


def framed_square(points: NDArray[np.floating], framing: Mapping[str, float]) -> CropGeometry:
    """The square around points `(5, 2)` as a bundle with this framing wants it."""
    return reframed(geometry_from_points(points), **framing)


def whole_picture(width: int, height: int) -> CropGeometry:
    """The geometry of a picture that is itself an aligned face.

    Raises:
        UserError: If the picture is not square.

    Examples:
        >>> from faceanon.photo.align import whole_picture
        >>> whole_picture(256, 256)
        CropGeometry(center_x=128.0, center_y=128.0, axis_x=128.0, axis_y=0.0)
    """
    if width != height:
        raise UserError(f"an aligned face must be square, not {width}x{height} px; crop it, or leave --aligned away")
    return CropGeometry(width / 2, height / 2, width / 2, 0.0)


def crop_window(geometry: CropGeometry, width: int, height: int) -> Box:
    """The upright box (left, top, right, bottom) around the square, within a photo of this size.

    Raises:
        UserError: If the square lies outside the photo.

    Examples:
        >>> from faceanon.manifest import CropGeometry
        >>> from faceanon.photo.align import crop_window
        >>> crop_window(CropGeometry(30.0, 100.0, 40.0, 0.0), width=300, height=200)  # cut off at the photo's left edge
        (0, 56, 74, 144)
    """
    reach = geometry.reach + MARGIN
    left = math.floor(geometry.center_x - reach)
    right = math.ceil(geometry.center_x + reach)
    top = math.floor(geometry.center_y - reach)
    bottom = math.ceil(geometry.center_y + reach)
    box = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
    if box[2] - box[0] < 2 or box[3] - box[1] < 2:
        raise UserError(f"a face at ({geometry.center_x:.0f}, {geometry.center_y:.0f}) is outside the photo's pixels")
    return box


def box_around(rows: tuple[int, int], columns: tuple[int, int], size: int, geometry: CropGeometry, box: Box) -> Box:
    """The upright box of the photo around some pixels of a face, within `box`.

    Args:
        rows: The first and the last of the pixels' rows.
        columns: The same of their columns.
        size: Side of the face in pixels.
        geometry: Where the face lies.
        box: What the box may not exceed.
    """
    # A pixel of the face reaches as far as the middles of its neighbours.
    edges_down = [(rows[0] - 1) * 2 / size - 1, (rows[1] + 2) * 2 / size - 1]
    edges_right = [(columns[0] - 1) * 2 / size - 1, (columns[1] + 2) * 2 / size - 1]
    # The face may lie turned in the photo, so all four corners are placed and the extremes are taken.
    x = []
    y = []
    for right in edges_right:
        for down in edges_down:
            x.append(geometry.center_x + geometry.axis_x * right - geometry.axis_y * down)
            y.append(geometry.center_y + geometry.axis_y * right + geometry.axis_x * down)
    left = max(box[0], math.floor(min(x)) - 1)
    top = max(box[1], math.floor(min(y)) - 1)
    return left, top, min(box[2], math.ceil(max(x)) + 1), min(box[3], math.ceil(max(y)) + 1)


def samples(shrink: float) -> int:
    """Samples across a pixel of a picture that is shrunk so many times; up to 1.25 times bicubic alone will do.

    Examples:
        >>> from faceanon.photo.align import samples
        >>> samples(0.5), samples(1.2), samples(3.0)
        (1, 1, 3)
    """
    return max(1, math.ceil(shrink - 0.25))


def arrange_layers(geometries: Sequence[CropGeometry]) -> tuple[tuple[CropGeometry, ...], ...]:
    """Split faces into layers whose windows do not overlap, in the given order within each layer.

    A layer is one batch. Pasting layer after layer and taking them off in the opposite order brings overlapping
    neighbours back, as a single pass would not.

    Examples:
        >>> from faceanon.manifest import CropGeometry
        >>> from faceanon.photo.align import arrange_layers
        >>> left = CropGeometry(100.0, 100.0, 40.0, 0.0)
        >>> close = CropGeometry(150.0, 100.0, 40.0, 0.0)
        >>> far = CropGeometry(400.0, 100.0, 40.0, 0.0)
        >>> arrange_layers([left, close, far]) == ((left, far), (close,))
        True
    """
    layers: list[list[CropGeometry]] = []
    for geometry in geometries:
        for layer in layers:
            if not any(_overlap(geometry, other) for other in layer):
                layer.append(geometry)
                break
        else:
            layers.append([geometry])
    return tuple(map(tuple, layers))


def _overlap(one: CropGeometry, other: CropGeometry) -> bool:
    # Windows have a margin, and are rounded outwards by up to a pixel.
    reach = one.reach + other.reach + 2 * (MARGIN + 1)
    return abs(one.center_x - other.center_x) < reach and abs(one.center_y - other.center_y) < reach
