"""Views and tiles of a photo: sizes, borders, turns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faceanon.photo.views import ENOUGH, SHARED, TILE, scaled, scales, tiles, turned, turned_back

SIDES = st.integers(1, 17_000)


@given(width=SIDES, height=SIDES)
def test_tiles_cover_a_view_and_are_bounded(width, height):
    parts = list(tiles(width, height))
    for part in parts:
        assert 0 <= part.left < part.right <= width
        assert 0 <= part.top < part.bottom <= height
        assert max(part.right - part.left, part.bottom - part.top) <= TILE
    assert min(part.left for part in parts) == min(part.top for part in parts) == 0
    assert max(part.right for part in parts) == width
    assert max(part.bottom for part in parts) == height


@given(width=SIDES, height=SIDES, where=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_every_place_belongs_to_one_tile_that_shows_what_surrounds_it(width, height, where):
    x = where[0] * width
    y = where[1] * height
    owners = [part for part in tiles(width, height) if part.owns(np.array([x]), np.array([y]))[0]]
    assert len(owners) == 1
    part = owners[0]
    room = SHARED / 2 - 1
    assert part.left <= max(0, x - room)
    assert part.right >= min(width, x + room)
    assert part.top <= max(0, y - room)
    assert part.bottom >= min(height, y + room)


def test_views_go_from_enlarged_to_small():
    for width, height in ((100, 80), (1280, 720), (12000, 6000)):
        found = scales(width, height, 12)
        assert found == sorted(set(found), reverse=True)
        assert 1.0 in found
        assert found[-1] * max(width, height) < 256
    assert scales(1024, 512, 12) == [1.5, 1.0, 0.5, 0.25, 0.125]
    assert scales(8192, 100, 12)[0] == 1.0


def test_no_view_is_larger_than_the_smallest_face_needs():
    assert all(scale * 48 <= ENOUGH for scale in scales(1024, 1024, 48))
    # One view that counts alone there has to be.
    assert scales(1024, 1024, 4000) == [0.25]
    assert scales(100, 80, 4000) == [1.0]


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_points_of_a_turned_picture_are_turned_back(turn):
    picture = np.zeros((40, 70, 3), np.uint8)
    picture[5, 60] = 255
    rows, columns = np.nonzero(turned(picture, turn)[..., 0])
    # The middle of a pixel lies half a pixel behind its number.
    place = turned_back(np.array([columns[0] + 0.5, rows[0] + 0.5]), turn, 70, 40)
    assert place.tolist() == [60.5, 5.5]


def test_a_view_has_a_pixel_at_least():
    assert scaled(np.zeros((3, 700, 3), np.uint8), 0.1).shape == (1, 70, 3)
