"""What is done to one photo, as generators: they yield faces for the backbone and are sent the changed ones."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Secret
from faceanon.manifest import CropGeometry, HiddenFace, Manifest
from faceanon.photo.align import arrange_layers, crop, whole_picture
from faceanon.photo.file import LoadedPhoto
from faceanon.photo.paste import FEATHER, changed_region, paste
from faceanon.photo.policy import SMALL_FACES, Face, hide, refuse_hopeless
from faceanon.sealed.envelope import WrongPasswordError
from faceanon.sealed.manifests import opened_codes, with_codes

if TYPE_CHECKING:
    from faceanon.pipeline.photo import Pipeline

MOST_FACES = 64  # of one photo held at once, however many a manifest claims
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


Row = tuple[Tensor, bytes | None]
"""A changed face `(3, S, S)`, not clamped, and of a sealed method the code of its original."""

Steps = Generator[Tensor, list[Row], Outcome]


def anonymizing(
    pipeline: Pipeline,
    photo: LoadedPhoto,
    secret: Secret,
    aligned: bool = False,
    salt: bytes | None = None,
    kdf: KdfParameters | None = None,
    encoding: str = "PNG",
) -> Steps:
    """Replace every face of a photo; what the model cannot be applied to is hidden first, by the pipeline's policy.

    Args:
        pipeline: Finds the faces, and says how large the model's are.
        photo: The original.
        secret: Seals the codes of the faces, for a method that needs them to recover.
        aligned: The picture is itself one aligned square face.
        salt: For the manifest.
        kdf: For the manifest.
        encoding: For the manifest.

    Yields:
        Faces `(B, 3, S, S)` in [-1, 1]; is to be sent as many anonymized ones, of a sealed method with their codes.

    Raises:
        UserError: If there is no face, none is wanted, or one must not be hidden in another way.
    """
    faces = pipeline.faces(photo, aligned)
    refuse_hopeless(faces, photo.name)
    pixels = photo.pixels.copy()
    for face in faces:
        if face.treatment in SMALL_FACES:
            # Before anything is cropped: a small face can lie inside the square of a large one.
            hide(pixels, face)
    owner = {face.geometry: face for face in faces if face.geometry is not None and face.treatment == "model"}
    layers = []
    codes: dict[CropGeometry, bytes] = {}
    for layer in arrange_layers(list(owner)):
        # What recovery will bring back is the face as it is now, with the layers below already changed.
        failed = yield from _pass(pixels, layer, pipeline.backbone.image_size, pipeline.backbone.sealed, codes)
        for geometry in failed:
            spoilt = owner[geometry].hidden_by(pipeline.policy.small, "the model failed on it")
            refuse_hopeless([spoilt], photo.name)
            hide(pixels, spoilt)
            faces[spoilt.number - 1] = spoilt
        # What the model failed on was hidden for good, and recovery must not look for it.
        layers.append([geometry for geometry in layer if geometry not in failed])
    manifest = pipeline.describe(photo, [layer for layer in layers if layer])
    hidden = tuple(HiddenFace(face.box, face.treatment) for face in faces if face.treatment in SMALL_FACES)
    manifest = replace(manifest, salt=salt, kdf=kdf, hidden=hidden, encoding=encoding)
    if pipeline.backbone.sealed:
        manifest = with_codes(manifest, codes, secret)
    return _outcome(replace(photo, pixels=pixels), manifest, faces, pipeline.backbone.image_size)


def recovering(
    pipeline: Pipeline, photo: LoadedPhoto, manifest: Manifest, secret: Secret, deniable: bool = False
) -> Steps:
    """Bring every face of a photo back, the layers in the opposite order.

    Args:
        pipeline: The model.
        photo: The anonymized photo.
        manifest: Of the photo.
        secret: Of the manifest's salt.
        deniable: Where a sealed code does not open, draw another stranger under this secret instead of saying so.

    Yields:
        As `anonymizing`; of a method with sealed codes only the faces that are to become other strangers.

    Raises:
        WrongPasswordError: If a sealed code does not open, unless `deniable`.
        UserError: If the method cannot recover, the photo was made with other weights, or its faces are no faces.
    """
    pipeline.check(manifest, photo.name)
    codes = None
    if pipeline.backbone.sealed:
        codes = _codes_or_none(manifest, secret, photo.name, deniable)
    pixels = photo.pixels.copy()
    # The last layer lies on top: it comes off first, as squares of different layers overlap.
    for layer in reversed(manifest.layers):
        if codes is not None:
            _bring_back(pixels, layer, codes, pipeline, photo.name)
            continue
        failed = yield from _pass(pixels, layer, pipeline.backbone.image_size, pipeline.backbone.sealed)
        # Of a sealed method these are other strangers. Where it cannot draw one, the first stays, and nothing is said.
        if failed and not pipeline.backbone.sealed:
            raise UserError(f"{photo.name}: the model gives no picture for one of its faces; is the file damaged?")
    coarse = _coarse(manifest.layers, pipeline.backbone.image_size)
    hidden = len(manifest.hidden)
    return Outcome(replace(photo, pixels=pixels, manifest=None), manifest.faces, coarse, hidden)


def _codes_or_none(manifest: Manifest, secret: Secret, name: str, deniable: bool) -> dict[CropGeometry, bytes] | None:
    """The opened codes; None where they do not open and nobody is to know."""
    try:
        return opened_codes(manifest, secret, name)
    # Deniable recovery answers a wrong password with another face, as a method without sealed codes does.
    except WrongPasswordError:
        if not deniable:
            raise
        return None


def _bring_back(
    pixels: NDArray[np.uint8],
    layer: Sequence[CropGeometry],
    codes: Mapping[CropGeometry, bytes],
    pipeline: Pipeline,
    name: str,
) -> None:
    """Bring the faces of one layer back from their codes, in place."""
    for start in range(0, len(layer), MOST_FACES):
        part = layer[start : start + MOST_FACES]
        faces = torch.stack([crop(pixels, geometry, pipeline.backbone.image_size) for geometry in part])
        try:
            recovered = pipeline.from_codes(faces, [codes[geometry] for geometry in part])
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        for before, face, geometry in zip(faces, recovered, part, strict=True):
            _put(pixels, face, geometry, changed_region(before, face))


def _pass(
    pixels: NDArray[np.uint8],
    layer: Sequence[CropGeometry],
    size: int,
    regional: bool,
    codes: dict[CropGeometry, bytes] | None = None,
) -> Generator[Tensor, list[Row], set[CropGeometry]]:
    """Change the faces of one layer in place, and note their codes; returns those that got no finite picture.

    Of a sealed method only the pixels that it changed are put back (`regional`): what surrounds them stays as sharp as
    the photo is.
    """
    failed = set()
    for start in range(0, len(layer), MOST_FACES):
        part = layer[start : start + MOST_FACES]
        faces = torch.stack([crop(pixels, geometry, size) for geometry in part])
        changed = yield faces
        for before, (face, code), geometry in zip(faces, changed, part, strict=True):
            if codes is not None and code is not None:
                codes[geometry] = code
            # Half precision can overflow; the original must not show where a face was to be replaced.
            if not face.isfinite().all():
                failed.add(geometry)
                continue
            region = changed_region(before, face) if regional else None
            _put(pixels, face, geometry, region)
    return failed


def _put(pixels: NDArray[np.uint8], face: Tensor, geometry: CropGeometry, region: Tensor | None) -> None:
    paste(pixels, face, geometry, feather=0 if _fills(geometry, pixels) else FEATHER, region=region)


def _outcome(photo: LoadedPhoto, manifest: Manifest, faces: Sequence[Face], size: int) -> Outcome:
    changed = manifest.faces + len(manifest.hidden)
    if changed == 0:
        raise UserError(f"{photo.name}: every face is to be left ({faces[0].reason}), so there is nothing to do")
    left = sum(face.treatment == "left" for face in faces)
    photo = replace(photo, manifest=manifest.to_json())
    return Outcome(photo, changed, _coarse(manifest.layers, size), len(manifest.hidden), left, tuple(faces))


def _coarse(layers: Layers, size: int) -> int:
    return sum(geometry.side < size for layer in layers for geometry in layer)


def _fills(geometry: CropGeometry, pixels: NDArray[np.uint8]) -> bool:
    """Whether the square is the whole picture: no background, so no soft edge."""
    height, width = pixels.shape[:2]
    return width == height and geometry == whole_picture(width, height)
