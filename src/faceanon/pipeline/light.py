"""The pipeline of photos without torch, for the model of photographs that ships (`light`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from faceanon.key import KdfParameters, Secret
from faceanon.light.method import RECOVERING, LightPersona
from faceanon.light.networks import Array
from faceanon.light.pictures import LightPictures
from faceanon.manifest import Manifest
from faceanon.photo.detect import Detector, shipped_detector
from faceanon.photo.file import LoadedPhoto
from faceanon.photo.pictures import Faces
from faceanon.photo.policy import Policy
from faceanon.pipeline.photo import CPU_BATCH, Pipeline
from faceanon.pipeline.steps import Row, Steps


class LightPipeline(Pipeline):
    """`Pipeline` on numpy and onnxruntime, on the CPU; faces are arrays where there they are tensors.

    What it writes a `Pipeline` of the same model brings back, and the other way round; a password gives the same
    stranger in both.

    Args:
        method: The model.
        detector: Finds the faces; YuNet when None.
        batch: Most faces in one call of the networks.
        policy: Which faces are for the model, and what hides the others.

    Examples:
        >>> from faceanon.key import Secret
        >>> from faceanon.light.method import LightPersona
        >>> from faceanon.paths import checkpoints
        >>> from faceanon.photo.party import photo_party
        >>> from faceanon.pipeline.light import LightPipeline
        >>> pipeline = LightPipeline(LightPersona(checkpoints() / "persona_photo128"))
        >>> hidden = pipeline.anonymize(photo_party(), Secret.random(0))
        >>> pipeline.recover(hidden, Secret.random(0)).size == hidden.size
        True
    """

    def __init__(
        self,
        method: LightPersona,
        detector: Detector | None = None,
        batch: int = CPU_BATCH,
        policy: Policy | None = None,
    ) -> None:
        # Not the base's: it moves a backbone of torch to its device.
        self.backbone = method  # type: ignore[assignment]
        self.persona = method
        self.weights = method.weights
        self.name = method.name
        self.batch = batch
        self.policy = policy or Policy()
        self.largest = None
        self.people = None
        self.pictures = LightPictures()
        self._detector = detector

    @classmethod
    def load(  # type: ignore[override]
        cls, path: str | Path, detector: Detector | None = None, batch: int = CPU_BATCH
    ) -> LightPipeline:
        """A pipeline from the folder of a trained model.

        Raises:
            UnfitError: If the graphs that ship do not describe this model.
            UserError: If a file is missing or damaged.
        """
        return cls(LightPersona(Path(path)), detector, batch)

    @property
    def on_processor(self) -> bool:
        """True: onnxruntime runs these graphs on the CPU, whatever else the machine has."""
        return True

    @property
    def detector(self) -> Detector:
        """The face detector, made at its first use for what the policy then says is to be found."""
        if self._detector is None:
            self._detector = shipped_detector("yunet", self.policy.searched)
        return self._detector

    @detector.setter
    def detector(self, detector: Detector) -> None:
        self._detector = detector

    def keys(self, secrets: Sequence[Secret]) -> Faces:
        """The keys `(B, F, F)` of B secrets, for `draw`."""
        return np.stack([self.persona.key(secret) for secret in secrets])

    def anonymizing(
        self,
        photo: LoadedPhoto,
        secret: Secret,
        aligned: bool = False,
        salt: bytes | None = None,
        kdf: KdfParameters | None = None,
        encoding: str = "PNG",
    ) -> Steps:
        """As in `Pipeline`; the networks are opened while faces are looked for."""
        self.persona.run.open(self.persona.networks)
        return super().anonymizing(photo, secret, aligned, salt, kdf, encoding)

    def recovering(self, photo: LoadedPhoto, manifest: Manifest, secret: Secret, deniable: bool = False) -> Steps:
        """As in `Pipeline`; the networks that recovery takes are opened first."""
        self.persona.run.open(RECOVERING)
        return super().recovering(photo, manifest, secret, deniable)

    def draw(self, faces: Faces, keys: Faces, inverse: bool = False) -> list[Row]:
        """Strangers' faces and, unless `inverse`, the codes of the originals."""
        # Codes of faces that are anonymized already would bring strangers back.
        if inverse:
            return [(face, None) for face in self.persona.deny(faces, keys)]
        return list(zip(*self.persona.anonymize_with_codes(faces, keys), strict=True))

    def change(self, faces: Faces, keys: Faces, inverse: bool = False) -> Faces:
        """Strangers' faces `(B, 3, S, S)`; a key brings nobody back, and `inverse` draws other strangers."""
        if inverse:
            return self.persona.deny(faces, keys)
        return self.persona.anonymize_with_codes(faces, keys)[0]

    def codes_of_faces(self, faces: Faces) -> list[bytes]:
        """Codes, not yet sealed, of faces."""
        return self.persona.code_of(faces)

    def from_codes(self, faces: Faces, codes: Sequence[bytes]) -> Array:
        """Faces brought back from their codes, `(B, 3, S, S)`.

        Raises:
            UserError: If a code is damaged, or of faces of another size.
        """
        recovered = []
        for start in range(0, len(faces), self.batch):
            part = slice(start, start + self.batch)
            recovered.append(self.persona.recover_from(faces[part], list(codes[part])))
        return np.concatenate(recovered)
