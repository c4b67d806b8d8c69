"""What of a face stays the person's own: the mouth."""

import cv2
import numpy as np
import pytest

from faceanon.landmarks.cast import Cast
from faceanon.landmarks.drawings import INNER_LIPS, OUTER_LIPS
from faceanon.landmarks.geometry import around, eye_distance, filled, openness
from faceanon.landmarks.mesh import FaceMesh
from faceanon.landmarks.own_parts import AROUND_LIPS, mouth
from faceanon.landmarks.swap import fitted_shape, put_on, target_of
from faceanon.photo.party import photo_party

LOWER_LIP = (95, 88, 178, 87, 14, 317, 402, 318, 324)  # of the inner lips
UPPER_LIP = (191, 80, 81, 82, 13, 312, 311, 310, 415)
EVERYWHERE = np.ones((32, 32), bool)
STAND_IN = (30, 200, 40)  # a colour that no donor has


@pytest.fixture(scope="module")
def cast():
    return Cast()


@pytest.fixture(scope="module")
def face():
    """A face of 256 px, `(256, 256, 3)`."""
    return np.array(photo_party().crop((14, 14, 270, 270)))


@pytest.fixture(scope="module")
def points(face):
    return FaceMesh().solid(face[None])[0][0]


def opened(points, gap):
    """A mesh whose lips are apart by `gap` distances between the eyes."""
    mesh = points.copy()
    middle = (mesh[list(LOWER_LIP), 1] + mesh[list(UPPER_LIP), 1]) / 2
    mesh[list(LOWER_LIP), 1] = middle + gap / 2 * eye_distance(points)
    mesh[list(UPPER_LIP), 1] = middle - gap / 2 * eye_distance(points)
    assert openness(mesh) == pytest.approx(gap, abs=1e-3)
    return mesh


@pytest.mark.parametrize("gap", [0.0, 0.15])
@pytest.mark.parametrize("laughs", [False, True])
def test_the_mouth_stays_whoever_is_put_on(face, points, cast, gap, laughs):
    mesh = opened(points, gap)
    lips = filled(around(mesh[list(OUTER_LIPS), :2], 1.05), 256)
    marked = face.copy()
    marked[lips] = STAND_IN
    donor = int(cast.open[0] if laughs else cast.closed[0])
    drawn = put_on(target_of(marked, mesh, EVERYWHERE), cast.donor(donor, 256), cast.triangles)
    assert np.array_equal(drawn[lips], marked[lips])
    # Around the mouth nothing of the person's own face stays.
    wider = filled(around(mesh[list(OUTER_LIPS), :2], AROUND_LIPS + 0.6), 256)
    near = filled(around(mesh[list(OUTER_LIPS), :2], AROUND_LIPS + 0.2), 256)
    assert (drawn != marked).any(-1)[wider & ~near].mean() > 0.9


def test_a_mouth_reaches_a_little_beyond_its_lips(points):
    lips = filled(points[list(OUTER_LIPS), :2], 256)
    inner = filled(points[list(INNER_LIPS), :2], 256)
    whole = mouth(points[:, :2], 256)
    assert inner[lips].sum() == inner.sum()
    assert whole[lips].all()
    assert 1.1 < whole.sum() / lips.sum() < 1.6


def test_the_mouth_is_not_moved_and_the_eyes_are(face, points, cast):
    target = target_of(face, points, EVERYWHERE)
    moved = np.linalg.norm(fitted_shape(target, cast.donor(7, 256).points) - points[:, :2], axis=1)
    assert moved[list(OUTER_LIPS)].max() < 0.005 * eye_distance(points)
    assert moved.max() > 0.03 * eye_distance(points)


def test_light_is_not_read_off_the_mouth(face, points):
    marked = face.copy()
    marked[cv2.dilate(mouth(points[:, :2], 256).astype(np.uint8), np.ones((3, 3))) > 0] = STAND_IN
    plain = target_of(face, points, EVERYWHERE)
    changed = target_of(marked, points, EVERYWHERE)
    assert plain.skin.sum() > 1000
    assert (marked == face).all(-1)[changed.skin].all()
