"""The light of new faces: what the network sees, what it may change, and that it takes hard light away."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from faceanon.landmarks.cast import Cast
from faceanon.landmarks.geometry import EYE_CORNERS, eye_distance
from faceanon.landmarks.shader import TorchShader
from faceanon.landmarks.shading import MOST, SIDE, STRENGTH, shaded, sheet
from faceanon.landmarks.swap import put_on, target_of
from faceanon.networks.shading import ShadingNet

EVERYWHERE = np.ones((16, 16), bool)


@pytest.fixture(scope="module")
def shader():
    return TorchShader()


@pytest.fixture(scope="module")
def target(face, points):
    return target_of(face, points, EVERYWHERE)


def test_a_sheet_shows_colours_the_new_face_and_places_in_it(face, points, target):
    seen = sheet(face, target.edge, points)
    assert seen.shape == (6, SIDE, SIDE)
    assert seen.dtype == np.float32
    step = len(face) // SIDE
    # Red of one pixel of the sheet, the mean of its sixteen of the picture.
    red = np.log(face[step * 30 : step * 31, step * 33 : step * 34, 0].mean() + 8) - 4.6
    assert seen[0, 30, 33] == pytest.approx(red, abs=1e-3)
    assert seen[3].min() == 0
    assert seen[3].max() == pytest.approx(1, abs=1e-3)
    left, right = points[list(EYE_CORNERS), :2] / step
    for eye, place in ((left, -0.5), (right, 0.5)):
        column, row = eye.astype(int)
        assert seen[4, row, column] == pytest.approx(place, abs=step / eye_distance(points))
        assert seen[5, row, column] == pytest.approx(0, abs=step / eye_distance(points))
    chin = (points[152, :2] / step).astype(int)
    assert seen[5, chin[1], chin[0]] > 0.8


@pytest.mark.parametrize("side", [128, 256])
def test_a_field_changes_the_new_face_alone(face, points, side):
    picture = face[:: 256 // side, :: 256 // side]
    edge = target_of(picture, points * side / 256, EVERYWHERE).edge
    assert np.array_equal(shaded(picture, edge, np.zeros((3, 32, 32), np.float32)), picture)
    dim = shaded(picture, edge, np.full((3, 32, 32), -np.log(2) / STRENGTH, np.float32))
    assert np.array_equal(dim[edge[..., 0] == 0], picture[edge[..., 0] == 0])
    within = edge[..., 0] > 0.9999
    assert np.abs(((picture[within] + 8.0) / 2 - 8).clip(0) - dim[within]).max() <= 1
    # However wrong a field is, what it does has a bound.
    least = shaded(picture, edge, np.full((3, 32, 32), -50, np.float32))
    assert np.abs(((picture[within] + 8.0) * np.exp(-MOST) - 8).clip(0) - least[within]).max() <= 1


def test_an_untrained_network_changes_nothing():
    assert not ShadingNet()(torch.randn(2, 6, SIDE, SIDE)).any()


def test_the_network_that_ships_takes_light_from_one_side_away(face, points, target, cast, smooth, shader):
    # A donor in light that falls from the left alone, on a face in even light.
    picture, edge = put_on(target, cast.donor(smooth, 256), cast.triangles)
    slope = np.linspace(0.5, -0.5, 256, dtype=np.float32)[None, :, None]
    hard = ((picture + 8) * np.exp(slope * edge) - 8).clip(0, 255).astype(np.uint8)
    mended = shaded(hard, edge, shader(sheet(hard, edge, points)[None])[0])
    skin = target.skin & (edge[..., 0] > 0.99)

    def off(shown):
        """How much brighter the left half of the skin is than where the donor is in even light, by logarithms."""
        change = np.log(shown[skin].mean(-1) + 8) - np.log(picture[skin].mean(-1) + 8)
        columns = np.nonzero(skin)[1]
        return change[columns < np.median(columns)].mean() - change[columns >= np.median(columns)].mean()

    assert off(hard) > 0.2
    assert abs(off(mended)) < 0.9 * off(hard)


def test_what_the_new_face_covers_does_not_change_its_light(face, points, target, shader):
    # The person's own face with a mark in the middle of each cheek, where nothing of it is seen afterwards.
    marked = face.copy()
    for point in (50, 280):
        column, row = points[point, :2].astype(int)
        assert target.edge[row - 3 : row + 4, column - 3 : column + 4].min() > 0.99
        marked[row - 3 : row + 4, column - 3 : column + 4] //= 3
    assert np.abs(marked.astype(int) - face).max() > 60
    # The plane of light is read off the skin that was there, so it is read where both are the same.
    lit = replace(target, skin=target.skin & (face == marked).all(-1), hidden=True)
    cast = Cast(shader=shader)
    drawn = [cast.put_on([replace(lit, picture=picture)], [12])[0][:, lit.area] for picture in (face, marked)]
    assert np.abs(drawn[0] - drawn[1]).max() < 3 / 127.5


def test_the_cast_uses_it(face, points, cast, shader, target):
    changed = replace(target, hidden=True)
    plain = cast.put_on([changed], [12])[0]
    lit = Cast(shader=shader).put_on([changed], [12])[0]
    outside = ~target.area
    assert np.array_equal(plain[:, outside], lit[:, outside])
    assert np.abs(plain - lit)[:, target.area].mean() > 0.01
