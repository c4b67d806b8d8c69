"""Faces chosen by a photo of the person: who in a photo is the one in a reference photo?

The bundle's recogniser decides: it reads originals here, so it does no harm that losses have seen it. An error must not
show somebody. So every face that is alike enough is changed, but only the one that is most alike is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.manifest import CropGeometry
from faceanon.photo.align import framed_square, reframed
from faceanon.photo.crop_paste import crops
from faceanon.photo.detect import Detector
from faceanon.photo.file import load_photo
from faceanon.photo.policy import Face, Policy

# Where a photo is changed without torch, nothing here may import it.
if TYPE_CHECKING:
    from faceanon.persona.light import LightPersona
    from faceanon.weights.bundle import Bundle

Array = NDArray[np.float32]

CHUNK = 64
# A face is read at three heights, in sides of its square, and the mean counts: four hundredths too high or too low take
# the recogniser that ships from a cosine of .83 to .4. Of real persons whose squares were moved by 2 % at random, 93 %
# are known again so, and 87 % otherwise (36 persons, 1 stranger in 100).
HEIGHTS = (-0.04, 0.0, 0.04)


@dataclass(frozen=True)
class Likeness:
    """When two faces are one person's.

    Args:
        embed: `(B, 3, S, S)` in [-1, 1] -> L2-normalised `(B, E)`.
        size: S, in pixels.
        framing: Where the faces it knows lie; arguments of `photo.align.reframed`.
        threshold: Cosine above which two faces count as one person's.
    """

    embed: Callable[[Array], Array]
    size: int
    framing: dict[str, float]
    threshold: float


@dataclass(frozen=True)
class Reference:
    """A person by one photo.

    Args:
        name: Of the photo, for messages.
        code: Embedding `(E,)` of unit length.
    """

    name: str
    code: Array


@dataclass(frozen=True)
class People:
    """Who is to be changed, and who is to be left.

    Args:
        likeness: Says who is who.
        select: Change only these, and the numbers of the policy.
        exclude: Leave these, and the numbers of the policy.
        met: Names of the references that somebody was like so far.
    """

    likeness: Likeness
    select: tuple[Reference, ...] = ()
    exclude: tuple[Reference, ...] = ()
    met: set[str] = field(default_factory=set, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all references: those of `select`, then those of `exclude`."""
        return tuple(reference.name for reference in (*self.select, *self.exclude))

    def numbered(self, pixels: NDArray[np.uint8], faces: Sequence[Face], policy: Policy) -> Policy:
        """The policy with these people's numbers in one photo.

        Args:
            pixels: RGB `(H, W, 3)` uint8.
            faces: Everybody in it, as decided with nobody chosen.
            policy: What else was asked for.
        """
        # A face that is too small for the model is too small to tell anybody apart, too.
        clear = []
        for face in faces:
            if face.treatment == "model":
                clear.append(face)
        codes = _codes(self.likeness, pixels, clear)
        select, unlike = self._selected(clear, codes)
        exclude, alike = self._excluded(clear, codes)
        # Without references to select the policy's own choice stays: an empty set would change nobody.
        if self.select:
            policy = replace(policy, select=select | (policy.select or frozenset()))
        return replace(policy, exclude=exclude | policy.exclude, why=unlike | alike)

    def unmet(self) -> list[str]:
        """The references that nobody in any photo so far was like."""
        names = []
        for name in self.names:
            if name not in self.met:
                names.append(name)
        return names

    def _selected(self, faces: Sequence[Face], codes: Array) -> tuple[frozenset[int], dict[int, str]]:
        """Numbers of everybody who is like one of `select`, and why not the others."""
        chosen: set[int] = set()
        why: dict[int, str] = {}
        who = " or ".join(reference.name for reference in self.select)
        for face, cosines in zip(faces, _cosines(codes, self.select).tolist(), strict=True):
            names = []
            for r, cosine in zip(self.select, cosines, strict=True):
                if self._same(cosine):
                    names.append(r.name)
            self.met.update(names)
            if names:
                chosen.add(face.number)
            # Without references to select nobody was compared, so there is no reason to give.
            elif cosines:
                why[face.number] = f"not like {who}, {max(cosines):.2f}"
        return frozenset(chosen), why

    def _excluded(self, faces: Sequence[Face], codes: Array) -> tuple[frozenset[int], dict[int, str]]:
        """Number of the one who is most like each of `exclude`, if enough, and how much."""
        why: dict[int, str] = {}
        for reference, cosines in zip(self.exclude, _cosines(codes, self.exclude).T, strict=True):
            if len(cosines) and self._same(float(cosines.max())):
                self.met.add(reference.name)
                why[faces[int(cosines.argmax())].number] = f"like {reference.name}, {float(cosines.max()):.2f}"
        return frozenset(why), why

    def _same(self, cosine: float) -> bool:
        return cosine > self.likeness.threshold


