"""Take faces out of a photo and put them back, so that cropping the saved photo gives the same face again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.light.networks import Array
from faceanon.manifest import CropGeometry
from faceanon.photo.align import Box, box_around, crop_window, samples
from faceanon.sampling import colours_at

FEATHER = 0.05  # width of a pasted face's soft edge, as a share of its side
PASSES = 4  # corrections of a pasted face, see `paste`
SEEN = 1 / 255  # of a change on [-1, 1]: half a step of 8 bits, below which a pixel stays what it was
# Stronger than the classical methods' own defaults: a face here fills two thirds of the hidden square.
BLUR = 0.12  # standard deviation, in sides of the square
CELLS = 5  # of a pixelated square, along its side


def crop(photo: NDArray[np.uint8], geometry: CropGeometry, size: int) -> Array:
    """The aligned face.

    Args:
        photo: RGB `(H, W, 3)` uint8.
        geometry: Where the face lies; what sticks out of the photo is mirrored.
        size: Side S of the face in pixels.

    Returns:
        `(3, S, S)` float32 in [-1, 1].

    Raises:
        UserError: If the square lies outside the photo.

    Examples:
        >>> import numpy as np
        >>> from faceanon.manifest import CropGeometry
        >>> from faceanon.photo.crop_paste import crop
        >>> photo = np.full((200, 300, 3), 255, dtype=np.uint8)
        >>> face = crop(photo, CropGeometry(150.0, 100.0, 50.0, 0.0), size=64)
        >>> face.shape, float(face.max())
        ((3, 64, 64), 1.0)
    """
    box = crop_window(geometry, photo.shape[1], photo.shape[0])
    steps = _crop_steps(geometry, size)
    grid = _places(geometry, box, steps[None, :], steps[:, None])[None]
    fine = _fine(_window(photo, box), grid, cv2.INTER_CUBIC, cv2.BORDER_REFLECT)
    # Some bicubic weights are negative, so edges overshoot the range: hence the clamp.
    return _averaged(fine, grid.shape[1] // size).clip(-1, 1)


def crops(photo: NDArray[np.uint8], squares: Sequence[CropGeometry], size: int) -> Array:
    """The faces in some squares, `(B, 3, S, S)`, each as `crop` gives it."""
    return np.stack([crop(photo, square, size) for square in squares])


def paste(
    photo: NDArray[np.uint8],
    face: Array,
    geometry: CropGeometry,
    feather: float = FEATHER,
    passes: int = PASSES,
    region: Array | None = None,
) -> None:
    """Replace the square of `geometry` by `face`, in place.

    Recovery starts from the pasted pixels, and enlarging a face and shrinking it again blurs it. So the face is first
    corrected until shrinking the result gives what was meant (iterative back-projection, Irani and Peleg 1991).
    Nothing of the original's fine detail is kept inside the square, or inside the region of it that is replaced: that
    detail would identify the person.

    Args:
        photo: RGB `(H, W, 3)` uint8; changed in place.
        face: `(3, S, S)` in [-1, 1], clamped.
        geometry: Where it lies.
        feather: Width of the soft edge as a share of the side; 0 for a hard edge.
        passes: Corrections; 0 pastes the plain enlargement.
        region: `(S, S)`, 1 where the face is replaced and 0 where the photo stays; the whole square when None.

    Raises:
        UserError: If the square lies outside the photo.

    Examples:
        >>> import numpy as np
        >>> from faceanon.manifest import CropGeometry
        >>> from faceanon.photo.crop_paste import paste
        >>> photo = np.zeros((200, 300, 3), dtype=np.uint8)
        >>> paste(photo, np.ones((3, 64, 64), np.float32), CropGeometry(150.0, 100.0, 50.0, 0.0))
        >>> photo[100, 150].tolist(), photo[10, 10].tolist()
        ([255, 255, 255], [0, 0, 0])
    """
    box = crop_window(geometry, photo.shape[1], photo.shape[0])
    window = _window(photo, box)
    face = np.ascontiguousarray(face.clip(-1, 1), np.float32)
    size = face.shape[-1]
    times = samples(size / geometry.side)
    wide = None if region is None else _widened(region)
    # `inner` is the part of the window that is drawn; the corrections below read from all of `box`.
    inner = box if wide is None else _around(wide, geometry, box)
    left, top, right, bottom = inner
    # The region is empty: the method has changed nothing that shows.
    if right <= left or bottom <= top:
        return
    grid = _face_grid(geometry, inner, times)
    alpha = _opacity(grid, feather, times)
    firm = _firm(size, feather)
    if wide is not None:
        fine = _fine(wide[None], grid, cv2.INTER_LINEAR, cv2.BORDER_REPLICATE)
        # Outside of the region the photo stays, and there is nothing to correct.
        alpha = alpha * _averaged(fine, times)
        firm = firm * wide
    # Only the pixels that the face reaches are drawn, and only what is corrected is looked at again: of a method that
    # leaves the surroundings alone, a third of the window.
    drawn = np.flatnonzero(alpha[0])
    # From numbers of pixels in `inner` to numbers of pixels in the window.
    rows = drawn // (right - left) + (top - box[1])
    places = rows * window.shape[2] + drawn % (right - left) + (left - box[0])
    opacity = alpha[0].ravel()[drawn]
    # Each pass draws over the photo's own pixels, not over what the pass before has drawn.
    below = window.reshape(3, -1)[:, places]
    cells = _cells_of(grid, drawn, times)
    shown = window.reshape(3, -1).copy()
    corrected = face.copy()
    _draw(shown, corrected, places, below, opacity, cells)
    held = np.flatnonzero(firm)
    wanted = face.reshape(3, -1)[:, held]
    back = _crop_cells(geometry, box, size, held)
    for _ in range(passes):
        seen = _sampled(shown.reshape(window.shape), back, cv2.BORDER_REFLECT).clip(-1, 1)
        # Irani and Peleg: what the pasted face lacks when it is read back is added to the face.
        corrected.reshape(3, -1)[:, held] += wanted - seen
        _draw(shown, corrected, places, below, opacity, cells)
    left, top, right, bottom = box
    pixels = np.rint((shown.reshape(window.shape) + 1) * np.float32(127.5)).clip(0, 255).astype(np.uint8)
    photo[top:bottom, left:right] = pixels.transpose(1, 2, 0)


def changed_region(before: Array, after: Array) -> Array:
    """Where a method that leaves the surroundings of a face alone has changed `(3, S, S)`: `(S, S)` of 0 and 1."""
    region: Array = (np.abs(after.clip(-1, 1) - before).max(0) > SEEN).astype(np.float32)
    return region


def obscured(face: Array, how: str) -> Array:
    """A face `(3, S, S)` made unrecognisable for good; `how` is `blur`, `pixelate` or `mask`."""
    if how == "blur":
        return _blurred(face, BLUR * face.shape[-1])
    if how == "pixelate":
        return _pixelated(face, CELLS)
    return np.zeros_like(face)


def _blurred(face: Array, sigma: float) -> Array:
    """Gaussian blur of `(3, S, S)`; what lies beyond the border repeats it. As `backbones.classical.Blur`."""
    reach = math.ceil(3 * sigma)
    offsets = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-((offsets / sigma) ** 2) / 2)
    weights = (weights / weights.sum()).astype(np.float32)
    planes = []
    for plane in face:
        planes.append(cv2.sepFilter2D(plane, cv2.CV_32F, weights, weights, borderType=cv2.BORDER_REPLICATE))
    return np.stack(planes)


def _pixelated(face: Array, cells: int) -> Array:
    """`(3, S, S)` as cells of one colour each, the mean of what they cover. As `backbones.classical.Pixelate`."""
    side = face.shape[-1]
    shown = np.empty_like(face)
    # Torch's two rules: what a cell averages may overlap the next one, what it fills may not.
    starts = [number * side // cells for number in range(cells)]
    stops = [-(-(number + 1) * side // cells) for number in range(cells)]
    owner = ((np.arange(side) + 0.5) * cells / side).astype(int)
    for row in range(cells):
        for column in range(cells):
            mean = face[:, starts[row] : stops[row], starts[column] : stops[column]].mean((1, 2))
            inside = np.ix_(np.arange(3), np.flatnonzero(owner == row), np.flatnonzero(owner == column))
            shown[inside] = mean[:, None, None]
    return shown


def _fine(picture: Array, grid: Array, how: int, beyond: int) -> Array:
    """A picture `(C, h, w)` at the places `(1, r, c, 2)`: `(C, r, c)`.

    `crop` and `paste` round places alike, so a pasted face is still read back as what it was meant to be.

    The picture's edges lie at -1 and 1; `how` and `beyond` are as `colours_at` takes them.
    """
    _, height, width = picture.shape
    places = ((grid[0] + 1) * np.array((width, height), np.float32) - 1) / 2
    fine = colours_at(np.ascontiguousarray(picture.transpose(1, 2, 0)), places, how, beyond)
    return fine.transpose(2, 0, 1)


def _window(photo: NDArray[np.uint8], box: Box) -> Array:
    """The photo's pixels in `box`, `(3, h, w)` in [-1, 1]."""
    left, top, right, bottom = box
    pixels = photo[top:bottom, left:right].transpose(2, 0, 1).astype(np.float32)
    return np.ascontiguousarray(pixels / np.float32(127.5) - np.float32(1))


