"""Faces at the same place in an original and in what was made of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.data.files import read_photo
from faceanon.errors import UserError
from faceanon.manifest import CropGeometry
from faceanon.metrics.saved import from_bytes
from faceanon.photo.align import framed_square
from faceanon.photo.crop_paste import crop
from faceanon.photo.detect import Detector
from faceanon.photo.file import load_photo
from faceanon.studies.evaluate.pairs import Pairing, PicturePair
from faceanon.weights.bundle import Bundle

OFF = 2  # pixels by which the height of a scaled picture may miss that of its original


@dataclass(frozen=True)
class GivenFace:
    """One face, cut out at the same place of every version of its picture.

    Args:
        versions: `(3, S, S)` in [-1, 1] by name: `original`, `anonymized`, and `recovered` where something came back.
        label: Number of the person; -1 where unknown.
    """

    versions: dict[str, Tensor]
    label: int


class FaceReader:
    """Read the faces of pairs of pictures, once.

    Args:
        pairing: The pairs.
        bundle: Says how large faces are, and how they are framed.
        detector: Finds faces in originals; None for pictures that are aligned faces.

    Attributes:
        labels: Of all faces read so far.
        without_face: Names of originals in which no face was found.
        unusable: Why a picture cannot be used, by the name of its original.
    """

    def __init__(self, pairing: Pairing, bundle: Bundle, detector: Detector | None) -> None:
        self.pairing = pairing
        self.size = bundle.image_size
        self.framing = bundle.framing
        self.detector = detector
        self.labels: list[int] = []
        self.without_face: list[str] = []
        self.unusable: dict[str, str] = {}
        names = dict.fromkeys(pair.original.identity for pair in pairing.pairs)
        self._numbers = {name: number for number, name in enumerate(names)}

    def read(self) -> Iterator[GivenFace]:
        """All faces, under a progress bar; of a picture the largest face first."""
        silent = not sys.stderr.isatty()
        for pair in tqdm(self.pairing.pairs, desc="judging", unit="picture", leave=False, disable=silent):
            try:
                faces = self._faces(pair)
            except UserError as error:
                self.unusable[pair.original.name] = str(error)
                continue
            if not faces:
                self.without_face.append(pair.original.name)
            for number, versions in enumerate(faces):
                self.labels.append(self._label(pair, number))
                yield GivenFace(versions, self.labels[-1])

    def _label(self, pair: PicturePair, number: int) -> int:
        # Where nobody says who is who, each face counts as a person of its own.
        if not self.pairing.told_by:
            return len(self.labels)
        # A name says who the picture is about, and the others in it are unknown.
        if number or pair.original.identity is None:
            return -1
        return self._numbers[pair.original.identity]

    def _faces(self, pair: PicturePair) -> list[dict[str, Tensor]]:
        """The versions of each face; none where the detector finds none in the original.

        Raises:
            UserError: A picture cannot be read, or has another shape than its original.
        """
        paths = {"original": pair.original.path, "anonymized": pair.anonymized}
        if pair.recovered is not None:
            paths["recovered"] = pair.recovered
        if self.detector is None:
            return [{what: self._aligned(path) for what, path in paths.items()}]
        photos = {what: load_photo(path).pixels for what, path in paths.items()}
        scales = {what: scale_to(photo, photos["original"], paths[what]) for what, photo in photos.items()}
        faces = []
        for found in self.detector.detect(photos["original"]):
            square = framed_square(found.points, self.framing)
            faces.append({what: self._cropped(photo, _scaled(square, scales[what])) for what, photo in photos.items()})
        return faces

    def _cropped(self, photo: NDArray[np.uint8], square: CropGeometry) -> Tensor:
        return torch.from_numpy(crop(photo, square, self.size))

    def _aligned(self, path: Path) -> Tensor:
        # As training and `faceanon test` read such pictures.
        pixels, square = read_photo(path, self.size)
        if not square:
            raise UserError(f"{path}: an aligned face must be square; crop it, or leave --aligned away")
        return from_bytes(torch.from_numpy(pixels[None].copy()))[0]


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
