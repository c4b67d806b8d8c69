"""The cast that ships: who belongs to it, and whom a key takes for whom."""

import csv

import numpy as np
import pytest

from faceanon.errors import UserError
from faceanon.landmarks.cast import FEWEST, FILE, FITTING, Cast
from faceanon.networks.identity_space import IdentitySpace
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle


@pytest.fixture(scope="module")
def cast():
    return Cast()


@pytest.fixture(scope="module")
def directions():
    space = Bundle("photo128").build("identity_space")
    assert isinstance(space, IdentitySpace)
    return space.kept_basis.numpy(), space.free_basis.numpy()


def listed():
    with (checkpoints() / "photo_seers" / "cast.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


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
    looks = cast.codes @ kept[:, :2]
    for number in cast.closed[::12]:
        fitting = cast.fitting(looks[number], cast.tones[number], kept)
        assert fitting[0] == number
        assert FEWEST <= len(fitting) <= FITTING
        others = np.setdiff1d(cast.closed, fitting)
        assert np.abs(looks[fitting, 1] - looks[number, 1]).mean() < np.abs(looks[others, 1] - looks[number, 1]).mean()


def test_keys_choose_and_a_donor_s_own_code_gets_this_donor(cast, directions):
    kept, free = directions
    draw = np.random.default_rng(0)
    looks = cast.codes @ kept[:, :2]
    # One whom many others fit.
    many = [i for i in cast.closed if len(cast.fitting(looks[i], cast.tones[i], kept)) == FITTING]
    own = int(many[0])
    person = cast.codes[own]
    first = []
    for _ in range(20):
        turned = person @ kept @ kept.T + draw.normal(size=60).astype(np.float32) @ free.T
        order = cast.chosen(turned, cast.embeddings[own], cast.tones[own], kept, free)
        assert len(set(order)) == len(order)
        # Nobody is taken for themselves.
        assert own not in order
        first.append(order[0])
    assert len(set(first)) >= 5
    other = person @ kept @ kept.T + 0.85 * (cast.codes[100] @ free @ free.T)
    # Whatever the light is: frames of a clip differ in it.
    for shift in (-1.0, 0.0, 1.0):
        assert cast.chosen(other, cast.embeddings[own], cast.tones[own] + np.float32(shift), kept, free)[0] == 100


def test_the_more_a_mouth_is_open_the_wider_the_lent_one(cast):
    mesh = cast.points[cast.open[0]].copy()
    gaps = []
    for pixels in (0, 8, 14):
        mesh[14, :2] = mesh[13, :2] + np.array([0, pixels])
        mouth = cast.mouth(mesh, 256)
        gaps.append(0.0 if mouth is None else float(np.linalg.norm(mouth.points[14, :2] - mouth.points[13, :2])))
    assert gaps[0] == 0
    assert 0 < gaps[1] <= gaps[2]


def test_a_missing_or_another_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=FILE):
        Cast(tmp_path)
    (tmp_path / FILE).write_bytes(b"nobody")
    with pytest.raises(UserError, match=FILE):
        Cast(tmp_path)
