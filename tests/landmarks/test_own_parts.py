"""What of a face stays the person's own: an open mouth."""

import cv2
import numpy as np
import pytest

from faceanon.landmarks.drawings import INNER_LIPS, OUTER_LIPS
from faceanon.landmarks.geometry import around, eye_distance, filled, openness
from faceanon.landmarks.own_parts import AROUND_LIPS, PARTED, SHUT, own_mouth, own_share
from faceanon.landmarks.swap import fitted_shape, put_on, target_of

LOWER_LIP = (95, 88, 178, 87, 14, 317, 402, 318, 324)  # of the inner lips
UPPER_LIP = (191, 80, 81, 82, 13, 312, 311, 310, 415)
EVERYWHERE = np.ones((32, 32), bool)
STAND_IN = (30, 200, 40)  # a colour that no donor has


def opened(points, gap):
    """A mesh whose lips are apart by `gap` distances between the eyes."""
    mesh = points.copy()
    middle = (mesh[list(LOWER_LIP), 1] + mesh[list(UPPER_LIP), 1]) / 2
    mesh[list(LOWER_LIP), 1] = middle + gap / 2 * eye_distance(points)
    mesh[list(UPPER_LIP), 1] = middle - gap / 2 * eye_distance(points)
    return mesh


def lips(points):
    return filled(points[list(INNER_LIPS), :2], 256)


def test_an_open_mouth_stays_and_shut_lips_become_the_donor_s(face, points, cast):
    laughing = opened(points, 0.15)
    marked = face.copy()
    marked[lips(laughing)] = STAND_IN
    target = target_of(marked, laughing, EVERYWHERE)
    drawn = put_on(target, cast.donor(3, 256), cast.triangles)
    # At the corners of the mouth the edge is near, and soft.
    within = cv2.erode(lips(laughing).astype(np.uint8), np.ones((9, 9))) > 0
    assert within.sum() > 200
    assert np.array_equal(drawn[within], marked[within])
    # Further away nothing of the person's own face does.
    far = target.area & ~filled(around(laughing[list(OUTER_LIPS), :2], AROUND_LIPS + 0.3), 256)
    assert target.own[far].max() == 0
    shut = opened(points, 0.0)
    assert own_share(shut[:, :2], 256).max() == 0
    drawn = put_on(target_of(face, shut, EVERYWHERE), cast.donor(3, 256), cast.triangles)
    outer = filled(shut[list(OUTER_LIPS), :2], 256)
    assert (drawn != face).any(-1)[outer].mean() > 0.95


def test_between_shut_and_open_nothing_jumps(points):
    shares = []
    for gap in np.linspace(0, 2 * PARTED, 41):
        mesh = opened(points, gap)
        assert openness(mesh) == pytest.approx(gap, abs=1e-3)
        shares.append(own_mouth(mesh))
    assert shares[0] == 0
    assert shares[-1] == 1
    assert 0 <= np.diff(shares).max() < 2 * (2 * PARTED / 40) / (PARTED - SHUT)
    assert np.diff(shares).min() >= 0


def test_a_mouth_that_stays_is_not_moved(face, points, cast):
    donor = cast.donor(7, 256).points
    for gap, still in ((0.0, False), (0.15, True)):
        mesh = opened(points, gap)
        moved = np.linalg.norm(fitted_shape(target_of(face, mesh, EVERYWHERE), donor) - mesh[:, :2], axis=1)
        assert (moved[list(OUTER_LIPS)].max() < 0.3) == still
