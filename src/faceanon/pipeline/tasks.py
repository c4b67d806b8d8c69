"""One photo from file to file, in parts that different threads may do: start, the backbone's turns, finish."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from faceanon.errors import UserError
from faceanon.key import KdfParameters, Password, Secret
from faceanon.manifest import Manifest
from faceanon.photo.align import crop_window
from faceanon.photo.c2pa import Credentials
from faceanon.photo.exif import ALL
from faceanon.photo.file import LoadedPhoto, load_carried, load_photo, read_manifest, read_vault, write_photo
from faceanon.photo.metadata import JPEG_QUALITY, WRITABLE, check_suffix, is_lossless
from faceanon.photo.signature import fitted
from faceanon.photo.vault import seal, touched
from faceanon.pipeline.earlier import admitted
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.steps import Outcome, Steps
from faceanon.sealed.openers import Openers, check_deniable, openers
from faceanon.sealed.pixels import embed


@dataclass(frozen=True)
class Output:
    """How a picture is written.

    Args:
        quality: 1 to 100 for JPEG (95 by default) and WebP (exact by default).
        sidecar: The manifest goes beside the picture instead of into it.
        vault: Keep the original faces too, encrypted, for exact recovery.
        carry: Write the manifest also into the lowest bits of the faces' pixels, from which it is read where a file has
            lost its metadata.
        mark: Say in the file that trained algorithms made a part of the picture (`faceanon.photo.mark`).
        keep: Kinds of the original's EXIF data that stay, of `faceanon.photo.exif.KINDS`.
        credentials: Sign the file, by C2PA.

    Raises:
        UserError: If the quality is out of range.
    """

    quality: int | None = None
    sidecar: bool = False
    vault: bool = False
    carry: bool = False
    mark: bool = True
    keep: frozenset[str] = frozenset()
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise UserError(f"quality must be 1 to 100, not {self.quality}")

    def encoding(self, target: Path) -> str:
        """What the manifest says of the file, such as `JPEG 95`.

        Raises:
            UserError: If its format is none that is written, or one that does not keep what pixels are to carry.
        """
        check_suffix(target)
        if self.carry and not is_lossless(target, self.quality):
            raise UserError(
                f"{target}: --carry pixels needs a file that keeps every pixel: .png, or .webp without --quality"
            )
        kind = WRITABLE[target.suffix.lower()]
        quality = self.quality or (JPEG_QUALITY if kind == "JPEG" else None)
        if kind == "PNG" or quality is None:
            return kind
        return f"{kind} {quality}"


class Task(Protocol):
    """A photo that is to be changed; the methods are called once each, in this order, by any thread."""

    pipeline: Pipeline
    source: Path
    target: Path
    inverse: bool
    pixels: int  # of the photo, once it is decoded

    def start(self) -> tuple[Steps, Secret]:
        """Decode the photo; nothing is written."""
        ...

    def finish(self, outcome: Outcome) -> Outcome:
        """Write the result; gives back what is to be reported."""
        ...


@dataclass
class AnonymizeTask:
    """Hide the faces of one photo.

    Args:
        pipeline: The model.
        source: Any picture.
        target: What to write.
        password: Gives the key; or recipients, for whom it is sealed.
        salt: Salt of the run; the password's own when None.
        kdf: Cost of the run's derivation, likewise.
        aligned: The picture is itself one aligned face.
        output: How to write.
        again: Anonymize also what carries recovery data already, and keep them inside the new ones.
    """

    pipeline: Pipeline
    source: Path
    target: Path
    password: Password | Openers = field(repr=False)
    salt: bytes | None = None
    kdf: KdfParameters | None = None
    aligned: bool = False
    output: Output = field(default_factory=Output)
    again: bool = False
    inverse: bool = field(default=False, init=False)
    pixels: int = field(default=0, init=False)
    _vault: bytes | None = field(default=None, init=False, repr=False)
    _original: LoadedPhoto | None = field(default=None, init=False, repr=False)
    _secret: Secret | None = field(default=None, init=False, repr=False)

    def start(self) -> tuple[Steps, Secret]:
        """Decode the photo and derive the secret; nothing is written yet."""
        photo = admitted(load_photo(self.source, self.output.keep), self.again)
        self._vault = self._earlier_vault(photo)
        # For a vault alone: large photos should not lie in memory twice.
        self._original = photo if self.output.vault else None
        self.pixels = photo.pixels.shape[0] * photo.pixels.shape[1]
        # Before the key derivation, which is slow on purpose: a name that cannot be written is refused here.
        encoding = self.output.encoding(self.target)
        own = openers(self.password)
        secret, lock = own.of_run(self.salt or own.salt, self.kdf or own.kdf).new_key()
        self._secret = secret
        return self.pipeline.anonymizing(photo, secret, self.aligned, lock, encoding), secret

    def finish(self, outcome: Outcome) -> Outcome:
        """Write the photo, and with `Output.vault` its original faces."""
        vault = self._vault
        if self._original is not None and self._secret is not None:
            vault = self._sealed(self._original, self._secret, outcome)
        if self.output.carry:
            self._carry(outcome)
        photo = replace(outcome.photo, marked=self.output.mark)
        write_photo(self.target, photo, self.output.quality, self.output.sidecar, vault, self.output.credentials)
        self._original = None
        self._secret = None
        return replace(outcome, kept=self.output.vault)

    def _earlier_vault(self, photo: LoadedPhoto) -> bytes | None:
        """The vault of a photo that was anonymized before, which stays with it."""
        if photo.manifest is None:
            return None
        vault = read_vault(self.source)
        if vault is not None and self.output.vault:
            raise UserError(f"{self.source} has a vault already, and a file holds one; leave --vault away")
        return vault

    def _carry(self, outcome: Outcome) -> None:
        """Write the manifest into the pixels of the faces."""
        manifest = read_manifest(outcome.photo)
        pixels = outcome.photo.pixels
        height, width = pixels.shape[:2]
        windows = []
        for layer in manifest.layers:
            for geometry in layer:
                windows.append(crop_window(geometry, width, height))
        try:
            embed(pixels, windows, manifest.to_json().encode())
        except UserError as error:
            raise UserError(f"{outcome.photo.name}: {error}") from error

    def _sealed(self, original: LoadedPhoto, secret: Secret, outcome: Outcome) -> bytes:
        height, width = original.pixels.shape[:2]
        manifest = read_manifest(outcome.photo)
        return seal(original.pixels, touched(outcome.records, width, height), secret, manifest)


@dataclass
class RecoverTask:
    """Bring the faces of one photo back.

    Args:
        pipeline: The model.
        source: The anonymized picture.
        target: What to write.
        password: Gives the key; or an identity, which opens it.
        output: How to write.
        like: Manifest of another file of the same run, for a source that has lost its own.
        deniable: Under a wrong password draw other strangers instead of saying so, where the method's codes tell.
        force: Also recover a picture that looks otherwise than it did.
    """

    pipeline: Pipeline
    source: Path
    target: Path
    password: Password | Openers = field(repr=False)
    output: Output = field(default_factory=Output)
    like: Manifest | None = None
    deniable: bool = False
    force: bool = False
    inverse: bool = field(default=True, init=False)
    pixels: int = field(default=0, init=False)
    _redetected: bool = field(default=False, init=False)

    def start(self) -> tuple[Steps, Secret]:
        """Decode the photo and read, or make up for, its manifest."""
        # What `anonymize` kept of the original's EXIF data stays.
        photo = load_photo(self.source, ALL)
        if photo.manifest is None:
            # Somebody has stripped the metadata, but the pixels may carry the same.
            photo = load_carried(self.source) or photo
        self.pixels = photo.pixels.shape[0] * photo.pixels.shape[1]
        # Called for its check: a name that cannot be written is refused before the model works.
        self.output.encoding(self.target)
        if photo.manifest is None and self.like is not None:
            manifest = self._found_again(photo, self.like)
            self._redetected = True
        else:
            manifest = self._own(photo)
            photo = fitted(photo, manifest, self.force)
        self.pipeline.check(manifest, photo.name)
        if self.deniable:
            check_deniable(manifest.lock, str(self.source))
        secret = openers(self.password).open(manifest.lock, str(self.source))
        return self.pipeline.recovering(photo, manifest, secret, self.deniable), secret

    def finish(self, outcome: Outcome) -> Outcome:
        """Write the recovered photo, and add to the outcome whether its faces had to be detected again."""
        # One that was anonymized twice keeps the vault of the first time.
        vault = None if outcome.photo.manifest is None else read_vault(self.source)
        photo = outcome.photo
        if self.deniable:
            photo = replace(photo, marked=False)
        write_photo(self.target, photo, self.output.quality, vault=vault)
        return replace(outcome, redetected=self._redetected)

    def _own(self, photo: LoadedPhoto) -> Manifest:
        if photo.manifest is None:
            raise UserError(
                f"{self.source} carries no faceanon data: give the file as `faceanon anonymize` wrote it, or, if its "
                "metadata were stripped, also --like FILE, another file of the same run"
            )
        manifest = read_manifest(photo)
        if not manifest.layers:
            methods = ", ".join(sorted({face.by for face in manifest.hidden}))
            way = "only --exact brings them back"
            if read_vault(self.source) is None:
                way = "nothing brings them back"
            raise UserError(f"every face of {self.source} was hidden for good ({methods}); {way}")
        return manifest

    def _found_again(self, photo: LoadedPhoto, like: Manifest) -> Manifest:
        if like.wrapped is not None:
            raise UserError(
                f"{self.source} has lost its key: each file for recipients has one of its own, so --like cannot help"
            )
        layers = self.pipeline.find(photo)
        height, width = photo.pixels.shape[:2]
        own = tuple(map(tuple, layers))
        # Its hidden faces and codes are those of the other file.
        return replace(like, width=width, height=height, layers=own, hidden=(), codes=())


def run_task(task: Task) -> Outcome:
    """Do one task from start to finish in this thread; what was done."""
    steps, secret = task.start()
    return task.finish(task.pipeline.drive(steps, secret, task.inverse))
