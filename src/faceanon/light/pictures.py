"""Cut faces out of photos and paste them, in numpy: as `photo.torch_pictures` does on tensors.

Both follow the same formulas step by step, and a test compares their pixels. Only the sampling of a picture at given
places is not numpy's: it is onnxruntime's GridSample, whose filters are torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.light.networks import Array, open_graph
from faceanon.manifest import CropGeometry
from faceanon.photo.align import Box, box_around, crop_window, samples
from faceanon.photo.pictures import BLUR, CELLS, FEATHER, PASSES, SEEN


def crop(photo: NDArray[np.uint8], geometry: CropGeometry, size: int) -> Array:
    """The aligned face `(3, S, S)` in [-1, 1]; see `photo.align.crop`.

    Raises:
        UserError: If the square lies outside the photo.
    """
    box = crop_window(geometry, photo.shape[1], photo.shape[0])
    steps = _crop_steps(geometry, size)
    grid = _places(geometry, box, steps[None, :], steps[:, None])[None]
    fine = _sampler("cubic_reflection")(picture=_window(photo, box)[None], grid=grid)[0][0]
    # Some bicubic weights are negative, so edges overshoot the range: hence the clamp.
    return _averaged(fine, grid.shape[1] // size).clip(-1, 1)


def paste(
    photo: NDArray[np.uint8],
    face: Array,
    geometry: CropGeometry,
    feather: float = FEATHER,
    passes: int = PASSES,
    region: Array | None = None,
) -> None:
    """Replace the square of `geometry` by `face`, in place; see `photo.torch_pictures.paste`, which explains each step.

    Raises:
        UserError: If the square lies outside the photo.
    """
    box = crop_window(geometry, photo.shape[1], photo.shape[0])
    window = _window(photo, box)
    face = np.ascontiguousarray(face.clip(-1, 1), np.float32)
    size = face.shape[-1]
    times = samples(size / geometry.side)
    wide = None if region is None else _widened(region)
    inner = box if wide is None else _around(wide, geometry, box)
    left, top, right, bottom = inner
    # The region is empty: the method has changed nothing that shows.
    if right <= left or bottom <= top:
        return
    grid = _face_grid(geometry, inner, times)
    alpha = _opacity(grid, feather, times)
    firm = _firm(size, feather)
    if wide is not None:
        fine = _sampler("linear_border")(picture=wide[None, None], grid=grid)[0][0]
        alpha = alpha * _averaged(fine, times)
        firm = firm * wide
    drawn = np.flatnonzero(alpha[0])
    rows = drawn // (right - left) + (top - box[1])
    places = rows * window.shape[2] + drawn % (right - left) + (left - box[0])
    opacity = alpha[0].ravel()[drawn]
    below = window.reshape(3, -1)[:, places]
    cells = _cells_of(grid, drawn, times)
    shown = window.reshape(3, -1).copy()
    corrected = face.copy()
    _draw(shown, corrected, places, below, opacity, cells)
    held = np.flatnonzero(firm)
    wanted = face.reshape(3, -1)[:, held]
    back = _crop_cells(geometry, box, size, held)
    for _ in range(passes):
        seen = _sampled(shown.reshape(window.shape), back, "cubic_reflection").clip(-1, 1)
        # Irani and Peleg: what the pasted face lacks when it is read back is added to the face.
        corrected.reshape(3, -1)[:, held] += wanted - seen
        _draw(shown, corrected, places, below, opacity, cells)
    left, top, right, bottom = box
    pixels = np.rint((shown.reshape(window.shape) + 1) * np.float32(127.5)).clip(0, 255).astype(np.uint8)
    photo[top:bottom, left:right] = pixels.transpose(1, 2, 0)


def blurred(face: Array, sigma: float) -> Array:
    """Gaussian blur of `(3, S, S)`; what lies beyond the border repeats it. As `backbones.classical.Blur`."""
    reach = math.ceil(3 * sigma)
    offsets = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-((offsets / sigma) ** 2) / 2)
    weights = (weights / weights.sum()).astype(np.float32)
    planes = []
    for plane in face:
        planes.append(cv2.sepFilter2D(plane, cv2.CV_32F, weights, weights, borderType=cv2.BORDER_REPLICATE))
    return np.stack(planes)


def pixelated(face: Array, cells: int) -> Array:
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


@cache
def _sampler(name: str) -> Callable[..., list[Array]]:
    """A graph of GridSample alone, opened once."""
    return open_graph(name)


def _window(photo: NDArray[np.uint8], box: Box) -> Array:
    """The photo's pixels in `box`, `(3, h, w)` in [-1, 1]."""
    left, top, right, bottom = box
    pixels = photo[top:bottom, left:right].transpose(2, 0, 1).astype(np.float32)
    return np.ascontiguousarray(pixels / np.float32(127.5) - np.float32(1))


