"""The files of a study: originals, anonymized, recovered and wrongly opened pictures, each written by the product.

Every picture has a folder of its own in the cache, with one PNG a version. A version that is there is not made again,
so an interrupted study resumes where it was.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon import __version__
from faceanon.backbones.base import Backbone
from faceanon.backbones.persona_cells import soft_edge
from faceanon.backbones.pictures import WithoutCodes
from faceanon.data.files import read_photo
from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.key import KdfParameters, Password
from faceanon.landmarks.album import Album
from faceanon.landmarks.cast import FILE as CAST_FILE
from faceanon.metrics.quality import psnr
from faceanon.photo.file import load_photo, read_manifest
from faceanon.pipeline.many.engine import run_tasks, usual_workers
from faceanon.pipeline.many.meeting import Casting, casting, meet
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.steps import Outcome
from faceanon.pipeline.tasks import AnonymizeTask, RecoverTask, Task
from faceanon.report.sheets import png_bytes
from faceanon.sealed.envelope import WrongPasswordError
from faceanon.studies.photographs.people import Person, Picture
from faceanon.weights.bundle import Bundle
from faceanon.weights.shipped import shipped_sha256

ORIGINAL = "original"
ROUND_TRIP = "round-trip"
CACHE_VERSION = 2
# Cheap on purpose: what guessing a password costs is no figure of this study, and every process derives all keys.
KDF = KdfParameters(memory_kib=1024, iterations=1, lanes=1)


@dataclass(frozen=True)
class PhotographsSetting:
    """What decides the files of a study.

    Args:
        side: Side of the pictures in the files, in pixels.
        passwords: Number of passwords under which each picture is anonymized.
        reversible: Whether pictures are recovered too, rightly and wrongly.
        sealed: Whether the method refuses wrong passwords, or draws another stranger where it is asked to (`deniable`).
        same_stranger: Whether the pictures of all persons are anonymized as one folder in which a person becomes one
            stranger.
    """

    side: int
    passwords: int
    reversible: bool = True
    sealed: bool = False
    same_stranger: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.passwords <= 100:
            raise UserError(f"{self.passwords} passwords: give 2 to 100; of one, nobody can say whether two are alike")
        if not 32 <= self.side <= 4096:
            raise UserError(f"pictures of {self.side} px: give a side of 32 to 4096 px")

    def versions(self, kind: str) -> list[str]:
        """Names of the versions of one kind, one a password; none where the method does not offer the kind.

        Kinds are `anonymized`; `recovered` with the right password; `wrong`, opened with a wrong one; and `deniable`,
        the same where nobody is to know that the password is wrong.
        """
        if kind in ("recovered", "wrong") and not self.reversible:
            return []
        if kind == "deniable" and not self.sealed:
            return []
        return [f"{kind}-{number}" for number in range(1, self.passwords + 1)]


class RoundTrip(WithoutCodes):
    """A method that changes nobody: every face goes through a bundle's codec once.

    Put through the same files as a model's pictures, it shows what the codec alone does to them. Where the model
    repaints some cells of a picture only, it is those that go through the codec, joined to the rest as the model's are:
    otherwise the codec's traces in the background would tell round trips from the model's pictures.

    Args:
        bundle: A bundle with a codec.
        image_size: Side of the faces in pixels; a multiple of 8.
        model: A method that says by `face_mask` which cells it repaints; None for the whole picture.
    """

    reversible = False
    key_shape = (1,)
    key_bits = None
    trained_by = ()
    licence = "no weights of its own"

    def __init__(self, bundle: Bundle, image_size: int, model: Backbone | None = None) -> None:
        super().__init__()
        self.bundle = bundle
        self.side = image_size
        self.model = model

    @property
    def image_size(self) -> int:
        """Side of the faces, in pixels."""
        return self.side

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """The round trip of `(B, 3, S, S)`; `key` is ignored."""
        picture: Tensor = self.bundle.codec(image)
        if self.model is None:
            return picture
        # Joined as the model joins its faces, or the edge would tell the two apart.
        edge = soft_edge(self.model.face_mask(image).float(), self.side)
        return image * (1 - edge) + picture * edge


def drawing_facts(pipeline: Pipeline) -> list[str]:
    """What a model's pictures depend on: method, weights, bundle and, where it puts faces on, the cast."""
    bundle = getattr(pipeline.backbone, "bundle", None)
    facts = [pipeline.backbone.method, pipeline.weights, "" if bundle is None else bundle.fingerprint]
    if isinstance(pipeline.backbone, Casting):
        # Its weights do not say whose faces these are.
        facts.append(shipped_sha256(CAST_FILE))
    return facts


