"""The cast that ships: who belongs to it, and whom a key takes for whom."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from cast_list import listed

from faceanon.errors import UserError
from faceanon.landmarks.album import Album
from faceanon.landmarks.cast import FEWEST, FILE, FITTING, LAUGHING, MOVED_BACK, READ, TRIES, Cast, Choice
from faceanon.landmarks.drawings import LEFT_EYE, OUTLINE, RIGHT_EYE
from faceanon.landmarks.geometry import openness, turn
from faceanon.landmarks.swap import Appearance, target_of
from faceanon.networks.identity_space import IdentitySpace
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle


@pytest.fixture(scope="module")
def directions():
    space = Bundle("photo128").build("identity_space")
    assert isinstance(space, IdentitySpace)
    return space.kept_basis.numpy(), space.free_basis.numpy()


def appearance(cast, number, shift=0.0):
    """How a donor looks in the own photograph, in light that is brighter by `shift` in natural logarithms."""
    tone = cast.tones[number] + np.float32(shift)
    return Appearance(tone, float(cast.brows[number]), gap=0.0, turn=float(cast.turns[number]))


def test_everybody_of_the_list_is_there_and_nobody_of_the_test_split(cast):
    names = [row["file"] for row in listed()]
    assert len(set(names)) == len(names) == len(cast.codes) == len(cast.points) == len(cast.closed) + len(cast.open)
    assert {row["licence"] for row in listed()} <= {"MIT", "CC0-1.0"}
    with (checkpoints() / "photo128" / "pictures.csv").open(encoding="utf-8", newline="") as lines:
        pictures = list(csv.DictReader(lines))
    tested = {row["person"] for row in pictures if row["split"] == "test"}
    for row in pictures:
        assert row["file"] not in names or row["person"] not in tested


def test_every_donor_has_a_picture_with_the_mesh_on_it(cast):
    for number in range(len(cast.codes)):
        donor = cast.donor(number, 256)
        height, width = donor.picture.shape[:2]
        outline = donor.points[:, :2]
        assert outline.min() > -12
        assert (outline.max(0) < np.array([width, height]) + 12).all()
        half = cast.donor(number, 128)
        assert abs(half.picture.shape[0] - height / 2) < 1
        np.testing.assert_allclose(half.points[:, :2] * 2, outline, atol=2)


def test_donors_who_fit_are_of_the_sex_age_and_skin(cast, directions):
    kept, _ = directions
    looks = cast.codes @ kept[:, :READ]
    for number in cast.closed[::12]:
        fitting = cast.fitting(looks[number], appearance(cast, number), kept)
        assert fitting[0] == number
        assert FEWEST <= len(fitting) <= FITTING
        others = np.setdiff1d(cast.closed, fitting)
        assert np.abs(looks[fitting, 1] - looks[number, 1]).mean() < np.abs(looks[others, 1] - looks[number, 1]).mean()


def test_who_fits_in_the_dark_has_the_same_skin(cast, directions):
    kept, _ = directions
    looks = cast.codes @ kept[:, :READ]
    spread = looks[cast.closed, 2].std()
    for number in cast.closed[::12]:
        for shift in (0.0, -1.0):
            fitting = cast.fitting(looks[number], appearance(cast, number, shift), kept)
            assert np.abs(looks[fitting[:FEWEST], 2] - looks[number, 2]).mean() < spread


def test_dark_brows_get_dark_brows(cast, directions):
    kept, _ = directions
    looks = cast.codes @ kept[:, :READ]
    fair, dark = np.quantile(cast.brows[cast.closed], [0.9, 0.1])
    gaps = []
    for number in cast.closed[::12]:
        shades = []
        shown = appearance(cast, number)
        for brows in (fair, dark):
            shades.append(cast.brows[cast.fitting(looks[number], replace(shown, brows=float(brows)), kept)].mean())
        gaps.append(shades[0] - shades[1])
    # Of some sex, age and skin there are few, whatever their brows.
    assert min(gaps) >= 0
    assert np.mean(gaps) > 0.05


def test_who_laughs_gets_who_laughs_as_widely(cast, directions):
    kept, _ = directions
    looks = cast.codes @ kept[:, :READ]
    shares = []
    for number in cast.open[::6]:
        shown = replace(appearance(cast, number), gap=float(cast.gaps[number]))
        fitting = cast.fitting(looks[number], shown, kept)
        if number in fitting:
            laughing = fitting[cast.gaps[fitting] > LAUGHING]
            assert (np.abs(cast.gaps[laughing] - shown.gap) <= 0.6 * shown.gap).all()
            # Among the dozen who fit best; there are always some more to choose from.
            shares.append((cast.gaps[fitting[:12]] > LAUGHING).mean())
        # With the lips closed nobody who laughs fits.
        assert set(cast.fitting(looks[number], replace(shown, gap=LAUGHING), kept)) <= set(cast.closed)
    assert len(shares) >= 5
    assert np.mean(shares) > 0.4


def test_a_donor_for_more_pictures_keeps_the_lips_closed(cast, directions):
    kept, free = directions
    number = int(cast.open[np.argmax(cast.gaps[cast.open])])
    faces = [Face(replace(appearance(cast, number), gap=float(cast.gaps[number])))]
    codes = cast.codes[[number]] @ kept @ kept.T + free[:, 0]
    orders = cast.orders(faces, codes, cast.embeddings[[number]], kept, free)
    steady = cast.orders(faces, codes, cast.embeddings[[number]], kept, free, steady=True)
    assert not set(orders[0]) <= set(cast.closed)
    assert set(steady[0]) <= set(cast.closed)


def test_keys_choose_and_a_donor_s_own_code_gets_this_donor(cast, directions):
    kept, free = directions
    draw = np.random.default_rng(0)
    looks = cast.codes @ kept[:, :READ]
    # The one whom most others fit.
    fitting = [len(cast.fitting(looks[i], appearance(cast, i), kept)) for i in cast.closed]
    own = int(cast.closed[int(np.argmax(fitting))])
    person = cast.codes[own]
    first = []
    for _ in range(20):
        turned = person @ kept @ kept.T + draw.normal(size=60).astype(np.float32) @ free.T
        order = cast.chosen(turned, cast.embeddings[own], appearance(cast, own), kept, free)
        assert len(set(order)) == len(order)
        # Nobody is taken for themselves.
        assert own not in order
        first.append(order[0])
    assert len(set(first)) >= 5
    other = person @ kept @ kept.T + 0.85 * (cast.codes[100] @ free @ free.T)
    # Whatever the light is: frames of a clip differ in it.
    for shift in (-1.0, 0.0, 1.0):
        shown = appearance(cast, own, shift)
        assert cast.chosen(other, cast.embeddings[own], shown, kept, free)[0] == 100


def test_a_donor_who_looks_to_the_other_side_is_mirrored(cast, directions):
    kept, free = directions
    own = int(cast.closed[0])
    for turned in (-0.3, 0.0, 0.3):
        seen = replace(appearance(cast, own), turn=turned)
        order = cast.chosen(cast.codes[own] @ kept @ kept.T, cast.embeddings[own], seen, kept, free)
        turns = np.array([turn(cast.donor(int(number), 256).points) for number in order])
        assert len({int(number) % len(cast.codes) for number in order}) == len(order)
        if turned == 0:
            assert order.max() < len(cast.codes)
        else:
            assert (turns * turned >= 0).all()


def test_who_is_turned_gets_donors_who_are_turned(cast, directions):
    kept, _ = directions
    turns = {0.0: [], 0.35: []}
    for number in cast.closed[::6]:
        looks = cast.codes[number] @ kept[:, :READ]
        for turned, found in turns.items():
            fitting = cast.fitting(looks, replace(appearance(cast, number), turn=turned), kept)
            found.append(np.abs(cast.turns[fitting]).mean())
    assert np.mean(turns[0.35]) > np.mean(turns[0.0]) + 0.03


def test_a_mirror_image_is_the_same_donor_the_other_way_round(cast):
    for number in cast.closed[::30]:
        donor = cast.donor(int(number), 256)
        image = cast.donor(int(number) + len(cast.codes), 256)
        assert np.array_equal(image.picture[:, ::-1], donor.picture)
        assert turn(image.points) == pytest.approx(-turn(donor.points), abs=1e-4)
        assert openness(image.points) == pytest.approx(openness(donor.points), abs=0.01)
        # The pupils lie in their own eyes.
        for eye, place in zip((LEFT_EYE, RIGHT_EYE), image.pupils, strict=True):
            outline = image.points[list(eye), :2]
            assert (outline.min(0) - 2 < place).all()
            assert (place < outline.max(0) + 2).all()
    assert np.array_equal(cast.mirrored[cast.mirrored], np.arange(468))


def test_a_missing_or_another_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=FILE):
        Cast(tmp_path)
    (tmp_path / FILE).write_bytes(b"nobody")
    with pytest.raises(UserError, match=FILE):
        Cast(tmp_path)


def drawn_as_numbers(cast, targets, choices):
    """In place of `Cast.put_on`: nothing is drawn, a picture is the number of its donor."""
    return np.array([choice.donor for choice in choices])


class Face:
    """As much of a target as choosing a donor asks for."""

    def __init__(self, appearance):
        self.appearance = appearance


def for_person(cast, directions, cosines, monkeypatch, used=None):
    """Whom a person gets where donor `n` in photo `i` looks like the person by `cosines(n, i)`; and the order."""
    kept, free = directions
    own = int(cast.closed[0])
    rows = 3
    faces = [Face(appearance(cast, own))] * rows
    codes = np.repeat(cast.codes[own][None], rows, 0) @ kept @ kept.T + free[:, 0]
    embeddings = np.repeat(cast.embeddings[own][None], rows, 0)
    monkeypatch.setattr(Cast, "put_on", drawn_as_numbers)

    def alike(drawn, asked):
        return np.array([cosines(int(donor), row) for donor, row in zip(drawn, asked, strict=True)], np.float32)

    # In the other photos the head may be turned otherwise.
    seen = replace(faces[0].appearance, gap=0.0, turn=0.0)
    order = cast.chosen(codes.mean(0), embeddings[0], seen, kept, free)[:TRIES].tolist()
    return cast.for_person(faces, codes, embeddings, kept, free, alike, used or {}), order


def test_a_person_gets_the_first_donor_who_is_unlike_in_every_photo(cast, directions, monkeypatch):
    found, order = for_person(cast, directions, lambda donor, row: 0.0, monkeypatch)
    assert found == order[0]
    # One photo in which the first looks like the person is enough to take the second.
    found, order = for_person(cast, directions, lambda donor, row: 0.3 * (donor == order[0] and row == 2), monkeypatch)
    assert found == order[1]
    # Where all look like the person somewhere, the worst photo decides, and a face that is not drawn says nothing.
    likeness = {donor: 0.2 + 0.05 * place for place, donor in enumerate(reversed(order))}
    found, _ = for_person(cast, directions, lambda donor, row: np.nan if row == 0 else likeness[donor], monkeypatch)
    assert found == order[-1]


def test_whom_others_have_comes_last(cast, directions, monkeypatch):
    _, order = for_person(cast, directions, lambda donor, row: 0.0, monkeypatch)
    used = {order[0]: 2, order[1]: 1}
    assert for_person(cast, directions, lambda donor, row: 0.0, monkeypatch, used)[0] == order[2]


def test_known_persons_keep_their_donor_unless_everybody_would_see_them(cast, directions, monkeypatch):
    kept, free = directions
    own, other = map(int, cast.closed[:2])
    album = Album(cast.embeddings[own][None], (other,))
    faces = [Face(appearance(cast, number)) for number in (own, other)]
    codes = cast.codes[[own, other]]
    embeddings = cast.embeddings[[own, other]]
    orders = cast.orders(faces, codes, embeddings, kept, free, album)
    known = album.knows(embeddings)
    assert orders[0][0] == other
    assert len(set(orders[0])) == len(orders[0]) >= TRIES
    assert known.tolist() == [True, False]
    monkeypatch.setattr(Cast, "put_on", drawn_as_numbers)

    def alike(cosine):
        """Everybody looks like the person a little, and the first donors with this cosine."""
        first = {order[0] for order in orders}
        return lambda drawn, rows: np.array([cosine if int(donor) in first else 0.12 for donor in drawn], np.float32)

    _, choices = cast.put_on_unlike(faces, orders, alike(0.2), known)
    assert [choice.donor for choice in choices] == [other, orders[1][1]]
    _, choices = cast.put_on_unlike(faces, orders, alike(0.3), known)
    assert [choice.donor for choice in choices] == [orders[0][1], orders[1][1]]


def test_an_album_of_another_cast_gives_nobody_who_is_not_put_on(cast, directions):
    kept, free = directions
    own = int(cast.closed[0])
    for number in (int(cast.open[0]), len(cast.codes)):
        album = Album(cast.embeddings[own][None], (number,))
        faces = [Face(appearance(cast, own))]
        orders = cast.orders(faces, cast.codes[[own]], cast.embeddings[[own]], kept, free, album)
        # A mirror image counts as the donor.
        assert {donor % len(cast.codes) for donor in orders[0]} <= set(cast.closed)


def test_a_face_that_nothing_can_be_put_on_is_not_tried_with_other_donors(cast, monkeypatch):
    monkeypatch.setattr(Cast, "put_on", drawn_as_numbers)
    asked = []

    def alike(drawn, rows):
        asked.append(rows)
        return np.array([np.nan if row == 0 else 0.5 for row in rows], np.float32)

    _, choices = cast.put_on_unlike([None, None], [[1, 2, 3], [4, 5, 6]], alike)
    assert asked == [[0, 1], [1], [1]]
    assert choices == [Choice(1), Choice(4)]


def test_orders_may_be_short(cast, monkeypatch):
    monkeypatch.setattr(Cast, "put_on", drawn_as_numbers)
    orders = [[3], [4, 5]]
    _, choices = cast.put_on_unlike([None, None], orders, lambda drawn, rows: np.full(len(rows), 0.5, np.float32))
    assert choices == [Choice(3), Choice(4)]


SIDES = np.float32(256)


@pytest.fixture(scope="module")
def target(face, points):
    # Covers are no matter here: the whole face may change.
    return replace(target_of(face, points, np.ones((32, 32), bool)), hidden=True)


def put_on_and_read(cast, target, wrong, likeness):
    """How donor 3 is put on a face whose points are read off by `wrong` pixels.

    The face is like the person by the first cosine of `likeness` at first, by the others whenever it is put on anew.
    """
    answers = iter(likeness)

    def alike(drawn, rows):
        return np.full(len(rows), next(answers), np.float32)

    def read(drawn):
        return (target.mesh[None, :, :2] + wrong) / SIDES

    drawn, choices = cast.put_on_unlike([target], [[3]], alike, None, read)
    assert next(answers, None) is None
    assert np.array_equal(drawn, cast.put_on([target], choices))
    return choices[0]


def test_points_that_are_read_wrong_are_moved_back(cast, target):
    wrong = np.float32([1.5, -2.0])
    most, less = MOVED_BACK
    choice = put_on_and_read(cast, target, wrong, [0.0, 0.0])
    assert choice.donor == 3
    np.testing.assert_allclose(choice.move, -most * wrong / SIDES * target.free, atol=1e-6)
    # The outline stays where it is.
    assert not choice.move[list(OUTLINE)].any()
    # Where that shows the person, less is done; where less does too, nothing.
    choice = put_on_and_read(cast, target, wrong, [0.0, 0.3, 0.0])
    np.testing.assert_allclose(choice.move, -less * wrong / SIDES * target.free, atol=1e-6)
    assert put_on_and_read(cast, target, wrong, [0.0, 0.3, 0.3]).move is None
    # A face that was like the person before may stay so.
    assert put_on_and_read(cast, target, wrong, [0.3, 0.3]).move is not None


def test_a_reading_that_makes_no_sense_moves_nothing(cast, target):
    choice = put_on_and_read(cast, target, np.float32([60, 0]), [0.0, 0.0])
    assert not choice.move.any()


def test_a_face_on_which_nothing_is_put_is_not_read(cast, target):
    drawn, choices = cast.put_on_unlike(
        [replace(target, hidden=False)],
        [[3]],
        lambda drawn, rows: np.full(len(rows), np.nan, np.float32),
        None,
        lambda drawn: pytest.fail("there is nothing to read"),
    )
    assert np.isnan(drawn).all()
    assert choices == [Choice(3)]


def test_a_face_put_on_twice_is_held_more_like_the_old_one(cast, mesh, target):
    def read(drawn):
        return mesh.solid(pictures(drawn))[0][..., :2] / SIDES

    def pictures(drawn):
        return ((drawn.transpose(0, 2, 3, 1) + 1) * 127.5).round().astype(np.uint8)

    def unlike(drawn, rows):
        return np.zeros(len(rows), np.float32)

    def off(drawn):
        return np.linalg.norm(read(drawn) * SIDES - target.mesh[:, :2], axis=-1).mean(1)

    donors = [int(donor) for donor in cast.closed[:6]]
    targets = [target] * len(donors)
    orders = [[donor] for donor in donors]
    once, _ = cast.put_on_unlike(targets, orders, unlike)
    twice, _ = cast.put_on_unlike(targets, orders, unlike, None, read)
    assert (off(twice) < off(once)).all()
    assert off(twice).mean() < 0.75 * off(once).mean()
