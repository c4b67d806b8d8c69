"""Photo in, photo out, and back. Read this file first.

    photo --detect--> faces --align--> crops (B, 3, S, S) in [-1, 1] --backbone + key--> crops' --paste--> photo'

Recovery is the same line from the saved photo' with the inverse transform. It detects nothing: the manifest inside
photo' says where the faces are. Faces whose squares overlap are taken one layer after another, and recovered in the
opposite order.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.data.align import arrange_layers, crop, geometry_from_points, reframed, whole_picture
from faceanon.data.detect import Detector, MtcnnDetector
from faceanon.data.paste import FEATHER, paste
from faceanon.data.photo import LoadedPhoto, Photo, load_photo, read_manifest, to_image, write_photo
from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password, Secret
from faceanon.manifest import CropGeometry, Manifest

Layers = Sequence[Sequence[CropGeometry]]


class NoFaceError(UserError):
    """The photo shows no face that the detector finds."""


@dataclass(frozen=True)
class Outcome:
    """What was done to a photo.

    Args:
        photo: The new photo; its manifest is None after recovery.
        faces: Number of faces.
        coarse: How many of them are smaller in the photo than in the model: hidden all the same, but recovered less
            exactly.
    """

    photo: LoadedPhoto
    faces: int
    coarse: int


class Pipeline:
    """A trained backbone with everything around it that a photo needs.

    Args:
        backbone: The method, in eval mode.
        detector: Finds the faces; MTCNN when None, built at first use.
        weights: SHA-256 of the backbone's weights, 64 hex digits; recovery demands the same. Hashed here when None.
        name: Name of the model, for people.
        device: Where the backbone runs.
        batch: Most faces in one call of the backbone.
    """

    def __init__(
        self,
        backbone: Backbone,
        detector: Detector | None = None,
        weights: str | None = None,
        name: str = "unnamed",
        device: torch.device | str = "cpu",
        batch: int = 16,
    ) -> None:
        self.device = torch.device(device)
        self.backbone = backbone.to(self.device).eval()
        if (bundle := getattr(backbone, "bundle", None)) is not None:
            bundle.to(self.device)  # frozen networks lie outside the module tree
        self.weights = weights or _hash_weights(backbone)
        self.name, self.batch = name, batch
        self._detector = detector

    @classmethod
    def load(
        cls, path: str | Path, detector: Detector | None = None, device: torch.device | str = "cpu", batch: int = 16
    ) -> Pipeline:
        """A pipeline from a trained model.

        Args:
            path: Folder of a trained model, or a `.ckpt`.
            detector: Finds the faces; MTCNN when None.
            device: Where the backbone runs.
            batch: Most faces in one call of the backbone.

        Raises:
            UserError: If the model is missing or damaged.
        """
        from faceanon.weights.store import load_backbone  # here: a pipeline over one's own backbone needs no store

        backbone, weights = load_backbone(path)
        return cls(backbone, detector, weights, Path(path).name, device, batch)

    @property
    def detector(self) -> Detector:
        """The face detector."""
        if self._detector is None:
            self._detector = MtcnnDetector(device=self.device)
        return self._detector

    @detector.setter
    def detector(self, detector: Detector) -> None:
        self._detector = detector

    def anonymize(self, photo: Photo, secret: Secret, aligned: bool = False) -> Image.Image | NDArray[np.uint8]:
        """The photo with every face replaced.

        Args:
            photo: Path, PIL image or RGB array `(H, W, 3)` uint8.
            secret: The key; the same secret turns the same person into the same stranger.
            aligned: The picture is itself one aligned square face, so nothing is detected.

        Returns:
            An array for an array; else a PIL image with the manifest in `info["faceanon"]`.

        Raises:
            UserError: If the photo cannot be read or shows no face.
        """
        return _like(photo, self.anonymize_photo(load_photo(photo), secret, aligned).photo)

    def recover(
        self, photo: Photo, secret: Secret, aligned: bool = False, manifest: Manifest | None = None
    ) -> Image.Image | NDArray[np.uint8]:
        """The photo with the original persons back, where the secret is right.

        Args:
            photo: Path, PIL image or RGB array `(H, W, 3)` uint8, as `anonymize` gave it.
            secret: The key it was anonymized with.
            aligned: The picture is itself one aligned square face.
            manifest: Where the faces are; by default what the photo carries. An array carries nothing: its faces are
                detected again, with a warning, since the anonymized face may be found a little aside.

        Returns:
            An array for an array, else a PIL image.

        Raises:
            UserError: If the photo cannot be read or was anonymized with other weights.
        """
        loaded = load_photo(photo)
        if manifest is None and loaded.manifest is not None:
            manifest = read_manifest(loaded)
        if manifest is None:
            if not aligned:
                warnings.warn("no manifest: detecting the anonymized faces again; recovery is inexact", stacklevel=2)
            manifest = self._describe(loaded, self.find(loaded, aligned))
        return _like(photo, self.recover_photo(loaded, secret, manifest).photo)

    def find(self, photo: LoadedPhoto, aligned: bool = False) -> Layers:
        """Where the faces are, in layers.

        Raises:
            NoFaceError: If there is none.
            UserError: If an aligned picture is not square.
        """
        height, width = photo.pixels.shape[:2]
        if aligned:
            return ((whole_picture(width, height),),)
        framing = self.backbone.framing
        found = [reframed(geometry_from_points(face.points), **framing) for face in self.detector.detect(photo.pixels)]
        if not found:
            raise NoFaceError(f"no face found in {photo.name}; for a picture that is itself a face say --aligned")
        return arrange_layers(found)

    def anonymize_photo(
        self,
        photo: LoadedPhoto,
        secret: Secret,
        aligned: bool = False,
        salt: bytes | None = None,
        kdf: KdfParameters | None = None,
    ) -> Outcome:
        """`anonymize` on a decoded photo; `salt` and `kdf` go into the manifest."""
        layers = self.find(photo, aligned)
        pixels = photo.pixels.copy()
        for layer in layers:
            self._replace(pixels, layer, secret, self.backbone.anonymize)
        manifest = replace(self._describe(photo, layers), salt=salt, kdf=kdf)
        return self._outcome(replace(photo, pixels=pixels, manifest=manifest.to_json()), layers)

    def recover_photo(self, photo: LoadedPhoto, secret: Secret, manifest: Manifest) -> Outcome:
        """`recover` on a decoded photo.

        Raises:
            UserError: If the method cannot recover, or the photo was made with other weights.
        """
        self.check(manifest, photo.name)
        pixels = photo.pixels.copy()
        for layer in reversed(manifest.layers):
            self._replace(pixels, layer, secret, self.backbone.recover)
        return self._outcome(replace(photo, pixels=pixels, manifest=None), manifest.layers)

    def check(self, manifest: Manifest, name: str) -> None:
        """Refuse what this model cannot recover.

        Raises:
            UserError: If the method is not reversible, or the weights differ.
        """
        if not self.backbone.reversible:
            raise UserError(f"{type(self.backbone).__name__} cannot recover faces; nothing brings {name} back")
        if manifest.weights != self.weights:
            theirs, ours = f"{manifest.model} ({manifest.weights[:12]})", f"{self.name} ({self.weights[:12]})"
            raise UserError(f"{name} was anonymized with {theirs} but the model is {ours}; give the former by --model")

    @torch.inference_mode()
    def _replace(
        self,
        pixels: NDArray[np.uint8],
        layer: Sequence[CropGeometry],
        secret: Secret,
        change: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        """Change the faces of one layer in place."""
        size = self.backbone.image_size
        for start in range(0, len(layer), self.batch):
            part = layer[start : start + self.batch]
            faces = torch.stack([crop(pixels, geometry, size) for geometry in part]).to(self.device)  # (B, 3, S, S)
            key = self.backbone.key_from_secret(secret, len(part)).to(self.device)
            for face, geometry in zip(change(faces, key), part, strict=True):
                paste(pixels, face, geometry, feather=0 if _fills(geometry, pixels) else FEATHER)

    def _describe(self, photo: LoadedPhoto, layers: Layers) -> Manifest:
        height, width = photo.pixels.shape[:2]
        kind = type(self.backbone)
        return Manifest(
            method=f"{kind.__module__}.{kind.__qualname__}",
            model=self.name,
            weights=self.weights,
            image_size=self.backbone.image_size,
            width=width,
            height=height,
            layers=tuple(tuple(layer) for layer in layers),
        )

    def _outcome(self, photo: LoadedPhoto, layers: Layers) -> Outcome:
        sides = [geometry.side for layer in layers for geometry in layer]
        return Outcome(photo, len(sides), sum(side < self.backbone.image_size for side in sides))


def anonymize_file(
    pipeline: Pipeline, source: Path, target: Path, password: Password, aligned: bool = False
) -> Outcome:
    """Anonymize a picture file into a PNG from which the password brings it back.

    Args:
        pipeline: The model.
        source: Any picture.
        target: The PNG to write.
        password: Files of one object share its salt: the same person becomes the same stranger in all.
        aligned: The picture is itself one aligned square face.

    Raises:
        UserError: If the source cannot be read or shows no face, or the target cannot be written.
    """
    photo = load_photo(source)
    outcome = pipeline.anonymize_photo(photo, password.secret(), aligned, password.salt, password.kdf)
    write_photo(target, outcome.photo)
    return outcome


def recover_file(pipeline: Pipeline, source: Path, target: Path, password: Password) -> Outcome:
    """Recover a PNG of `anonymize_file`.

    Raises:
        UserError: If the source carries no usable manifest or fits another model, or the target cannot be written.
    """
    photo = load_photo(source)
    manifest = read_manifest(photo)
    pipeline.check(manifest, photo.name)
    if manifest.salt is None or manifest.kdf is None:
        raise UserError(f"{source} was made with a secret of its own, not with a password; recover it in Python")
    outcome = pipeline.recover_photo(photo, password.secret(manifest.salt, manifest.kdf), manifest)
    write_photo(target, outcome.photo)
    return outcome


def _fills(geometry: CropGeometry, pixels: NDArray[np.uint8]) -> bool:
    """Whether the square is the whole picture: no background, so no soft edge."""
    height, width = pixels.shape[:2]
    return width == height and geometry == whole_picture(width, height)


def _hash_weights(backbone: Backbone) -> str:
    digest = hashlib.sha256(type(backbone).__qualname__.encode())
    for name, tensor in sorted(backbone.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _like(photo: Photo, result: LoadedPhoto) -> Image.Image | NDArray[np.uint8]:
    return result.pixels if isinstance(photo, np.ndarray) else to_image(result)
