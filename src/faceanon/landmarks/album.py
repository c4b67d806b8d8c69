"""Who is who in the photos of a folder, so that a person becomes the same stranger in all of them.

    embeddings of all faces --grouped--> persons with several photos --cast--> one donor for each: an `Album`

Nothing here needs torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError

Array = NDArray[np.float32]
Pixels = NDArray[np.uint8]

# On 1,381 photographs of 36 real persons, six of each in a folder, these put .955 of the pairs of one person together,
# and .0003 to .0036 of the pairs of two.
SAME = 0.36  # cosine to the mean of a person's faces, from which a face is this person's
ONE = 0.48  # ... of two means, from which two persons are one
KEPT_FACES = 6  # of a person, on which donors are tried
FEWEST_FACES = 2  # whoever is seen once needs no entry: there is nothing to agree with
BLOCK = 1024  # means that are compared at once
QUALITY = 95  # of the JPEG that a face is kept as: thousands of them lie in memory
STEPS = 127  # of an embedding's numbers when it is stored


@dataclass(frozen=True)
class Album:
    """Persons and the donors whose faces they get.

    Args:
        embeddings: `(K, E)` of the persons, of unit length.
        donors: The cast's number for each person.

    Examples:
        >>> import numpy as np
        >>> from faceanon.landmarks.album import Album
        >>> album = Album(np.eye(3, dtype=np.float32)[:2], (5, 7))
        >>> album.donor_of(np.array([0.1, 0.9, 0.1], np.float32))
        7
        >>> album.donor_of(np.array([0, 0, 1], np.float32)) is None  # nobody in it
        True
    """

    embeddings: Array
    donors: tuple[int, ...]

    @classmethod
    def empty(cls) -> Album:
        """One with nobody in it."""
        return cls(np.zeros((0, 0), np.float32), ())

    def __len__(self) -> int:
        """How many persons are in it."""
        return len(self.donors)

    def person_of(self, embedding: Array) -> int | None:
        """Number of the person whom a face `(E,)` of unit length shows; None where it is nobody of the album."""
        return _nearest(self.embeddings, embedding)

    def donor_of(self, embedding: Array) -> int | None:
        """The cast's number for the face `(E,)`; None where it is nobody of the album."""
        person = self.person_of(embedding)
        return None if person is None else self.donors[person]

    def knows(self, embeddings: Array) -> NDArray[np.bool_]:
        """Which faces `(B, E)` of unit length show somebody of the album, `(B,)`."""
        return np.array([self.person_of(embedding) is not None for embedding in embeddings], bool)

    def to_bytes(self) -> bytes:
        """The album in about a byte a number, for `from_bytes`. It describes faces: store it encrypted only."""
        steps = np.round(self.embeddings * STEPS).clip(-STEPS, STEPS).astype(np.int8)
        head = json.dumps({"shape": list(steps.shape), "donors": list(self.donors)})
        # Without an indent `json.dumps` writes no line break, so the first one in the data ends the head.
        return head.encode() + b"\n" + steps.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Album:
        """Read what `to_bytes` wrote.

        Raises:
            UserError: If it is none.
        """
        head, _, body = data.partition(b"\n")
        try:
            facts = json.loads(head)
            rows, width = map(int, facts["shape"])
            donors = tuple(map(int, facts["donors"]))
            steps = np.frombuffer(body, np.int8).reshape(rows, width)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError("the album of a folder is damaged") from error
        # A negative number would not fail later: it counts donors from the cast's end.
        if len(donors) != rows or (donors and min(donors) < 0):
            raise UserError("the album of a folder is damaged")
        # Rounding has changed the lengths.
        return cls(units(steps.astype(np.float32)), donors)


@dataclass
class AlbumPerson:
    """Somebody whose faces were found together.

    Args:
        total: `(E,)` sum of the embeddings.
        count: Number of faces.
        faces: Some of them, as JPEG.
    """

    total: Array
    count: int = 0
    faces: list[bytes] = field(default_factory=list)

    @property
    def embedding(self) -> Array:
        """The mean of the faces' embeddings, `(E,)` of unit length."""
        return units(self.total)

    def pictures(self) -> list[Pixels]:
        """The kept faces, RGB `(S, S, 3)`."""
        return list(map(_decoded, self.faces))


