"""Photo in, photo out, and back. Read this file first.

    photo --detect--> faces --align--> crops (B, 3, S, S) in [-1, 1] --backbone + key--> crops' --paste--> photo'

`Pipeline.anonymizing` is this line, read downwards. `Pipeline.recovering` is the line from the saved photo' with the
inverse transform. It detects nothing: the manifest inside photo' says where the faces are. Faces whose squares overlap
are taken one layer after another, and recovered in the opposite order.

Both are generators that yield faces and are sent changed ones (`Steps`), so that `pipeline/many/engine.py` can put the
faces of many photos into one call of the backbone. Where there is only one photo `Pipeline.drive` answers them.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.lock import Lock
from faceanon.manifest import CropGeometry, HiddenFace, Manifest
from faceanon.persona.cells import Array
from faceanon.persona.method import ArrayMethod
from faceanon.photo.align import arrange_layers, whole_picture
from faceanon.photo.boxes import SEARCHED, Decisions, as_decided, detections
from faceanon.photo.detect import Detector, shipped_detector
from faceanon.photo.file import LoadedPhoto, Photo, load_photo, read_manifest, to_image
from faceanon.photo.policy import SMALL_FACES, Face, Policy, check_aligned, decide, hide, refuse_hopeless, squares
from faceanon.photo.signature import fitted, signature_of
from faceanon.pipeline.earlier import admitted, taken_back
from faceanon.pipeline.method import TorchMethod
from faceanon.pipeline.steps import Layers, Outcome, Row, Steps, bring_back_layer, change_layer, count_coarse
from faceanon.sealed.envelope import WrongPasswordError
from faceanon.sealed.manifests import opened_codes, with_codes

# Where a photo is changed without torch (`persona.light`), nothing here may import it.
if TYPE_CHECKING:
    import torch

    from faceanon.backbones.base import Backbone
    from faceanon.photo.people import People

# A CPU is no faster with more, and stands idle until the first batch is found.
BATCH = 16
CPU_BATCH = 2
LEAST_SCORE = 0.2  # of a face in a box that somebody gave


class NoFaceError(UserError):
    """The photo shows no face that the detector finds."""


class Pipeline:
    """A method with everything around it that a photo needs.

    Args:
        backbone: The method: a backbone of torch, or one on arrays, such as Persona without torch (`persona.light`).
        detector: Finds the faces; when None YuNet or MTCNN, as `Pipeline.detector` says, built at first use.
        weights: SHA-256 of the method's weights, 64 hex digits; recovery demands the same. Its own when None.
        name: Name of the model, for people; the method's own when None.
        device: Where a backbone runs.
        batch: Most faces in one call of the method. None: `CPU_BATCH` on the CPU, else `BATCH`.
        policy: Which faces are for the model, and what hides the others.

    Examples:
        >>> from faceanon import Pipeline
        >>> from faceanon.key import Secret
        >>> from faceanon.photo.party import photo_party
        >>> pipeline = Pipeline.load("persona_photo128")
        >>> photo = photo_party()  # three people
        >>> hidden = pipeline.anonymize(photo, Secret.random(0))
        >>> back = pipeline.recover(hidden, Secret.random(0))
        >>> hidden.size == photo.size == back.size
        True
        >>> hidden.tobytes() == photo.tobytes()
        False
        >>> pipeline.recover(hidden, Secret.random(1))
        Traceback (most recent call last):
        faceanon.sealed.envelope.WrongPasswordError: ...
    """

    device: torch.device
    """Where a backbone of torch runs."""

    def __init__(
        self,
        backbone: Backbone | ArrayMethod,
        detector: Detector | None = None,
        weights: str | None = None,
        name: str | None = None,
        device: torch.device | str = "cpu",
        batch: int | None = None,
        policy: Policy | None = None,
    ) -> None:
        if isinstance(backbone, ArrayMethod):
            self.method = backbone
        else:
            made = TorchMethod(backbone, device, name or "unnamed", weights)
            self.device = made.device
            self.method = made
        self.weights = weights or self.method.weights
        self.name = name or self.method.name
        # For whoever asks more of a method than a pipeline does: studies, which run on torch.
        self.backbone = cast("Backbone", backbone)
        self.batch = batch or (CPU_BATCH if self.on_processor else BATCH)
        self.policy = policy or Policy()
        # The largest side in pixels at which faces are cropped; None: all that the method takes.
        self.largest: int | None = None
        # Faces chosen by reference photos, beside the policy's numbers.
        self.people: People | None = None
        # What was decided about each photo before; nothing is then searched for.
        self.boxes: Decisions | None = None
        self._detector = detector

    @classmethod
    def load(
        cls,
        path: str | Path,
        detector: Detector | None = None,
        device: torch.device | str = "cpu",
        batch: int | None = None,
    ) -> Pipeline:
        """A pipeline from a trained model; where torch is not installed, Persona runs without it.

        Args:
            path: Folder of a trained model, or a `.ckpt`.
            detector: Finds the faces; when None YuNet or MTCNN, as `Pipeline.detector` says.
            device: Where the backbone runs.
            batch: Most faces in one call of the backbone, or None, as above.

        Raises:
            UserError: If the model is missing or damaged, or an exported one does not run on the device.
        """
        if importlib.util.find_spec("torch") is None:
            from faceanon.persona.light import LightPersona, model_folder

            if str(device) != "cpu":
                raise UserError(f"--device {device} needs torch: pip install 'faceanon[train]'")
            folder = model_folder(path)
            if folder is None and Path(path).exists():
                raise UserError(f"the model {path} needs torch: pip install 'faceanon[train]'")
            if folder is None:
                raise UserError(f"no trained model {path}: give the folder of one, or persona_photo128, which ships")
            return cls(LightPersona(folder), detector, batch=batch)
        # Here, since a pipeline over one's own backbone needs no store.
        from faceanon.models import load_backbone

        backbone, weights = load_backbone(path, device)
        return cls(backbone, detector, weights, Path(path).name, device, batch)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sides in pixels at which faces are cropped for the method, rising.

        Raises:
            UserError: `largest` lies below all of them, or recovery of the method would have to find the sizes again.
        """
        every = self.method.face_sizes
        if self.largest is None:
            return every
        if not self.method.sealed:
            raise UserError(f"the size of faces cannot be chosen for {self.name}: its recovery would not find it again")
        sizes = tuple(size for size in every if size <= self.largest)
        if not sizes:
            raise UserError(f"{self.name} takes faces of {' or '.join(map(str, every))} px, not of {self.largest}")
        return sizes

    def leave_as_put_on(self) -> None:
        """From now on leave faces as they are put on, which is sooner done; redrawn they fit the photo better.

        Raises:
            UserError: The model redraws none.
        """
        if not getattr(self.backbone, "redraws", False):
            raise UserError(f"{self.name} redraws no faces; leave --no-redraw away")
        self.backbone.redraws = False  # type: ignore[assignment]

    @property
    def detector(self) -> Detector:
        """The face detector, made at its first use for what the policy then says is to be found.

        By default YuNet, with which each bundle's `framing` was measured.
        """
        if self._detector is None:
            self._detector = shipped_detector("yunet", self.policy.searched)
        return self._detector

    @detector.setter
    def detector(self, detector: Detector) -> None:
        self._detector = detector

    @cached_property
    def finder(self) -> Detector:
        """Finds the eyes in a box; somebody was sure that it shows a face, so little has to speak for one."""
        return shipped_detector("yunet", SEARCHED / 8, threshold=LEAST_SCORE)

    @property
    def on_processor(self) -> bool:
        """Whether the method computes on the processor, where other threads take cores from it."""
        return self.method.on_processor

    def keys(self, secrets: Sequence[Secret]) -> Array:
        """The keys `(B, *key_shape)` of B secrets, for `draw`."""
        drawn = {}
        for secret in secrets:
            # The faces of a batch mostly share one secret, whose key is then drawn once.
            if id(secret) not in drawn:
                drawn[id(secret)] = self.method.key(secret)
        return np.stack([drawn[id(secret)] for secret in secrets])

    def anonymize(
        self, photo: Photo, secret: Secret, aligned: bool = False, again: bool = False
    ) -> Image.Image | NDArray[np.uint8]:
        """The photo with every face replaced.

        Args:
            photo: Path, PIL image or RGB array `(H, W, 3)` uint8.
            secret: The key, from which the stranger is chosen.
            aligned: The picture is itself one aligned square face, so nothing is detected.
            again: Anonymize also what carries recovery data already, and keep them inside the new ones.

        Returns:
            An array for an array; else a PIL image with the manifest in `info["faceanon"]`. An array carries no
            manifest: a method whose way back is a sealed code cannot recover it, which a warning says. Where it is to
            come back, take `anonymize_with_manifest`.

        Raises:
            UserError: If the photo cannot be read, shows no face, or carries recovery data already.
        """
        if isinstance(photo, np.ndarray) and self.method.sealed:
            line = "an array carries no sealed codes, so nothing brings its faces back; take anonymize_with_manifest"
            warnings.warn(line, stacklevel=2)
        return self.anonymize_with_manifest(photo, secret, aligned, again)[0]

    def anonymize_with_manifest(
        self, photo: Photo, secret: Secret, aligned: bool = False, again: bool = False
    ) -> tuple[Image.Image | NDArray[np.uint8], Manifest]:
        """As `anonymize`, with what `recover(..., manifest=...)` needs beside the picture and the secret.

        Returns:
            The picture, and its manifest; `to_json` and `from_json` of it serve to keep it.

        Raises:
            UserError: As `anonymize`.
        """
        hidden = self.anonymize_photo(admitted(load_photo(photo), again), secret, aligned).photo
        return _like(photo, hidden), read_manifest(hidden)

    def recover(
        self,
        photo: Photo,
        secret: Secret,
        aligned: bool = False,
        manifest: Manifest | None = None,
        force: bool = False,
    ) -> Image.Image | NDArray[np.uint8]:
        """The photo with the original persons back, where the secret is right.

        Args:
            photo: Path, PIL image or RGB array `(H, W, 3)` uint8, as `anonymize` gave it.
            secret: The key it was anonymized with.
            aligned: The picture is itself one aligned square face.
            manifest: Of `anonymize_with_manifest`; by default what the photo carries. An array carries nothing: its
                faces are detected again, with a warning, since the anonymized face may be found a little aside. What
                a method with sealed codes has made cannot be recovered without its manifest.
            force: Also recover a picture that looks otherwise than it did.

        Returns:
            An array for an array, else a PIL image. A picture that was turned or mirrored comes back upright. One that
            was anonymized twice carries its first manifest.

        Raises:
            UserError: If the photo cannot be read, was changed since, was anonymized with other weights, or lacks the
                sealed codes that the method needs.
        """
        loaded = load_photo(photo)
        if manifest is None and loaded.manifest is not None:
            manifest = read_manifest(loaded)
        if manifest is None and self.method.sealed:
            raise UserError(
                f"{loaded.name} carries no sealed codes of its faces, without which this model brings nobody back; "
                "give the file as it was written, or the manifest of anonymize_with_manifest"
            )
        if manifest is not None:
            loaded = fitted(loaded, manifest, force)
        else:
            if not aligned:
                warnings.warn("no manifest: detecting the anonymized faces again; recovery is inexact", stacklevel=2)
            manifest = self.describe(loaded, self.find(loaded, aligned))
        return _like(photo, self.recover_photo(loaded, secret, manifest).photo)

    def anonymize_photo(
        self,
        photo: LoadedPhoto,
        secret: Secret,
        aligned: bool = False,
        lock: Lock | None = None,
    ) -> Outcome:
        """`anonymize` on a decoded photo; `lock` goes into the manifest."""
        return self.drive(self.anonymizing(photo, secret, aligned, lock), secret)

    def recover_photo(self, photo: LoadedPhoto, secret: Secret, manifest: Manifest) -> Outcome:
        """`recover` on a decoded photo.

        Raises:
            UserError: If the method cannot recover, or the photo was made with other weights.
        """
        return self.drive(self.recovering(photo, manifest, secret), secret, inverse=True)

    def anonymizing(
        self,
        photo: LoadedPhoto,
        secret: Secret,
        aligned: bool = False,
        lock: Lock | None = None,
        encoding: str = "PNG",
    ) -> Steps:
        """Replace every face of a photo: detect, align, anonymize, paste.

        Args:
            photo: The original; recovery data that it carries are kept inside the new ones.
            secret: Seals the codes of the faces, for a method that needs them to recover.
            aligned: The picture is itself one aligned square face.
            lock: For whom the file opens, for the manifest; None: the caller keeps the secret himself.
            encoding: For the manifest.

        Yields:
            Faces for the model; is to be sent as many anonymized ones, of a sealed method with their codes.

        Raises:
            UserError: If there is no face, none is wanted, or one must not be hidden in another way.
        """
        method = self.method
        method.prepare(inverse=False)
        # The photo itself stays as it was: a vault may still want its pixels.
        pixels = photo.pixels.copy()
        height, width = pixels.shape[:2]

        # Detect. Every face gets a treatment by the policy: the model's, or a classical one if it is too small for it.
        faces = self.faces(photo, aligned)
        refuse_hopeless(faces, photo.name)
        for face in faces:
            if face.treatment in SMALL_FACES:
                # Before anything is cropped: a small face can lie inside the square of a large one.
                hide(pixels, face)

        # Align. The square of a face says what is cropped; squares that overlap lie in different layers.
        owners: dict[CropGeometry, Face] = {}
        for face in faces:
            if face.geometry is not None and face.treatment == "model":
                owners[face.geometry] = face
        strangers = {geometry: face.stranger for geometry, face in owners.items()}
        if any(strangers.values()) and method.reversible and not method.sealed:
            raise UserError(f"{photo.name}: {self.name} gives each key one stranger; recovery would not find another")
        layers = arrange_layers(list(owners))

        # Anonymize and paste. What recovery will bring back is the face as it is now, with the layers below changed.
        done: list[list[CropGeometry]] = []
        codes: dict[CropGeometry, bytes] = {}
        for layer in layers:
            failed = yield from change_layer(pixels, layer, self.sizes, method.sealed, codes, strangers)
            for geometry in failed:
                spoilt = owners[geometry].hidden_by(self.policy.small, "the model failed on it")
                refuse_hopeless([spoilt], photo.name)
                hide(pixels, spoilt)
                # Faces are numbered from 1 in the order of the list.
                faces[spoilt.number - 1] = spoilt
            # What the model failed on was hidden for good, and recovery must not look for it.
            changed = []
            for geometry in layer:
                if geometry not in failed:
                    changed.append(geometry)
            if changed:
                done.append(changed)

        # Say in the manifest what recovery needs.
        small = []
        for face in faces:
            if face.treatment in SMALL_FACES:
                small.append(HiddenFace(face.box, face.treatment))
        hidden = tuple(small)
        manifest = self.manifest(width, height, done)
        manifest = replace(manifest.locked(lock or Lock()), hidden=hidden, encoding=encoding)
        manifest = replace(manifest, signature=signature_of(pixels, manifest.layers))
        if photo.manifest is not None:
            manifest = replace(manifest, earlier=read_manifest(photo))
        if method.sealed:
            manifest = with_codes(manifest, codes, secret)
        count = manifest.faces + len(hidden)
        if count == 0:
            raise UserError(f"{photo.name}: every face is to be left ({faces[0].reason}), so there is nothing to do")
        left = 0
        for face in faces:
            if face.treatment == "left":
                left += 1
        coarse = count_coarse(manifest.layers, method.face_sizes[0])
        photo = replace(photo, pixels=pixels, manifest=manifest.to_json())
        return Outcome(photo, count, coarse, len(hidden), left, tuple(faces))

    def recovering(self, photo: LoadedPhoto, manifest: Manifest, secret: Secret, deniable: bool = False) -> Steps:
        """Bring every face of a photo back, the layers in the opposite order.

        Args:
            photo: The anonymized photo.
            manifest: Of the photo.
            secret: The key of the file.
            deniable: Where a sealed code does not open, draw another stranger under this secret instead of saying so.

        Yields:
            As `anonymizing`; of a method with sealed codes only the faces that are to become other strangers.

        Raises:
            WrongPasswordError: If a sealed code does not open, unless `deniable`.
            UserError: If the method cannot recover, the photo was made with other weights, or its faces are no faces.
        """
        self.check(manifest, photo.name)
        method = self.method
        method.prepare(inverse=True)
        codes = None
        if method.sealed:
            codes = _opened_or_none(manifest, secret, photo.name, deniable)
        pixels = photo.pixels.copy()
        # The last layer lies on top: it comes off first, as squares of different layers overlap.
        for layer in reversed(manifest.layers):
            if codes is not None:
                bring_back_layer(pixels, layer, codes, self.from_codes, photo.name)
                continue
            failed = yield from change_layer(pixels, layer, self.sizes, method.sealed, {}, {})
            # Of a sealed method these are other strangers. Where it cannot draw one, the first stays, and nothing is
            # said.
            if failed and not method.sealed:
                raise UserError(f"{photo.name}: the model gives no picture for one of its faces; is the file damaged?")
        coarse = count_coarse(manifest.layers, method.face_sizes[0])
        return Outcome(taken_back(photo, manifest, pixels), manifest.faces, coarse, len(manifest.hidden))

    def faces(self, photo: LoadedPhoto, aligned: bool = False) -> list[Face]:
        """The faces of a photo, numbered, with what is to be done to each; nothing is changed.

        Raises:
            NoFaceError: If there is none.
            UserError: If an aligned picture is not square, or the policy names a face that is not there.
        """
        height, width = photo.pixels.shape[:2]
        if aligned:
            check_aligned(width, height, photo.name)
            return [Face(1, (0.0, 0.0, width, height), 1.0, whole_picture(width, height), "model")]
        boxes = self.boxes
        if boxes is not None:
            decided = boxes.of(photo.name, width, height)
            found = detections(decided, photo.pixels, self.finder)
        else:
            found = self.detector.detect(photo.pixels)
        if not found:
            where = "found" if boxes is None else f"in {boxes.name}"
            raise NoFaceError(f"no face {where} in {photo.name}; for a picture that is itself a face say --aligned")
        policy = self.policy
        framing = self.method.framing
        if self.people is not None:
            # Everybody first: people are recognised among numbered faces, and their numbers then join the policy.
            everybody = decide(found, width, height, framing, policy.everybody(), photo.name)
            policy = self.people.numbered(photo.pixels, everybody, policy)
        faces = decide(found, width, height, framing, policy, photo.name)
        return faces if boxes is None else as_decided(faces, decided, boxes.name)

    def find(self, photo: LoadedPhoto, aligned: bool = False) -> Layers:
        """Where the faces are that the model can be applied to, in layers.

        Raises:
            NoFaceError: If no face is found.
            UserError: If an aligned picture is not square.
        """
        return arrange_layers(squares(self.faces(photo, aligned)))

    def drive(self, steps: Steps, secret: Secret, inverse: bool = False) -> Outcome:
        """Take `steps` to their end, alone."""
        changed: list[Row] | None = None
        while True:
            try:
                if changed is not None:
                    faces, strangers = steps.send(changed)
                else:
                    faces, strangers = next(steps)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            rows: list[Row] = []
            for start in range(0, len(faces), self.batch):
                part = faces[start : start + self.batch]
                secrets = [secret.after(number) for number in strangers[start : start + self.batch]]
                rows += self.draw(part, self.keys(secrets), inverse)
            changed = rows

    def draw(self, faces: Array, keys: Array, inverse: bool = False) -> list[Row]:
        """As `change`, face by face; anonymizing by a sealed method each with the code of its original."""
        # Codes of faces that are anonymized already would bring strangers back.
        if inverse or not self.method.sealed:
            return [(face, None) for face in self.change(faces, keys, inverse)]
        drawn, codes = self.method.anonymize_with_codes(faces, keys)
        return list(zip(drawn, codes, strict=True))

    def change(self, faces: Array, keys: Array, inverse: bool = False) -> Array:
        """One call of the method.

        Args:
            faces: `(B, 3, S, S)` in [-1, 1].
            keys: `(B, *key_shape)`.
            inverse: Recover instead of anonymize. A method whose way back is a sealed code can do nothing else with a
                key than draw another stranger.

        Returns:
            `(B, 3, S, S)`, not clamped.
        """
        if not inverse:
            return self.method.anonymize(faces, keys)
        if self.method.sealed:
            return self.method.deny(faces, keys)
        return self.method.recover(faces, keys)

    def from_codes(self, faces: Array, codes: Sequence[bytes]) -> Array:
        """Faces brought back from their codes.

        Args:
            faces: Anonymized `(B, 3, S, S)` in [-1, 1].
            codes: Of the originals, one each.

        Returns:
            `(B, 3, S, S)`, not clamped.

        Raises:
            UserError: If a code is damaged, or of faces of another size.
        """
        recovered = []
        for start in range(0, len(faces), self.batch):
            part = slice(start, start + self.batch)
            recovered.append(self.method.recover_from(faces[part], codes[part]))
        return np.concatenate(recovered)

    def check(self, manifest: Manifest, name: str) -> None:
        """Refuse what this model cannot recover.

        Raises:
            UserError: If the method is not reversible, or the weights differ.
        """
        if not self.method.reversible:
            raise UserError(f"{self.method.method.rpartition('.')[2]} cannot recover faces; nothing brings {name} back")
        if not self.made(manifest.weights):
            theirs = f"{manifest.model} ({manifest.weights[:12]})"
            ours = f"{self.name} ({self.weights[:12]})"
            raise UserError(f"{name} was anonymized with {theirs} but the model is {ours}; give the former by --model")

    def made(self, weights: str) -> bool:
        """Whether `weights` is the hash of this model's weights."""
        return weights == self.weights

    def describe(self, photo: LoadedPhoto, layers: Layers) -> Manifest:
        """The manifest of a photo whose faces lie in these layers."""
        height, width = photo.pixels.shape[:2]
        return self.manifest(width, height, layers)

    def manifest(self, width: int, height: int, layers: Layers = ()) -> Manifest:
        """The manifest of a picture of this size, in pixels, whose faces lie in these layers."""
        return Manifest(
            method=self.method.method,
            model=self.name,
            weights=self.weights,
            image_size=self.method.image_size,
            width=width,
            height=height,
            layers=tuple(tuple(layer) for layer in layers),
        )


def _like(photo: Photo, result: LoadedPhoto) -> Image.Image | NDArray[np.uint8]:
    if isinstance(photo, np.ndarray):
        return result.pixels
    return to_image(result)


def _opened_or_none(manifest: Manifest, secret: Secret, name: str, deniable: bool) -> dict[CropGeometry, bytes] | None:
    """The opened codes; None where they do not open and nobody is to know."""
    try:
        return opened_codes(manifest, secret, name)
    # Deniable recovery answers a wrong password with another face, as a method without sealed codes does.
    except WrongPasswordError:
        if not deniable:
            raise
        return None
