"""Faces at the same place in an original and in what was made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.data.files import read_photo
from faceanon.errors import UserError
from faceanon.manifest import CropGeometry
from faceanon.metrics.saved import from_bytes
from faceanon.photo.align import crop, framed_square
from faceanon.photo.detect import Detector
from faceanon.photo.file import load_photo
from faceanon.studies.evaluate.pairs import Pair
from faceanon.weights.bundle import Bundle

OFF = 2  # pixels by which a scaled picture's height may miss that of its original


@dataclass(frozen=True)
class GivenFace:
    """One face, cut out at the same place of every version of its picture.

    Args:
        versions: `(3, S, S)` in [-1, 1] by name: `original`, `anonymized`, and `recovered` where there is one.
        person: Name of the person; None for whoever stands beside the largest face.
    """

    versions: dict[str, Tensor]
    person: str | None


class FaceReader:
    """Read the faces of pairs of pictures.

    Args:
        bundle: Says how large faces are, and how they are framed.
        detector: Finds faces in originals; None for pictures that are aligned faces.
    """

    def __init__(self, bundle: Bundle, detector: Detector | None) -> None:
        self.size = bundle.image_size
        self.framing = bundle.framing
        self.detector = detector

    def faces(self, pair: Pair) -> list[GivenFace]:
        """The faces of a picture, the largest first; none where the detector finds none in the original.

        Raises:
            UserError: A picture cannot be read, or has another shape than its original.
        """
        paths = {"original": pair.original.path, "anonymized": pair.anonymized}
        if pair.recovered is not None:
            paths["recovered"] = pair.recovered
        if self.detector is None:
            return [GivenFace({what: self._aligned(path) for what, path in paths.items()}, pair.original.identity)]
        photos = {what: load_photo(path).pixels for what, path in paths.items()}
        squares = []
        for found in self.detector.detect(photos["original"]):
            squares.append(framed_square(found.points, self.framing))
        return self._cut(paths, photos, squares, pair.original.identity)

    def _aligned(self, path: Path) -> Tensor:
        # As training and `faceanon test` read such pictures.
        pixels, square = read_photo(path, self.size)
        if not square:
            raise UserError(f"{path}: an aligned face must be square; crop it, or leave --aligned away")
        return from_bytes(torch.from_numpy(pixels[None].copy()))[0]

    def _cut(
        self,
        paths: dict[str, Path],
        photos: dict[str, NDArray[np.uint8]],
        squares: Sequence[CropGeometry],
        person: str | None,
    ) -> list[GivenFace]:
        scales = {what: scale_to(photo, photos["original"], paths[what]) for what, photo in photos.items()}
        faces: list[GivenFace] = []
        for square in squares:
            versions = {}
            for what, photo in photos.items():
                versions[what] = crop(photo, _scaled(square, scales[what]), self.size)
            # A name says who the picture is about, and the others in it are unknown.
            faces.append(GivenFace(versions, None if faces else person))
        return faces


def scale_to(photo: NDArray[np.uint8], original: NDArray[np.uint8], path: Path) -> float:
    """Width of a photo over that of its original, both `(H, W, 3)`.

    Raises:
        UserError: Their shapes differ by more than a scale.
    """
    height, width = photo.shape[:2]
    scale: float = width / original.shape[1]
    if abs(height - original.shape[0] * scale) > OFF:
        was = f"{original.shape[1]}x{original.shape[0]}"
        raise UserError(f"{path} is {width}x{height} px, its original {was}: give results that show the whole picture")
    return scale


def _scaled(square: CropGeometry, scale: float) -> CropGeometry:
    return CropGeometry(square.center_x * scale, square.center_y * scale, square.axis_x * scale, square.axis_y * scale)