def cache_name(pipeline: Pipeline, setting: PhotographsSetting) -> str:
    """Name of the cache's folder: it changes with the model and with the pictures' side, not with the passwords."""
    # The version of faceanon too, since another one may draw other pictures.
    facts = [CACHE_VERSION, __version__, *drawing_facts(pipeline), setting.side, setting.same_stranger]
    return hashlib.sha256(" ".join(map(str, facts)).encode()).hexdigest()[:16]


def place(cache: Path, picture: Picture, version: str) -> Path:
    """Where a version of a picture lies."""
    return cache / picture.key / f"{version}.png"


def refusal(cache: Path, picture: Picture, version: str) -> Path:
    """The file that stands in for a version whose password was refused; it holds the reason."""
    return cache / picture.key / f"{version}.refused"


def failure(cache: Path, picture: Picture, version: str) -> Path:
    """The file that says why a version could not be made, for another reason; the next run tries again."""
    return cache / picture.key / f"{version}.failed"


def read_pixels(path: Path) -> NDArray[np.uint8]:
    """RGB `(S, S, 3)` uint8 of a file of the study."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=np.uint8)


class Passwords:
    """The right and the wrong passwords of a study. Their salts are fixed, so that an interrupted study can resume.

    Args:
        count: Number of each.
    """

    def __init__(self, count: int) -> None:
        salts = []
        for number in range(count):
            salts.append(hashlib.sha256(f"faceanon/study/photographs/{number}".encode()).digest())
        self.right = [Password(f"right password {number}", salt[:16], KDF) for number, salt in enumerate(salts)]
        # Without a salt: whoever guesses takes that of the file.
        self.wrong = [Password(f"wrong password {number}") for number in range(count)]


def meet_everybody(
    people: Sequence[Person], pipeline: Pipeline, setting: PhotographsSetting, passwords: Passwords, cache: Path
) -> list[Album] | None:
    """Who becomes whom in all pictures, one album a password; None where the setting wants none.

    Raises:
        UserError: The model has no cast, or a picture cannot be read or is not square.
    """
    if not setting.same_stranger:
        return None
    sources = []
    # Who becomes whom is decided over the pictures of all persons, so all originals are needed first.
    for person in people:
        for picture in person.pictures:
            _make_original(picture, setting, cache)
            sources.append(place(cache, picture, ORIGINAL))
    albums = []
    for password in tqdm(passwords.right, desc="who is who", unit="password"):
        albums.append(meet(pipeline, sources, password.secret(), aligned=True, workers=usual_workers()))
    return albums


def make_pictures(
    person: Person,
    pipeline: Pipeline,
    round_trip: Pipeline | None,
    setting: PhotographsSetting,
    passwords: Passwords,
    cache: Path,
    albums: Sequence[Album] | None = None,
) -> dict[str, float]:
    """Make all versions of a person's pictures that are not there yet.

    Args:
        person: Whose pictures.
        pipeline: The model.
        round_trip: A pipeline over `RoundTrip`; None leaves that version out.
        setting: Which versions.
        passwords: As many as the setting says.
        cache: The study's cache.
        albums: Of `meet_everybody`.

    Returns:
        Seconds by step, and the number of pictures made by step under `STEP/pictures`.

    Raises:
        UserError: A picture cannot be read or is not square, or the product refuses to anonymize or to recover it.
    """
    spent: dict[str, float] = {}
    for picture in person.pictures:
        _make_original(picture, setting, cache)
    anonymize = list(_anonymizing(person, pipeline, setting, passwords, cache))
    if albums is None:
        _run(pipeline, anonymize, "anonymize", spent)
    else:
        _follow(albums, pipeline, anonymize, passwords, spent)
    if round_trip is not None:
        _run(round_trip, list(_tripping(person, round_trip, passwords, cache)), "round trip", spent)
    for step, kind, keys in (
        ("recover", "recovered", passwords.right),
        ("deny", "deniable", passwords.wrong),
        ("wrong password", "wrong", passwords.wrong),
    ):
        tasks = list(_recovering(person, pipeline, setting, keys, kind, cache))
        for task, reason in _run(pipeline, tasks, step, spent, may_fail=True):
            # A refused wrong password is a result, and is kept. Whatever else failed is tried again by the next run.
            refused = kind == "wrong" and isinstance(reason, WrongPasswordError)
            stands_in = task.target.with_suffix(".refused" if refused else ".failed")
            write_atomic(stands_in, f"{reason}\n".encode())
    return spent


def _make_original(picture: Picture, setting: PhotographsSetting, cache: Path) -> None:
    target = place(cache, picture, ORIGINAL)
    if target.is_file():
        return
    pixels, square = read_photo(picture.path, setting.side)
    if not square:
        raise UserError(f"{picture.path}: an aligned face must be square; align the pictures first")
    write_atomic(target, png_bytes(Image.fromarray(pixels)))


def _anonymizing(
    person: Person, pipeline: Pipeline, setting: PhotographsSetting, passwords: Passwords, cache: Path
) -> Iterator[AnonymizeTask]:
    for picture in person.pictures:
        source = place(cache, picture, ORIGINAL)
        for version, password in zip(setting.versions("anonymized"), passwords.right, strict=True):
            target = place(cache, picture, version)
            if not target.is_file():
                yield AnonymizeTask(pipeline, source, target, password, aligned=True)


def _follow(
    albums: Sequence[Album],
    pipeline: Pipeline,
    tasks: Sequence[AnonymizeTask],
    passwords: Passwords,
    spent: dict[str, float],
) -> None:
    """Anonymize under one password after the other, each with the album that was made under it."""
    method = casting(pipeline)
    try:
        for album, password in zip(albums, passwords.right, strict=True):
            method.album = album
            _run(pipeline, [task for task in tasks if task.password is password], "anonymize", spent)
    finally:
        # Deniable recovery knows no album.
        method.album = None


def _tripping(person: Person, round_trip: Pipeline, passwords: Passwords, cache: Path) -> Iterator[Task]:
    for picture in person.pictures:
        source = place(cache, picture, ORIGINAL)
        target = place(cache, picture, ROUND_TRIP)
        if not target.is_file():
            # The codec takes no key, but a task wants a password.
            yield AnonymizeTask(round_trip, source, target, passwords.right[0], aligned=True)


def _recovering(
    person: Person,
    pipeline: Pipeline,
    setting: PhotographsSetting,
    passwords: Sequence[Password],
    kind: str,
    cache: Path,
) -> Iterator[Task]:
    sources = setting.versions("anonymized")
    targets = setting.versions(kind)
    if not targets:
        return
    for picture in person.pictures:
        for source, target, password in zip(sources, targets, passwords, strict=True):
            made = place(cache, picture, target)
            if not made.is_file() and not refusal(cache, picture, target).is_file():
                anonymized = place(cache, picture, source)
                yield RecoverTask(pipeline, anonymized, made, password, deniable=kind == "deniable")


def _run(
    pipeline: Pipeline, tasks: Sequence[Task], step: str, spent: dict[str, float], may_fail: bool = False
) -> list[tuple[Task, UserError]]:
    """Do tasks of one kind in full batches of the backbone; gives back those that failed, with the reason.

    Raises:
        UserError: One failed, and none may.
    """
    if not tasks:
        return []
    start = time.perf_counter()
    failed: list[tuple[Task, UserError]] = []
    for task, result in run_tasks(pipeline, tasks, usual_workers(), pipeline.batch):
        if isinstance(result, Outcome):
            continue
        if not may_fail:
            raise result
        failed.append((task, result))
    spent[step] = spent.get(step, 0.0) + time.perf_counter() - start
    spent[f"{step}/pictures"] = spent.get(f"{step}/pictures", 0.0) + len(tasks)
    return failed


def failures(cache: Path, pictures: Sequence[Picture], setting: PhotographsSetting) -> dict[str, list[str]]:
    """Why versions could not be made, by kind; a password that was refused is no failure."""
    failed: dict[str, list[str]] = {}
    for kind in ("recovered", "wrong", "deniable"):
        for picture in pictures:
            for version in setting.versions(kind):
                path = failure(cache, picture, version)
                if path.is_file() and not place(cache, picture, version).is_file():
                    failed.setdefault(kind, []).append(path.read_text(encoding="utf-8").strip())
    return failed


def file_figures(cache: Path, picture: Picture, setting: PhotographsSetting) -> dict[str, NDArray[np.float64]]:
    """What the files themselves tell, `(K,)` each, one a password.

    Returns:
        `carried`: bytes of sealed code. `hidden`: 1 where the model could not be applied and the product hid the face
        in another way, else 0. `psnr`: dB of the recovered picture, infinite where it came back bit for bit, NaN where
        it did not come back; empty for a method without a way back.
    """
    original = read_pixels(place(cache, picture, ORIGINAL)).astype(np.float64)
    manifests = []
    for name in setting.versions("anonymized"):
        manifests.append(read_manifest(load_photo(place(cache, picture, name))))
    fidelity = []
    for version in setting.versions("recovered"):
        path = place(cache, picture, version)
        if not path.is_file():
            fidelity.append(np.nan)
            continue
        error = np.square((read_pixels(path) - original) / 255).mean()
        # What came back bit for bit stays infinite, which the table calls exact.
        fidelity.append(float(psnr(torch.tensor(error), ceiling=math.inf)))
    return {
        "carried": np.array([manifest.carried for manifest in manifests], np.float64),
        "hidden": np.array([len(manifest.hidden) for manifest in manifests], np.float64),
        "psnr": np.array(fidelity, np.float64),
    }