class Meeting:
    """Groups faces by person, in the order in which they come.

    The same faces in the same order give the same persons.

    Examples:
        >>> import numpy as np
        >>> from faceanon.landmarks.album import Meeting
        >>> meeting = Meeting()
        >>> face = np.zeros((128, 128, 3), np.uint8)
        >>> for embedding in np.eye(3, dtype=np.float32)[[0, 1, 0]]:
        ...     meeting.add(embedding, face)
        >>> [person.count for person in meeting.people()]
        [2]
    """

    def __init__(self) -> None:
        self._people: list[AlbumPerson] = []
        # Unit means of all persons; more rows than persons, so that it seldom grows.
        self._means: Array = np.zeros((0, 0), np.float32)

    def add(self, embedding: Array, face: Pixels) -> None:
        """Meet one more face.

        Args:
            embedding: `(E,)` of unit length.
            face: RGB `(S, S, 3)`.
        """
        # One NaN would spoil a person's mean, and with it every later comparison.
        if not np.isfinite(embedding).all():
            return
        number = _nearest(self._means[: len(self._people)], embedding)
        if number is None:
            number = len(self._people)
            self._people.append(AlbumPerson(np.zeros_like(embedding)))
            self._make_room(len(embedding))
        person = self._people[number]
        person.total = person.total + embedding
        person.count += 1
        if len(person.faces) < KEPT_FACES:
            person.faces.append(_encoded(face))
        self._means[number] = person.embedding

    def people(self) -> list[AlbumPerson]:
        """Everybody who was met several times, those of the first faces first."""
        merged: list[AlbumPerson] = []
        for group in self._groups():
            # A new object: the meeting's own persons stay apart, so more faces may be added afterwards.
            person = AlbumPerson(np.zeros_like(self._people[group[0]].total))
            for number in group:
                part = self._people[number]
                person.total = person.total + part.total
                person.count += part.count
                person.faces = (person.faces + part.faces)[:KEPT_FACES]
            if person.count >= FEWEST_FACES:
                merged.append(person)
        return merged

    def _make_room(self, width: int) -> None:
        count = len(self._people)
        if count > len(self._means):
            room = np.zeros((2 * count + 16, width), np.float32)
            if count > 1:
                room[: count - 1] = self._means[: count - 1]
            self._means = room

    def _groups(self) -> list[list[int]]:
        """Numbers of persons who are one: a person met with the head turned, and another time from the front."""
        count = len(self._people)
        means = self._means[:count]
        owner = list(range(count))
        # Block by block: all cosines of thousands of persons would not fit into memory.
        for start in range(0, count, BLOCK):
            alike = means[start : start + BLOCK] @ means.T > ONE
            for row, column in np.argwhere(alike):
                _join(owner, start + int(row), int(column))
        groups: dict[int, list[int]] = {}
        for number in range(count):
            groups.setdefault(_root(owner, number), []).append(number)
        return list(groups.values())


def _nearest(means: Array, embedding: Array) -> int | None:
    """Row of the person of means `(K, E)` whom a face `(E,)` shows; None where it shows nobody of them."""
    if len(means) == 0:
        return None
    likeness = means @ embedding
    nearest = int(likeness.argmax())
    # NaN, of a face that could not be looked at, is not above it either.
    return nearest if likeness[nearest] > SAME else None


def _root(owner: list[int], number: int) -> int:
    """The first of those who are one with a person."""
    while owner[number] != number:
        number = owner[number]
    return number


def _join(owner: list[int], one: int, other: int) -> None:
    """Make two persons one; the earlier number stands for both."""
    first, second = sorted((_root(owner, one), _root(owner, other)))
    owner[second] = first


def _encoded(face: Pixels) -> bytes:
    done, data = cv2.imencode(".jpg", cv2.cvtColor(face, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    assert done
    return data.tobytes()


def _decoded(data: bytes) -> Pixels:
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB).astype(np.uint8)


def units(vectors: Array) -> Array:
    """Vectors of unit length along the last axis."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Array = (vectors / np.maximum(lengths, 1e-6)).astype(np.float32)
    return scaled


def joined(album: Album, embeddings: Sequence[Array], donors: Sequence[int]) -> Album:
    """An album with more persons, behind those who are in it."""
    if not donors:
        return album
    # The rows of an empty album have width 0, which fits no others.
    rows = [album.embeddings] if len(album) else []
    return Album(np.concatenate([*rows, np.stack(embeddings)]).astype(np.float32), (*album.donors, *donors))
