"""Look at all photos of a folder before any is changed: who is in several of them, and who shall each become.

    photos --decode, find, crop (threads)--> faces --recogniser--> persons --cast + key--> `Album`

Each photo alone would choose the stranger anew: light, pose and the look at the result differ, so a person would
become several strangers (`docs/results/photographs.md`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.landmarks.album import Album, Meeting, joined
from faceanon.photo.crop_paste import crops
from faceanon.photo.file import load_photo
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.threads import in_order

Array = NDArray[np.float32]

SIDE = 128  # of the faces that are looked at, in pixels
AT_ONCE = 4  # photos a thread that are decoded before their faces are looked at


@runtime_checkable
class Casting(Protocol):
    """A method that puts faces of a cast on people, and can be told whose.

    Attributes:
        album: Persons who have a donor already, or None.
    """

    album: Album | None

    def embeddings(self, faces: Array) -> Array:
        """What a recogniser sees in faces `(B, 3, 128, 128)` in [-1, 1], `(B, E)` of unit length."""
        ...

    def donor_of_person(self, faces: Array, key: Any, used: Mapping[int, int]) -> int:  # noqa: ANN401
        """Number of the donor for one person's faces; `key` is of the engine's own kind.

        `used` says how many other persons have a donor already.
        """
        ...


def casting(pipeline: Pipeline) -> Casting:
    """The method of a pipeline, where it puts on faces of a cast.

    Raises:
        UserError: If it does not.
    """
    method = cast(object, pipeline.backbone)
    if isinstance(method, Casting):
        return method
    raise UserError(f"--same-stranger is for models that put on faces of a cast, and {pipeline.name} does not")


def meet(
    pipeline: Pipeline,
    photos: Sequence[Path],
    secret: Secret,
    aligned: bool = False,
    workers: int = 1,
    known: Album | None = None,
    advance: Callable[[], object] = lambda: None,
) -> Album:
    """Everybody who is in several of some photos, each with a donor.

    Photos that cannot be used are passed over: whoever anonymizes them says why.

    Args:
        pipeline: The model; one with a cast.
        photos: In an order that stays: it decides who is met first.
        secret: Of the run; it chooses the donors.
        aligned: Each picture is itself one aligned face.
        workers: Threads that decode and find faces.
        known: Persons who keep the donors that they have.
        advance: Called after each photo.

    Raises:
        UserError: If the model has no cast.
    """
    method = casting(pipeline)
    meeting = Meeting()
    with ThreadPoolExecutor(workers, "faceanon-meeting") as pool:
        # A few ahead: the faces of all photos at once would take too much memory.
        for faces in in_order(pool, lambda photo: _faces(pipeline, photo, aligned), photos, AT_ONCE * workers):
            _meet_faces(method, meeting, faces, pipeline.batch)
            advance()
    album = Album.empty() if known is None else known
    key = pipeline.keys([secret])
    used = Counter(album.donors)
    embeddings: list[Array] = []
    donors: list[int] = []
    for person in meeting.people():
        if album.person_of(person.embedding) is None:
            donor = method.donor_of_person(_floats(person.pictures()), key, used)
            used[donor] += 1
            embeddings.append(person.embedding)
            donors.append(donor)
    return joined(album, embeddings, donors)


def _faces(pipeline: Pipeline, photo: Path, aligned: bool) -> Array:
    """The faces of a photo that the model is for, `(B, 3, 128, 128)`; none where it cannot be used."""
    nobody = np.zeros((0, 3, SIDE, SIDE), np.float32)
    try:
        loaded = load_photo(photo)
        found = pipeline.faces(loaded, aligned)
    except UserError:
        return nobody
    squares = []
    for face in found:
        if face.treatment == "model" and face.geometry is not None:
            squares.append(face.geometry)
    if not squares:
        return nobody
    return crops(loaded.pixels, squares, SIDE)


def _meet_faces(method: Casting, meeting: Meeting, faces: Array, batch: int) -> None:
    for start in range(0, len(faces), batch):
        part = faces[start : start + batch]
        pixels = np.rint((part.clip(-1, 1) + 1) * np.float32(127.5)).astype(np.uint8).transpose(0, 2, 3, 1)
        for embedding, face in zip(method.embeddings(part), pixels, strict=True):
            meeting.add(embedding, np.ascontiguousarray(face))


def _floats(pictures: Sequence[NDArray[np.uint8]]) -> Array:
    """Pictures `(S, S, 3)` as `(B, 3, S, S)` in [-1, 1]."""
    stacked = np.stack(pictures).transpose(0, 3, 1, 2).astype(np.float32)
    return np.ascontiguousarray(stacked / np.float32(127.5) - 1)
