"""What is asked of the two ways in which faces are taken out of a photo and put back.

What stands in `pipeline` is the same for both: it is given one of them. `photo.torch_pictures` works on tensors,
`light.pictures` on numpy's arrays and without torch. The numbers that both share stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from faceanon.manifest import CropGeometry

FEATHER = 0.05  # width of a pasted face's soft edge, as a share of its side
PASSES = 4  # corrections of a pasted face, see `paste` in `photo.torch_pictures`
SEEN = 1 / 255  # of a change on [-1, 1]: half a step of 8 bits, below which a pixel stays what it was
# Stronger than the classical methods' own defaults: a face here fills two thirds of the hidden square.
BLUR = 0.12  # standard deviation, in sides of the square
CELLS = 5  # of a pixelated square, along its side

Faces = Any
"""Faces `(B, 3, S, S)` or one `(3, S, S)`, nominally in [-1, 1]: a tensor, or an array of numpy."""


class Pictures(Protocol):
    """One of the two ways."""

    def crops(self, photo: NDArray[np.uint8], squares: Sequence[CropGeometry], size: int) -> Faces:
        """The faces in some squares, `(B, 3, S, S)` in [-1, 1]; see `photo.align.crop`."""
        ...

    def paste(
        self,
        photo: NDArray[np.uint8],
        face: Faces,
        geometry: CropGeometry,
        feather: float = FEATHER,
        passes: int = PASSES,
        region: Faces | None = None,
    ) -> None:
        """Replace a square of a photo by a face, in place; see `photo.torch_pictures.paste`."""
        ...

    def changed_region(self, before: Faces, after: Faces) -> Faces:
        """Where two pictures of a face differ visibly, `(S, S)` of 0 and 1."""
        ...

    def is_finite(self, face: Faces) -> bool:
        """Whether a face is a picture at all."""
        ...

    def obscured(self, face: Faces, how: str) -> Faces:
        """A face `(3, S, S)` made unrecognisable for good; `how` is `blur`, `pixelate` or `mask`."""
        ...

    def stacked(self, faces: Sequence[Faces]) -> Faces:
        """Several faces `(3, S, S)` as one batch."""
        ...
