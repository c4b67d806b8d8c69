"""Recovery from a vault: the original pixels themselves, without the model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from faceanon.errors import UserError
from faceanon.key import Password, Secret
from faceanon.manifest import Manifest
from faceanon.photo.exif import ALL
from faceanon.photo.file import LoadedPhoto, load_photo, read_manifest, read_vault, write_photo
from faceanon.photo.metadata import is_lossless
from faceanon.photo.policy import Policy
from faceanon.photo.signature import fitted
from faceanon.photo.vault import VaultOriginals, unseal
from faceanon.pipeline.earlier import taken_back
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.steps import Outcome, Steps
from faceanon.pipeline.tasks import Output
from faceanon.sealed.openers import Openers, openers


class _NoModel(Pipeline):
    """Is asked for no face, and needs no torch."""

    def __init__(self) -> None:
        # Not the base's, which builds on a backbone.
        self.backbone = None  # type: ignore[assignment]
        self.weights = "none"
        self.name = "none"
        self.batch = 1
        self.policy = Policy()
        self.people = None
        self.largest = None

    @property
    def on_processor(self) -> bool:
        """There is nothing to compute."""
        return True


def no_model() -> Pipeline:
    """What stands in the place of a model where none is needed."""
    return _NoModel()


def check_exact(target: Path, output: Output) -> None:
    """Refuse to write what was restored exactly into a file that does not keep it.

    Raises:
        UserError: If the format is lossy.
    """
    if not is_lossless(target, output.quality):
        raise UserError(f"{target}: --exact needs a file that keeps every pixel: .png, or .webp without --quality")


@dataclass
class ExactTask:
    """Bring the original faces of one photo back from its vault.

    Args:
        pipeline: Plays no part; a run over a folder names its model.
        source: The anonymized picture.
        target: What to write, lossless.
        password: Opens the vault; or an identity.
        output: How to write.
        force: Also recover a picture that looks otherwise than it did.
    """

    pipeline: Pipeline
    source: Path
    target: Path
    password: Password | Openers = field(repr=False)
    output: Output = field(default_factory=Output)
    force: bool = False
    inverse: bool = field(default=True, init=False)
    pixels: int = field(default=0, init=False)

    def start(self) -> tuple[Steps, Secret]:
        """Decode the photo and open its vault.

        Raises:
            UserError: If it has none, the vault is damaged, or the password is wrong.
        """
        check_exact(self.target, self.output)
        photo = load_photo(self.source, ALL)
        self.pixels = photo.pixels.shape[0] * photo.pixels.shape[1]
        manifest = read_manifest(photo)
        photo = fitted(photo, manifest, self.force)
        vault = read_vault(self.source)
        if vault is None:
            raise UserError(
                f"{self.source} has no vault: it was made without --vault, or has lost it; leave --exact away"
            )
        secret = openers(self.password).open(manifest.lock, str(self.source))
        originals = unseal(vault, secret, manifest, str(self.source))
        return _restoring(photo, originals, manifest), secret

    def finish(self, outcome: Outcome) -> Outcome:
        """Write the recovered photo to the target; the outcome comes back as it is."""
        write_photo(self.target, outcome.photo, self.output.quality)
        return outcome


def _restoring(photo: LoadedPhoto, originals: VaultOriginals, manifest: Manifest) -> Steps:
    """As the other steps, but no face is for the backbone."""
    pixels = photo.pixels.copy()
    notes = photo.notes
    # Makes a generator of this, which asks for no face.
    yield from ()
    if not originals.restore(pixels):
        notes = (
            *notes,
            f"the faces are exact; around them the picture is as {manifest.encoding}, or a later change, left it",
        )
    photo = taken_back(replace(photo, notes=notes), manifest, pixels)
    return Outcome(photo, len(originals.regions), 0)
