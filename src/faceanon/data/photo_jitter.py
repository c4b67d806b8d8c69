"""Versions of a photograph for training: mirrored, slightly moved, in other light, a little worse."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

SMALLEST = 28  # pixels a side of the crop of a small face; the face itself has two thirds of them
SMALL = 110  # ... and of the largest one that counts as small
DARKNESS = (0.15, 0.65)  # share of the light that dark versions have


@dataclass(frozen=True)
class PhotoJitter:
    """How far the versions of a photograph differ from it; version 0 is the photograph, version 1 its mirror image.

    Args:
        rotation: Standard deviation of the turn, in degrees.
        scale: Standard deviation of the size, as a share of it.
        shift: Standard deviation of the move along each axis, as a share of the side.
        gamma: Standard deviation of the logarithm of gamma.
        balance: Standard deviation of the gain of each colour channel.
        saturation: Standard deviation of the logarithm of saturation.
        contrast: Standard deviation of the logarithm of contrast.
        worse: Share of the versions that are blurred, the share that are noisy, and the share saved as JPEG.
        dark: Share of the versions that have a seventh to two thirds of the light, as indoors and in the evening.
        small: Share of the versions that come from a small face of a group photo: shrunk and enlarged again.

    Examples:
        >>> import numpy as np
        >>> from faceanon.data.photo_jitter import PhotoJitter
        >>> face = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        >>> jitter = PhotoJitter()
        >>> bool((jitter.version(face, 1, seed=[0]) == face[:, ::-1]).all())  # version 1 is the mirror image
        True
        >>> jitter.version(face, 2, seed=[0]).shape
        (64, 64, 3)
    """

    rotation: float = 3.5
    scale: float = 0.04
    shift: float = 0.016
    gamma: float = 0.22
    balance: float = 0.06
    saturation: float = 0.2
    contrast: float = 0.15
    worse: float = 0.3
    # Small faces of group photos and dark ones looked worst while no version was like them.
    dark: float = 0.15
    small: float = 0.25

    def version(self, image: NDArray[np.uint8], number: int, seed: list[int]) -> NDArray[np.uint8]:
        """One version of a photograph, the same for the same seed.

        Args:
            image: RGB `(S, S, 3)` uint8.
            number: Which version.
            seed: Numbers that the photograph's bytes and the version give.

        Returns:
            RGB `(S, S, 3)` uint8.
        """
        if number == 0:
            return image
        if number == 1:
            return np.ascontiguousarray(image[:, ::-1])
        random = np.random.default_rng(seed)
        if random.random() < 0.5:
            image = np.ascontiguousarray(image[:, ::-1])
        moved = self._moved(image, random)
        return self._worse(self._lit(moved, random), random)

    def _moved(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        """Turned, scaled and shifted; what comes in at the border is mirrored."""
        side = image.shape[0]
        angle = random.normal(0, self.rotation)
        # In the logarithm: a face is enlarged as often as it is reduced by the same factor.
        size = float(np.exp(random.normal(0, self.scale)))
        matrix = np.asarray(cv2.getRotationMatrix2D((side / 2, side / 2), angle, size), np.float64)
        matrix[:, 2] += random.normal(0, self.shift * side, 2)
        moved = cv2.warpAffine(image, matrix, (side, side), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        return moved.astype(np.uint8)

    def _lit(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.float32]:
        """In other light and colours, `(S, S, 3)` float32 in about [0, 1]."""
        light = (image.astype(np.float32) / 255) ** float(np.exp(random.normal(0, self.gamma)))
        # Cameras disagree on what is white.
        light = light * (1 + random.normal(0, self.balance, 3)).astype(np.float32)
        grey = light.mean(2, keepdims=True)
        light = grey + (light - grey) * float(np.exp(random.normal(0, self.saturation)))
        # Photographs here are rather harsh, so flat light is a little more frequent than harsher light.
        lit: NDArray[np.float32] = 0.5 + (light - 0.5) * float(np.exp(random.normal(-0.05, self.contrast)))
        if random.random() < self.dark:
            lit = lit * random.uniform(*DARKNESS)
        return lit

    def _worse(self, image: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.uint8]:
        """Some small, some blurred, some noisy, some saved as JPEG."""
        if random.random() < self.small:
            image = _enlarged(image, random)
        if random.random() < self.worse:
            image = cv2.GaussianBlur(image, (0, 0), random.uniform(0.5, 1.6)).astype(np.float32)
        if random.random() < self.worse:
            noise = random.normal(0, random.uniform(0, 0.03), image.shape)
            image = image + noise.astype(np.float32)
        bytes_ = (image.clip(0, 1) * 255).round().astype(np.uint8)
        if random.random() < self.worse:
            quality = int(random.uniform(45, 95))
            # OpenCV takes and gives blue first.
            done, file = cv2.imencode(".jpg", bytes_[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
            assert done
            decoded = cv2.imdecode(file, cv2.IMREAD_COLOR)
            assert decoded is not None
            bytes_ = decoded[:, :, ::-1].astype(np.uint8)
        return np.ascontiguousarray(bytes_)


def _enlarged(image: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """The picture as it looks when its face was small in the photo: few pixels, enlarged to a whole crop."""
    side = image.shape[0]
    # Even in the logarithm: halving the size costs as much at every size.
    pixels = float(np.exp(random.uniform(np.log(SMALLEST), np.log(SMALL))))
    few = min(side, round(pixels))
    small = cv2.resize(image, (few, few), interpolation=cv2.INTER_AREA)
    large = cv2.resize(small, (side, side), interpolation=cv2.INTER_LINEAR)
    return large.astype(np.float32)
