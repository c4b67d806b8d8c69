"""What judges, mesh and detector read in the files of a study; every reading is kept beside the picture."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.files import whole_file
from faceanon.metrics.saved import from_bytes
from faceanon.photo.detect import Detector
from faceanon.studies.photographs.judges import Judge
from faceanon.studies.photographs.people import Person, Picture
from faceanon.studies.photographs.pictures import (
    ORIGINAL,
    ROUND_TRIP,
    PhotographsSetting,
    file_figures,
    place,
    read_pixels,
)

BATCH = 16
MESH = "mesh"
DETECTOR = "detector"
KINDS = ("anonymized", "recovered", "wrong", "deniable")  # of the versions that judges compare with originals
Array = NDArray[np.float32]


class Mesh(Protocol):
    """Anything that finds the 468 points of a face."""

    def points(self, faces: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Points `(B, 468, 2)` in pixels and confidence `(B,)` of faces `(B, S, S, 3)` uint8."""
        ...


@dataclass(frozen=True)
class PictureReading:
    """One way to look at pictures.

    Args:
        name: Of its files in the cache; unlike that of every other reading.
        versions: Versions of a picture that are looked at.
        look: RGB `(B, S, S, 3)` uint8 -> `(B, ...)` float32.
    """

    name: str
    versions: tuple[str, ...]
    look: Callable[[NDArray[np.uint8]], Array]


@dataclass(frozen=True)
class Measured:
    """All readings of a study: N pictures under K passwords.

    Args:
        person: `(N,)` int64, number of the person.
        originals: By judge, embeddings `(N, E)` of the originals.
        versions: By judge, then by kind (one of `KINDS`), embeddings `(K, N, E)`; NaN where there
            is no such picture.
        mesh: By kind (`original` `(1, N, 468, 2)`, `anonymized` `(K, N, 468, 2)`, `round-trip` where there is one),
            points in sides of the picture.
        found: By kind (`original` `(1, N)`, `anonymized` `(K, N)`), 1 where the detector found a face, else 0; empty
            without a detector.
        files: `carried`, `hidden` and `psnr` of `file_figures`, `(K, N)` each.
    """

    person: Tensor
    originals: dict[str, Tensor]
    versions: dict[str, dict[str, Tensor]]
    mesh: dict[str, Tensor]
    found: dict[str, Tensor]
    files: dict[str, Tensor]


def judge_reading(judge: Judge, setting: PhotographsSetting) -> PictureReading:
    """The embeddings of one judge."""

    def look(faces: NDArray[np.uint8]) -> Array:
        with torch.inference_mode():
            return judge.embed(from_bytes(torch.from_numpy(faces))).float().cpu().numpy()

    versions = []
    for kind in KINDS:
        versions += setting.versions(kind)
    # The digest too: other weights must not find what these have read.
    return PictureReading(f"{judge.name} {judge.digest}", (ORIGINAL, *versions), look)


def mesh_reading(mesh: Mesh, setting: PhotographsSetting, round_trip: bool) -> PictureReading:
    """The points of the face mesh, in sides of the picture."""

    def look(faces: NDArray[np.uint8]) -> Array:
        points, _ = mesh.points(faces)
        return points / np.float32(faces.shape[1])

    tripped = (ROUND_TRIP,) if round_trip else ()
    return PictureReading(MESH, (ORIGINAL, *setting.versions("anonymized"), *tripped), look)


def detector_reading(detector: Detector, setting: PhotographsSetting) -> PictureReading:
    """Whether a detector finds a face: 1 or 0."""

    def look(faces: NDArray[np.uint8]) -> Array:
        seen = []
        for face in faces:
            seen.append(len(detector.detect(face)) > 0)
        return np.array(seen, np.float32)

    # Other settings find other faces, so readings are kept apart.
    settings = hashlib.sha256(repr(getattr(detector, "config", "")).encode()).hexdigest()[:8]
    name = f"{DETECTOR} {type(detector).__name__} {settings}"
    return PictureReading(name, (ORIGINAL, *setting.versions("anonymized")), look)


def read_person(person: Person, readings: Sequence[PictureReading], cache: Path) -> None:
    """Look at a person's files in every way that has not been done yet."""
    for reading in readings:
        missing = []
        for picture in person.pictures:
            known = _load(cache, picture, reading)
            versions = []
            for version in reading.versions:
                if place(cache, picture, version).is_file():
                    versions.append(version)
            # All versions of such a picture are read anew, since a file of readings is written whole.
            if any(version not in known for version in versions):
                missing.append((picture, versions))
        _look(reading, missing, cache)


