"""The pictures of a protocol, for evaluations outside of Lightning's trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from faceanon.data.batches import person_major
from faceanon.data.faces import Faces, Reader
from faceanon.data.files import EXTENSIONS, Photo, list_photos
from faceanon.data.prepared import shipped_photos
from faceanon.errors import UserError
from faceanon.metrics.pictures import PictureCheck, SeenPictures, find_pictures
from faceanon.metrics.protocol import Protocol
from faceanon.types import FaceBatch


@dataclass(frozen=True)
class TestPictures:
    """The pictures of a test, held in memory.

    Args:
        batches: By person.
        seen: Their fingerprint.
        real: Whether they are photographs.
    """

    # No test class, whatever pytest thinks of the name.
    __test__ = False

    batches: tuple[FaceBatch, ...]
    seen: SeenPictures
    real: bool

    def one_each(self, count: int) -> Tensor:
        """The first picture of each of the first `count` persons, `(<=count, 3, S, S)`."""
        image = torch.cat([batch.image for batch in self.batches])
        people = torch.cat([batch.identity for batch in self.batches]).tolist()
        first = {}
        # Backwards, so that the first row of a person is what stays.
        for row, person in reversed(list(enumerate(people))):
            first[person] = row
        return image[sorted(first.values())[:count]]


def load_pictures(
    protocol: Protocol, image_size: int, roots: Sequence[Path] = (), limit: int | None = None, batch_size: int = 16
) -> TestPictures:
    """Read the pictures that a protocol names.

    Args:
        protocol: The protocol.
        image_size: Side that the bundle's networks want.
        roots: Folders with photographs, for a protocol on photographs; its listed files are found by content.
        limit: Take about so many pictures, of as many persons as possible; None takes all.
        batch_size: Pictures in a batch, a multiple of 4.

    Raises:
        UserError: The protocol is for another size, its photographs are not there, or `limit` leaves fewer than two
            persons.
    """
    if protocol.pictures.image_size != image_size:
        asked = protocol.pictures.image_size
        raise UserError(f"protocol {protocol.label} is for pictures of {asked} px, the bundle for {image_size} px")
    if limit is not None and limit < 4:
        raise UserError(f"--limit {limit} is too few: give at least 4 pictures")
    real = protocol.pictures.source == "folder"
    if roots and not real:
        raise UserError(f"protocol {protocol.label} is of the photographs that ship: leave --data out")
    if real:
        listed = _listed(protocol, roots)
    else:
        listed = shipped_photos("test")
    batches = tuple(_read(protocol, image_size, listed, limit, batch_size))
    check = PictureCheck()
    for batch in batches:
        check.update(batch)
    return TestPictures(batches, check.seen(), real)


def named_pictures(protocol: Protocol, image_size: int, root: Path) -> list[FaceBatch]:
    """As many pictures of a folder as a protocol tests, two of a person where there are two."""
    return list(
        _read(
            replace(protocol, pictures=replace(protocol.pictures, files=None)), image_size, list_photos(root), None, 16
        )
    )


def _listed(protocol: Protocol, roots: Sequence[Path]) -> list[Photo]:
    """Photographs of the folders, the protocol's own where it lists any.

    Raises:
        UserError: No folder is given, or pictures of the protocol are missing.
    """
    if not roots:
        raise UserError(f"protocol {protocol.label} is on photographs: name their folders by --data FOLDER [...]")
    listed = []
    for root in roots:
        listed += list_photos(root)
    if protocol.pictures.files is not None:
        pairs = find_pictures(protocol.file_list(), _files(roots))
        listed = []
        # The protocol says who is who; the folders need not.
        for path, person in pairs:
            listed.append(Photo(path, path.name, person))
    return listed


def _read(
    protocol: Protocol, image_size: int, listed: list[Photo], limit: int | None, batch_size: int
) -> Iterator[FaceBatch]:
    """The protocol's own photographs, else the first."""
    if protocol.pictures.files is not None:
        most = len(listed)
    else:
        most = protocol.pictures.images
    chosen = spread(listed, min(most, limit or most))
    known = set()
    for photo in chosen:
        if photo.identity is not None:
            known.add(photo.identity)
    names = sorted(known)
    labels = []
    for photo in chosen:
        if photo.identity is None:
            labels.append(-1)
        else:
            labels.append(names.index(photo.identity))
    faces = Faces(chosen, labels, Reader(image_size), None, None)
    batches = []
    for rows in person_major(labels, batch_size):
        # False: a test mirrors nobody.
        batches.append(faces[[(row, False) for row in rows]])
    return iter(batches)


def _files(roots: Sequence[Path]) -> list[Path]:
    paths = []
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.suffix.lower() in EXTENSIONS:
                paths.append(path)
    return paths


def spread(photos: Sequence[Photo], count: int) -> list[Photo]:
    """`count` of the photographs, as many as possible persons with two or more each, in their order.

    Pictures of unknown persons count as one person's.
    """
    counts: dict[str | None, int] = {}
    rank: list[tuple[int, int]] = []
    for position, photo in enumerate(photos):
        # In twos: the next person's pair comes before a third picture of this one.
        number = counts[photo.identity] = counts.get(photo.identity, -1) + 1
        rank.append((number // 2, position))
    positions = []
    for _, position in sorted(rank)[:count]:
        positions.append(position)
    chosen = sorted(positions)
    return [photos[position] for position in chosen]
