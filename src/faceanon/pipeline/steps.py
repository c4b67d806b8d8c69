"""Single steps of a photo's way: crop, yield faces to the model, paste what it sends. `pipeline.photo` joins them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.manifest import CropGeometry
from faceanon.persona.cells import Array
from faceanon.photo.align import whole_picture
from faceanon.photo.crop_paste import FEATHER, changed_region, crops, paste
from faceanon.photo.file import LoadedPhoto
from faceanon.photo.policy import Face
from faceanon.sealed.coder import CELL, rows_of_code

MOST_FACES = 64  # of one photo held at once, however many a manifest claims
ENLARGED = 1.25  # a face may be so much larger in the photo than the model's picture of it
Layers = Sequence[Sequence[CropGeometry]]


@dataclass(frozen=True)
class Outcome:
    """What was done to a photo.

    Args:
        photo: The new photo; its manifest is None after recovery.
        faces: Number of faces that were changed.
        coarse: How many of them are smaller in the photo than in the model: hidden all the same, but recovered less
            exactly.
        hidden: How many of them were hidden for good by a classical method.
        left: Number of faces that were left as they are because it was asked for.
        records: Every face that was found, with what was done to it; empty after recovery.
        redetected: Whether recovery had no manifest and looked for the anonymized faces itself.
        kept: Whether a vault keeps the original faces, also of those hidden by a classical method.
    """

    photo: LoadedPhoto
    faces: int
    coarse: int
    hidden: int = 0
    left: int = 0
    records: tuple[Face, ...] = ()
    redetected: bool = False
    kept: bool = False


Row = tuple[Array, bytes | None]
"""A changed face `(3, S, S)`, not clamped, and of a sealed method the code of its original."""

Asked = tuple[Array, Sequence[int]]
"""Faces `(B, 3, S, S)` in [-1, 1] for the model, and for each how many strangers of the key are passed over."""

Steps = Generator[Asked, list[Row], Outcome]


def change_layer(
    pixels: NDArray[np.uint8],
    layer: Sequence[CropGeometry],
    sizes: Sequence[int],
    sealed: bool,
    codes: dict[CropGeometry, bytes],
    strangers: Mapping[CropGeometry, int],
) -> Generator[Asked, list[Row], set[CropGeometry]]:
    """Crop the faces of one layer, have them changed, and paste them, in place.

    Args:
        pixels: `(H, W, 3)` uint8, of the whole photo; squares of one layer do not overlap.
        layer: Squares of the faces.
        sizes: Sides in pixels that a crop may have, rising.
        sealed: Whether the method's way back is a code. It leaves most of a crop as it is, and only the pixels that it
            changed are put back: what surrounds them stays as sharp as the photo is.
        codes: Gets the codes that come with the changed faces.
        strangers: How many strangers of the key are passed over for a square; 0 where it is not named.

    Yields:
        Crops, a few at a time; is to be sent as many changed ones.

    Returns:
        The squares that got no finite picture, and are as they were.
    """
    failed = set()
    for size, part in parts_of_a_size(layer, sizes):
        given = crops(pixels, part, size)
        changed = yield given, [strangers.get(geometry, 0) for geometry in part]
        for before, (face, code), geometry in zip(given, changed, part, strict=True):
            if code is not None:
                codes[geometry] = code
            # Half precision can overflow; the original must not show where a face was to be replaced.
            if not np.isfinite(face).all():
                failed.add(geometry)
                continue
            region = changed_region(before, face) if sealed else None
            _paste(pixels, face, geometry, region)
    return failed


def bring_back_layer(
    pixels: NDArray[np.uint8],
    layer: Sequence[CropGeometry],
    codes: Mapping[CropGeometry, bytes],
    from_codes: Callable[[Array, Sequence[bytes]], Array],
    name: str,
) -> None:
    """Bring the faces of one layer back from their opened codes, in place.

    Args:
        pixels: `(H, W, 3)` uint8, of the whole photo.
        layer: Squares of the faces.
        codes: Of every square. Each knows the size of the crop that it was made from: another release of the model may
            take a face at another size.
        from_codes: Crops `(B, 3, S, S)` in [-1, 1] and their codes to the faces brought back, as many.
        name: Of the photo, for errors.

    Raises:
        UserError: If a code is damaged.
    """
    by_size: dict[int, list[CropGeometry]] = {}
    for geometry in layer:
        try:
            size = rows_of_code(codes[geometry]) * CELL
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        by_size.setdefault(size, []).append(geometry)
    for size, squares in sorted(by_size.items()):
        for start in range(0, len(squares), MOST_FACES):
            part = squares[start : start + MOST_FACES]
            given = crops(pixels, part, size)
            try:
                recovered = from_codes(given, [codes[geometry] for geometry in part])
            except UserError as error:
                raise UserError(f"{name}: {error}") from error
            for before, face, geometry in zip(given, recovered, part, strict=True):
                _paste(pixels, face, geometry, changed_region(before, face))


def crop_size(geometry: CropGeometry, sizes: Sequence[int]) -> int:
    """Side in pixels of a face's crop: the smallest size that keeps what the photo shows of it, else the largest.

    It follows from the square and the model alone, so recovery of a method without sealed codes finds it again.
    """
    for size in sizes:
        if geometry.side <= ENLARGED * size:
            return size
    return sizes[-1]


def parts_of_a_size(
    layer: Sequence[CropGeometry], sizes: Sequence[int]
) -> Iterator[tuple[int, Sequence[CropGeometry]]]:
    """Crop sizes, each with squares of a layer that get it, at most `MOST_FACES` at once."""
    for size in sizes:
        fitting = []
        for geometry in layer:
            if crop_size(geometry, sizes) == size:
                fitting.append(geometry)
        for start in range(0, len(fitting), MOST_FACES):
            yield size, fitting[start : start + MOST_FACES]


def _paste(pixels: NDArray[np.uint8], face: Array, geometry: CropGeometry, region: Array | None) -> None:
    height, width = pixels.shape[:2]
    # Where the square is the whole picture there is no background, so no soft edge.
    alone = width == height and geometry == whole_picture(width, height)
    paste(pixels, face, geometry, feather=0 if alone else FEATHER, region=region)


def count_coarse(layers: Layers, size: int) -> int:
    """How many faces are smaller in the photo than the model's smallest `size` in pixels."""
    count = 0
    for layer in layers:
        for geometry in layer:
            if geometry.side < size:
                count += 1
    return count