def _crop_steps(geometry: CropGeometry, size: int) -> NDArray[np.float64]:
    """Where a crop's samples lie along its side, `(n S,)` in [-1, 1]."""
    # Doubles, as in `photo.align`: float32 has few digits left for parts of a pixel in a large photo.
    count = size * samples(geometry.side / size)
    return (np.arange(count, dtype=np.float64) * 2 + 1) / count - 1


def _places(geometry: CropGeometry, box: Box, right: NDArray[np.float64], down: NDArray[np.float64]) -> Array:
    """Places in the window, at [-1, 1], of places in the square: `(..., 2)`."""
    left, top, right_edge, bottom = box
    x = geometry.center_x + geometry.axis_x * right - geometry.axis_y * down
    y = geometry.center_y + geometry.axis_y * right + geometry.axis_x * down
    places = np.empty((*x.shape, 2), np.float32)
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
    half_squared = (geometry.side / 2) ** 2
    grid = np.empty((1, len(y), len(x), 2), np.float32)
    grid[0, ..., 0] = (x[None, :] * geometry.axis_x + y[:, None] * geometry.axis_y) / half_squared
    grid[0, ..., 1] = (y[:, None] * geometry.axis_x - x[None, :] * geometry.axis_y) / half_squared
    return grid


def _opacity(grid: Array, feather: float, times: int) -> Array:
    """`(1, h, w)`: 1 inside the square, falling smoothly to 0 at its edge, 0 outside."""
    depth = (1 - np.abs(grid).max(-1)) / 2
    if feather == 0:
        inside = (depth > 0).astype(np.float32)
    else:
        ramp = (depth / np.float32(feather)).clip(0, 1)
        inside = ramp * ramp * (3 - 2 * ramp)
    return _averaged(inside, times)


def _firm(size: int, feather: float) -> Array:
    """`(S, S)`: 1 where the face is opaque."""
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


def _sampled(picture: Array, grid: Array, how: str) -> Array:
    """A picture `(3, h, w)` at the places of `_cells_of`, the samples of each pixel averaged: `(3, N)`."""
    fine = _sampler(how)(picture=picture[None], grid=grid)[0][0]
    averaged: Array = fine.mean(1, dtype=np.float32)
    return averaged


def _draw(shown: Array, face: Array, places: NDArray[np.intp], below: Array, opacity: Array, grid: Array) -> None:
    """Draw the face over what lies below, in place, clamped; see `photo.torch_pictures`."""
    drawn = _sampled(face, grid, "cubic_border")
    shown[:, places] = (below + opacity * (drawn - below)).clip(-1, 1)


class LightPictures:
    """`photo.pictures.Pictures` on arrays of numpy."""

    def crops(self, photo: NDArray[np.uint8], squares: Sequence[CropGeometry], size: int) -> Array:
        """The faces in some squares, `(B, 3, S, S)` in [-1, 1]."""
        return np.stack([crop(photo, square, size) for square in squares])

    paste = staticmethod(paste)

    def changed_region(self, before: Array, after: Array) -> Array:
        """Where two pictures of a face differ visibly, `(S, S)` of 0 and 1."""
        region: Array = (np.abs(after.clip(-1, 1) - before).max(0) > SEEN).astype(np.float32)
        return region

    def is_finite(self, face: Array) -> bool:
        """Whether a face is a picture at all."""
        return bool(np.isfinite(face).all())

    def obscured(self, face: Array, how: str) -> Array:
        """A face `(3, S, S)` made unrecognisable for good; `how` is `blur`, `pixelate` or `mask`."""
        if how == "blur":
            return blurred(face, BLUR * face.shape[-1])
        if how == "pixelate":
            return pixelated(face, CELLS)
        return np.zeros_like(face)

    def stacked(self, faces: Sequence[Array]) -> Array:
        """Several faces `(3, S, S)` as one batch."""
        return np.stack(faces)