def likeness_of(bundle: Bundle, threshold: float) -> Likeness:
    """How a bundle of torch tells people apart: by its recogniser, or by its judge where it has none.

    Raises:
        UserError: If it has neither.
    """
    import torch

    if not bundle.has("recogniser") and not bundle.has("judge"):
        # Raises, and says how to get one.
        bundle.require("recogniser")
    network = bundle.recogniser if bundle.has("recogniser") else bundle.judge

    def embed(faces: Array) -> Array:
        with torch.inference_mode():
            found: Array = network(torch.from_numpy(faces).to(bundle.device)).float().cpu().numpy()
        return found

    return Likeness(embed, bundle.image_size, bundle.framing, threshold)


def light_likeness(method: LightPersona, threshold: float) -> Likeness:
    """The same without torch."""
    return Likeness(method.embeddings, method.image_size, method.framing, threshold)


def threshold_of(name: str, model: Path) -> float:
    """The cosine at a false accept rate of 1e-2 between originals, as `faceanon test` measured it for a model.

    Args:
        name: Of the recogniser.
        model: Folder of the model, with its `results.json`.

    Raises:
        UserError: If nobody has measured it.
    """
    path = model / "results.json"
    try:
        return float(json.loads(path.read_text(encoding="utf-8"))["figures"][f"threshold/{name}"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} says of no threshold at which {name} calls two faces one person's: put the results.json of "
            "`faceanon test` there, or give --likeness COSINE"
        ) from error


def read_reference(path: Path, detector: Detector, likeness: Likeness) -> Reference:
    """The one person in a photo.

    Raises:
        UserError: If the photo cannot be read, or shows no face, several, or one that cannot be used.
    """
    photo = load_photo(path)
    faces = detector.detect(photo.pixels)
    if len(faces) != 1:
        if not faces:
            shown = "no face that the detector finds"
        else:
            shown = f"{len(faces)} faces"
        raise UserError(f"the reference photo {path} shows {shown}; give one that shows the one person's face alone")
    square = framed_square(faces[0].points, likeness.framing)
    try:
        code = read_faces(likeness, photo.pixels, [square])[0]
    except UserError as error:
        raise UserError(f"the reference photo {path} shows no usable face; give another one") from error
    return Reference(path.name, code)


def read_faces(likeness: Likeness, pixels: NDArray[np.uint8], squares: Sequence[CropGeometry]) -> Array:
    """What tells people apart in some squares of a photo, `(B, E)` of unit length.

    Raises:
        UserError: If a square lies outside the photo.
    """
    total = np.zeros((1, 1), np.float32)
    for share in HEIGHTS:
        moved = [reframed(square, scale=1.0, right=0.0, down=share) for square in squares]
        total = total + _embedded(likeness, crops(pixels, moved, likeness.size))
    codes: Array = total / np.linalg.norm(total, axis=1, keepdims=True).clip(1e-12)
    return codes


def _embedded(likeness: Likeness, faces: Array) -> Array:
    parts = []
    for start in range(0, len(faces), CHUNK):
        parts.append(likeness.embed(faces[start : start + CHUNK]))
    return np.concatenate(parts)


def _codes(likeness: Likeness, pixels: NDArray[np.uint8], faces: Sequence[Face]) -> Array:
    squares = []
    for face in faces:
        if face.geometry is not None:
            squares.append(face.geometry)
    if squares:
        return read_faces(likeness, pixels, squares)
    # The width plays no part: `_cosines` multiplies nothing where there are no faces.
    return np.zeros((0, 1), np.float32)


def _cosines(codes: Array, references: Sequence[Reference]) -> Array:
    """Cosine of every face with every reference, `(faces, references)`."""
    if not len(codes) or not references:
        return np.zeros((len(codes), len(references)), np.float32)
    cosines: Array = codes @ np.stack([reference.code for reference in references]).T
    return cosines