def _crop_steps(geometry: CropGeometry, size: int) -> NDArray[np.float64]:
    """Where a crop's samples lie along its side, `(n S,)` in [-1, 1]."""
    # Middles of `count` equal parts of [-1, 1], as doubles: float32 has few digits left for parts of a pixel in a large
    # photo.
    count = size * samples(geometry.side / size)
    return (np.arange(count, dtype=np.float64) * 2 + 1) / count - 1


def _places(geometry: CropGeometry, box: Box, right: NDArray[np.float64], down: NDArray[np.float64]) -> Array:
    """Places in the window, at [-1, 1], of places in the square: `(..., 2)`."""
    left, top, right_edge, bottom = box
    # The face's down is its axis turned by a quarter: (-axis_y, axis_x).
    x = geometry.center_x + geometry.axis_x * right - geometry.axis_y * down
    y = geometry.center_y + geometry.axis_y * right + geometry.axis_x * down
    places = np.empty((*x.shape, 2), np.float32)
    # -1 and 1 are the window's outer edges, not the middles of its last pixels.
    places[..., 0] = 2 * (x - left) / (right_edge - left) - 1
    places[..., 1] = 2 * (y - top) / (bottom - top) - 1
    return places


def _averaged(fine: Array, times: int) -> Array:
    """`(C, n h, n w)` with n x n samples a pixel -> `(C, h, w)`."""
    if times == 1:
        return fine
    channels, height, width = fine.shape
    blocks = fine.reshape(channels, height // times, times, width // times, times)
    averaged: Array = blocks.mean((2, 4), dtype=np.float32)
    return averaged


def _widened(region: Array) -> Array:
    """The region and one pixel around it, so that no changed pixel lies on its soft edge."""
    return np.asarray(cv2.dilate(region, np.ones((3, 3), np.uint8)), np.float32)


def _around(region: Array, geometry: CropGeometry, box: Box) -> Box:
    """The upright box around a region `(S, S)` of the face, within `box`; an empty one where the region is empty."""
    size = region.shape[-1]
    rows = np.flatnonzero(region.max(1))
    columns = np.flatnonzero(region.max(0))
    if len(rows) == 0:
        return box[0], box[1], box[0], box[1]
    return box_around((int(rows[0]), int(rows[-1])), (int(columns[0]), int(columns[-1])), size, geometry, box)


def _face_grid(geometry: CropGeometry, box: Box, times: int) -> Array:
    """For every (sub)pixel of the window, its place in the face, `(1, h, w, 2)` with the square at [-1, 1]."""
    left, top, right, bottom = box
    x = left + (np.arange((right - left) * times, dtype=np.float64) + 0.5) / times - geometry.center_x
    y = top + (np.arange((bottom - top) * times, dtype=np.float64) + 0.5) / times - geometry.center_y
    # Projections onto the face's two axes, which are half a side long: divided by that length squared, the edges lie at
    # -1 and 1.
    half_squared = (geometry.side / 2) ** 2
    grid = np.empty((1, len(y), len(x), 2), np.float32)
    grid[0, ..., 0] = (x[None, :] * geometry.axis_x + y[:, None] * geometry.axis_y) / half_squared
    grid[0, ..., 1] = (y[:, None] * geometry.axis_x - x[None, :] * geometry.axis_y) / half_squared
    return grid


def _opacity(grid: Array, feather: float, times: int) -> Array:
    """`(1, h, w)`: 1 inside the square, falling smoothly to 0 at its edge, 0 outside."""
    # Share of the side between a pixel and the nearest edge.
    depth = (1 - np.abs(grid).max(-1)) / 2
    if feather == 0:
        inside = (depth > 0).astype(np.float32)
    else:
        ramp = (depth / np.float32(feather)).clip(0, 1)
        # The smoothstep polynomial: its slope is 0 at both ends of the ramp.
        inside = ramp * ramp * (3 - 2 * ramp)
    return _averaged(inside, times)


def _firm(size: int, feather: float) -> Array:
    """`(S, S)`: 1 where the face is opaque. Correcting the soft edge as well would undo its softness."""
    steps = (np.arange(size, dtype=np.float32) * 2 + 1) / np.float32(size) - 1
    depth = (1 - np.maximum(np.abs(steps)[:, None], np.abs(steps)[None, :])) / 2
    firm: Array = (depth >= np.float32(feather)).astype(np.float32)
    return firm


def _cells_of(grid: Array, chosen: NDArray[np.intp], times: int) -> Array:
    """Of a grid `(1, n h, n w, 2)` with n x n samples a pixel, those of N chosen pixels: `(1, n * n, N, 2)`."""
    _, height, width, _ = grid.shape
    by_pixel = grid.reshape(height // times, times, width // times, times, 2).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(by_pixel.reshape(1, times * times, -1, 2)[:, :, chosen])


def _crop_cells(geometry: CropGeometry, box: Box, size: int, chosen: NDArray[np.intp]) -> Array:
    """The places of a crop's samples, for the chosen pixels of the crop alone: `(1, n * n, N, 2)`."""
    steps = _crop_steps(geometry, size).reshape(size, -1).T
    times = len(steps)
    right = np.tile(steps[:, chosen % size], (times, 1))
    down = np.repeat(steps[:, chosen // size], times, 0)
    return _places(geometry, box, right, down)[None]


def _sampled(picture: Array, grid: Array, beyond: int) -> Array:
    """A picture `(3, h, w)` at the places of `_cells_of`, the samples of each pixel averaged: `(3, N)`."""
    fine = _fine(picture, grid, cv2.INTER_CUBIC, beyond)
    averaged: Array = fine.mean(1, dtype=np.float32)
    return averaged


def _draw(shown: Array, face: Array, places: NDArray[np.intp], below: Array, opacity: Array, grid: Array) -> None:
    """Draw the face over what lies below, in place, clamped.

    Args:
        shown: `(3, pixels of the window)`.
        face: `(3, S, S)`.
        places: `(N,)`, which pixels are drawn.
        below: `(3, N)`, what they show without the face.
        opacity: `(N,)`.
        grid: Of these pixels, see `_cells_of`.
    """
    drawn = _sampled(face, grid, cv2.BORDER_REPLICATE)
    shown[:, places] = (below + opacity * (drawn - below)).clip(-1, 1)