def _look(reading: PictureReading, missing: Sequence[tuple[Picture, list[str]]], cache: Path) -> None:
    """Look at all versions of these pictures, in batches, and keep what was read."""
    # Across pictures, so that batches are full.
    jobs = []
    for picture, versions in missing:
        for version in versions:
            jobs.append((picture, version))
    values: dict[str, dict[str, Array]] = {picture.key: {} for picture, _ in missing}
    for start in range(0, len(jobs), BATCH):
        batch = jobs[start : start + BATCH]
        faces = np.stack([read_pixels(place(cache, picture, version)) for picture, version in batch])
        for (picture, version), row in zip(batch, reading.look(faces), strict=True):
            values[picture.key][version] = row
    for picture, _ in missing:
        with whole_file(_file(cache, picture, reading)) as file:
            np.savez(file, **values[picture.key])  # type: ignore[arg-type] # numpy's own names are not among these


def _file(cache: Path, picture: Picture, reading: PictureReading) -> Path:
    name = re.sub(r"[^0-9A-Za-z]+", "-", reading.name).strip("-")
    return cache / picture.key / f"{name}.npz"


def _load(cache: Path, picture: Picture, reading: PictureReading) -> dict[str, Array]:
    path = _file(cache, picture, reading)
    if not path.is_file():
        return {}
    with np.load(path) as stored:
        # Read now: numpy fetches an array when it is asked for, and the file is closed by then.
        return {name: stored[name] for name in stored.files}


def collect(
    people: Sequence[Person],
    judges: Sequence[Judge],
    setting: PhotographsSetting,
    cache: Path,
    detector: Detector | None,
    round_trip: bool,
) -> Measured:
    """All that `read_person` has kept, in one order: persons by number, their pictures by name.

    Args:
        people: Whose pictures; `read_person` has seen them all.
        judges: Whose embeddings.
        setting: Which versions there are.
        cache: The study's cache.
        detector: The detector that looked, or None.
        round_trip: Whether the mesh looked at round trips too.
    """
    pictures: list[Picture] = []
    labels: list[int] = []
    for person in people:
        pictures += person.pictures
        labels += [person.number] * len(person.pictures)
    originals = {}
    versions = {}
    for judge in judges:
        rows = []
        for picture in pictures:
            rows.append(_load(cache, picture, judge_reading(judge, setting)))
        originals[judge.name] = _stack(rows, [ORIGINAL])[0]
        kinds = []
        for kind in KINDS:
            if setting.versions(kind):
                kinds.append(kind)
        stacked = {}
        for kind in kinds:
            stacked[kind] = _stack(rows, setting.versions(kind))
        versions[judge.name] = stacked
    hidden = setting.versions("anonymized")
    kinds_seen = {ORIGINAL: [ORIGINAL], "anonymized": hidden}
    detected = {}
    if detector is not None:
        rows = []
        for picture in pictures:
            rows.append(_load(cache, picture, detector_reading(detector, setting)))
        for kind, names in kinds_seen.items():
            detected[kind] = _stack(rows, names)
    if round_trip:
        # Only now: the detector did not look at round trips.
        kinds_seen[ROUND_TRIP] = [ROUND_TRIP]
    points = []
    for picture in pictures:
        points.append(_load(cache, picture, PictureReading(MESH, (), _nothing)))
    mesh = {}
    for kind, names in kinds_seen.items():
        mesh[kind] = _stack(points, names)
    files = []
    for picture in pictures:
        files.append(file_figures(cache, picture, setting))
    told = {}
    for name in files[0]:
        told[name] = torch.from_numpy(np.stack([one[name] for one in files], 1))
    return Measured(torch.tensor(labels), originals, versions, mesh, detected, told)


def _nothing(faces: NDArray[np.uint8]) -> Array:
    raise NotImplementedError("this reading is only looked up")


def _stack(rows: Sequence[dict[str, Array]], names: Sequence[str]) -> Tensor:
    """`(K, N, ...)` of the versions `names` of N pictures; NaN where a picture lacks the version."""
    # Any reading tells the shape; the wanted versions may all be absent.
    like = next(value for row in rows for value in row.values())
    absent = np.full(like.shape, np.nan, np.float32)
    by_name = []
    for name in names:
        rows_of_name = []
        for row in rows:
            rows_of_name.append(row.get(name, absent))
        by_name.append(np.stack(rows_of_name))
    return torch.from_numpy(np.stack(by_name))
