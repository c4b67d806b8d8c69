"""Who is who in a folder: grouping faces, looking them up, and storing what was found."""

import numpy as np
import pytest

from faceanon.errors import UserError
from faceanon.landmarks import album as module
from faceanon.landmarks.album import KEPT_FACES, ONE, SAME, Album, Meeting, joined


def units(rows):
    rows = np.asarray(rows, np.float32)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def faces_of(people, each, spread, seed=0):
    """Embeddings of `people` persons with `each` faces, in a random order, and whose they are."""
    draw = np.random.default_rng(seed)
    middles = units(draw.normal(size=(people, 256)))
    owners = draw.permutation(np.repeat(np.arange(people), each))
    return units(middles[owners] + spread * draw.normal(size=(len(owners), 256))), owners


def face(shade=0):
    return np.full((128, 128, 3), shade, np.uint8)


def met(embeddings):
    meeting = Meeting()
    for number, embedding in enumerate(embeddings):
        meeting.add(embedding, face(number % 256))
    return meeting


def test_everybody_who_comes_several_times_is_one_person():
    embeddings, owners = faces_of(people=40, each=5, spread=0.05)
    people = met(embeddings).people()
    assert [person.count for person in people] == [5] * 40
    # Those of the first faces are first, so that the order of the photos alone decides.
    first = list(dict.fromkeys(owners.tolist()))
    for person, owner in zip(people, first, strict=True):
        assert (embeddings[owners == owner] @ person.embedding).min() > 0.6


def test_whoever_comes_once_or_cannot_be_looked_at_is_nobody():
    embeddings, _ = faces_of(people=20, each=1, spread=0)
    unseen = np.full((3, 256), np.nan, np.float32)
    assert met([*embeddings, *unseen]).people() == []
    assert Meeting().people() == []


def test_two_groups_that_come_near_each_other_are_one_person():
    one, other = np.eye(64, dtype=np.float32)[:2]
    middle = units(one + other)
    apart = met([one, one, other, other])
    assert len(apart.people()) == 2
    # Faces between the two draw the means together.
    assert float(one @ units(one + other)) > ONE
    together = met([one, other, units(one + 0.9 * other), units(0.9 * one + other), middle])
    assert [person.count for person in together.people()] == [5]


def test_groups_are_compared_block_by_block(monkeypatch):
    embeddings, _ = faces_of(people=30, each=3, spread=0.06)
    whole = [person.count for person in met(embeddings).people()]
    monkeypatch.setattr(module, "BLOCK", 7)
    assert [person.count for person in met(embeddings).people()] == whole == [3] * 30


def test_few_faces_of_a_person_are_kept_and_look_as_they_did():
    embedding = np.eye(64, dtype=np.float32)[0]
    (person,) = met([embedding] * (KEPT_FACES + 4)).people()
    pictures = person.pictures()
    assert len(pictures) == KEPT_FACES
    for shade, picture in enumerate(pictures):
        assert np.abs(picture.astype(int) - shade).max() <= 2


def test_a_face_is_looked_up_by_the_nearest_person_above_the_limit():
    album = Album(np.eye(4, dtype=np.float32)[:2], (3, 9))
    assert album.donor_of(units([0.5, 0.8, 0, 0.1])) == 9
    assert album.donor_of(units([SAME - 0.01, 0, 1, 0]) * [1, 1, 1, 1]) is None
    assert album.donor_of(np.full(4, np.nan, np.float32)) is None
    assert Album.empty().donor_of(np.ones(4, np.float32)) is None
    longer = joined(album, [np.eye(4, dtype=np.float32)[2]], [5])
    assert len(longer) == 3
    assert longer.donor_of(np.eye(4, dtype=np.float32)[2]) == 5
    assert joined(album, [], []) is album


def test_a_stored_album_says_the_same():
    embeddings, _ = faces_of(people=50, each=1, spread=0)
    album = Album(embeddings, tuple(range(50)))
    back = Album.from_bytes(album.to_bytes())
    assert back.donors == album.donors
    assert (back.embeddings * embeddings).sum(1).min() > 0.999
    # Once rounded it stays as it is, so a resumed run reads what the first one used.
    assert Album.from_bytes(back.to_bytes()).to_bytes() == back.to_bytes()
    assert len(Album.from_bytes(Album.empty().to_bytes())) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no album",
        b'{"shape": [2, 3], "donors": [1, 2]}\n12345',
        b'{"shape": [1, 3], "donors": [1, 2]}\n123',
        b'{"shape": [1, 3], "donors": [-1]}\n123',
        b'{"shape": 5, "donors": []}\n',
        b"[]\n",
    ],
)
def test_a_damaged_album_is_refused(data):
    with pytest.raises(UserError, match="damaged"):
        Album.from_bytes(data)
