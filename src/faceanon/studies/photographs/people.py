"""The persons of a study and their pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from faceanon.data.files import Photo, list_photos, read_photos
from faceanon.errors import UserError
from faceanon.files import sha256
from faceanon.metrics.saved import from_bytes


@dataclass(frozen=True)
class Picture:
    """One original picture.

    Args:
        path: The file.
        key: Names the picture in the study's cache; another content gives another key.
    """

    path: Path
    key: str


@dataclass(frozen=True)
class Person:
    """A person with two or more pictures.

    Args:
        number: From 0, in the order of the folders' names; results carry numbers, no names.
        pictures: In the order of the files' names.
    """

    number: int
    pictures: tuple[Picture, ...]


def find_people(folder: Path, most_people: int | None = None, most_pictures: int | None = None) -> list[Person]:
    """The persons in a folder with one folder of pictures a person.

    Args:
        folder: FFHQ-aligned face pictures, `PERSON/FILE.jpg`.
        most_people: Only the first so many persons; all where None.
        most_pictures: Only the first so many pictures of each person; all where None.

    Raises:
        UserError: The folder is missing, or shows fewer than two persons with two pictures each.
    """
    owners: dict[str, list[Photo]] = defaultdict(list)
    for photo in list_photos(folder, "identity"):
        if photo.identity is not None:
            owners[photo.identity].append(photo)
    chosen = []
    for _, photos in sorted(owners.items()):
        # Counted after the limit: with one picture nobody can be recognised in another.
        if len(photos[:most_pictures]) > 1:
            chosen.append(photos[:most_pictures])
    if len(chosen) < 2:
        raise UserError(
            f"{folder} shows {len(chosen)} persons with two pictures or more, and the study needs two: "
            "give a folder that holds one folder of aligned pictures a person"
        )
    people = []
    for number, photos in enumerate(chosen[:most_people]):
        people.append(Person(number, _pictures(photos)))
    return people


def read_faces(people: Sequence[Person], side: int) -> tuple[Tensor, Tensor]:
    """Pictures `(N, 3, S, S)` in [-1, 1] of persons, one person after the other, and the persons' numbers `(N,)`.

    Args:
        people: Of `find_people`.
        side: S, in pixels.
    """
    paths = []
    labels = []
    for person in people:
        for picture in person.pictures:
            paths.append(picture.path)
            labels.append(person.number)
    return from_bytes(torch.from_numpy(read_photos(paths, side))), torch.tensor(labels)


def _pictures(photos: list[Photo]) -> tuple[Picture, ...]:
    pictures = []
    for photo in photos:
        pictures.append(Picture(photo.path, sha256(photo.path)[:16]))
    return tuple(pictures)
