"""How faces are taken out of a photo and put back, on torch's tensors or on numpy's arrays.

What stands in `pipeline` is the same for both: it is given one of these. `TorchPictures` needs torch once it is used;
`light.pictures.LightPictures` never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from faceanon.manifest import CropGeometry

if TYPE_CHECKING:
    from faceanon.backbones.classical import Irreversible

FEATHER = 0.05  # width of a pasted face's soft edge, as a share of its side
PASSES = 4  # corrections of a pasted face, see `photo.paste`
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
        """Replace a square of a photo by a face, in place; see `photo.paste.paste`."""
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


class TorchPictures:
    """On torch's tensors, on the CPU."""

    def crops(self, photo: NDArray[np.uint8], squares: Sequence[CropGeometry], size: int) -> Faces:
        """The faces in some squares, a tensor `(B, 3, S, S)` in [-1, 1]."""
        from faceanon.photo.align import crop

        return self.stacked([crop(photo, square, size) for square in squares])

    def paste(
        self,
        photo: NDArray[np.uint8],
        face: Faces,
        geometry: CropGeometry,
        feather: float = FEATHER,
        passes: int = PASSES,
        region: Faces | None = None,
    ) -> None:
        """Replace a square of a photo by a face `(3, S, S)`, in place."""
        from faceanon.photo.paste import paste

        paste(photo, face, geometry, feather, passes, region)

    def changed_region(self, before: Faces, after: Faces) -> Faces:
        """Where two faces `(3, S, S)` differ by what 8 bits show, a tensor `(S, S)` of 0 and 1."""
        from faceanon.photo.paste import changed_region

        return changed_region(before, after)

    def is_finite(self, face: Faces) -> bool:
        """Whether all numbers of a face are finite."""
        return bool(face.isfinite().all())

    def obscured(self, face: Faces, how: str) -> Faces:
        """A face `(3, S, S)` under a classical method: `blur`, `pixelate` or `mask`."""
        return _obscuring(how).obscured(face[None])[0]

    def stacked(self, faces: Sequence[Faces]) -> Faces:
        """Faces `(3, S, S)` as one tensor `(B, 3, S, S)`."""
        import torch

        return torch.stack(list(faces))


@cache
def _obscuring(how: str) -> Irreversible:
    """The classical method of this name, with the settings for small faces."""
    # Here, since it needs torch.
    from faceanon.backbones.classical import Blur, Mask, Pixelate

    if how == "blur":
        return Blur(region="picture", sigma=BLUR)
    if how == "pixelate":
        return Pixelate(region="picture", cells=CELLS)
    return Mask(region="picture")
