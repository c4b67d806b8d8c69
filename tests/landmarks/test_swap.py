"""Faces put on: what changes, what stays, and whose shape, light and mouth it gets."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from cast_list import listed

from faceanon.landmarks import swap
from faceanon.landmarks.drawings import LEFT_BROW, LEFT_EYE, NOSE_TIP, OUTLINE, RIGHT_BROW, RIGHT_EYE, pupils
from faceanon.landmarks.geometry import eye_distance, filled, openness, turn
from faceanon.landmarks.swap import (
    SHIFT,
    Donor,
    brow_shade,
    fitted_shape,
    put_on,
    skin_tone,
    target_of,
)

SMOOTH = "faker_00048.jpg"  # a donor of even skin and no hair over the face
EVERYWHERE = np.ones((32, 32), bool)


@pytest.fixture(scope="module")
def smooth():
    """Number of a donor of whom the tests know what the face is like, whoever else joins the cast."""
    return [row["file"] for row in listed()].index(SMOOTH)


def swapped(face, points, cast, number, painted=EVERYWHERE):
    donor = cast.donor(number, len(face))
    return put_on(target_of(face, points, painted), donor, cast.triangles)


def test_a_face_that_is_put_on_itself_stays(face, points, cast):
    donor = Donor(face, points, pupils(face, points[:, :2]), skin_tone(face, points))
    again = put_on(target_of(face, points, EVERYWHERE), donor, cast.triangles)
    assert np.abs(again.astype(int) - face).mean() < 2


def test_another_face_is_another_one_and_has_the_same_expression(mesh, face, points, cast):
    drawn = swapped(face, points, cast, 3)
    changed = (drawn != face).any(-1)
    assert 0.1 < changed.mean() < 0.4
    assert np.abs(drawn.astype(int) - face)[changed].mean() > 8
    found, confidence = mesh.solid(drawn[None])
    assert confidence[0] > 0.9
    away = np.linalg.norm(found[0, :, :2] - points[:, :2], axis=1).mean() / eye_distance(points)
    assert away < 0.08
    gaps = []
    for number in (3, 40, 90):
        gaps.append(openness(mesh.solid(swapped(face, points, cast, number)[None])[0][0]) - openness(points))
    assert np.abs(gaps).mean() < 0.05


@pytest.mark.parametrize("number", [0, 40, 90])
def test_nothing_changes_where_nothing_may(face, points, cast, number):
    painted = EVERYWHERE.copy()
    painted[:, :16] = False
    drawn = swapped(face, points, cast, number, painted)
    assert np.array_equal(drawn[:, :128], face[:, :128])
    assert not np.array_equal(drawn[:, 128:], face[:, 128:])
    assert np.array_equal(swapped(face, points, cast, number, ~EVERYWHERE), face)


def test_points_move_towards_the_donor_s_shape_by_as_much_as_is_said(face, points, cast):
    shape = fitted_shape(target_of(face, points, EVERYWHERE), cast.donor(7, 256).points)
    moved = np.linalg.norm(shape - points[:, :2], axis=1)
    assert moved.mean() / eye_distance(points) == pytest.approx(SHIFT, rel=0.01)
    # Nothing of the outline does, and a brow moves as a whole.
    assert moved[list(OUTLINE)].max() < 0.02 * eye_distance(points)
    brow = (shape - points[:, :2])[list(LEFT_BROW)]
    assert brow.std(0).max() < 0.02 * eye_distance(points)


def test_a_donor_s_size_and_place_are_nothing_to_the_shape(face, points, cast):
    target = target_of(face, points, EVERYWHERE)
    donor = cast.donor(7, 256).points
    np.testing.assert_allclose(fitted_shape(target, donor * 3 + 50), fitted_shape(target, donor), atol=1e-2)


@pytest.mark.parametrize("brightness", [0.5, 0.8])
def test_the_new_face_is_as_bright_as_the_old_one(face, points, cast, brightness):
    dim = (face * brightness).astype(np.uint8)
    tone = skin_tone(face, points)
    number = int(cast.closed[np.abs(cast.tones[cast.closed] - tone).sum(1).argmin()])
    bright = skin_tone(swapped(face, points, cast, number), points)
    dark = skin_tone(swapped(dim, points, cast, number), points)
    np.testing.assert_allclose(bright - dark, tone - skin_tone(dim, points), atol=0.1)


def test_how_dark_brows_are_is_read_beside_the_skin(face, points):
    shades = []
    for colour in (120, 60, 20):
        drawn = face.copy()
        for brow in (LEFT_BROW, RIGHT_BROW):
            cv2.fillPoly(drawn, [points[list(brow), :2].round().astype(np.int32)], (colour, colour, colour))
        shades.append(brow_shade(drawn, points, skin_tone(drawn, points)))
    assert shades[0] > shades[1] + 0.3 > shades[2] + 0.6
    # In half the light brows are as dark beside the skin as before.
    dim = (face * 0.5).astype(np.uint8)
    own = brow_shade(face, points, skin_tone(face, points))
    assert brow_shade(dim, points, skin_tone(dim, points)) == pytest.approx(own, abs=0.1)
    # Brows that lie beyond the picture say nothing.
    beyond = points + np.array([0, -1000, 0], np.float32)
    assert brow_shade(face, beyond, skin_tone(face, beyond)) == pytest.approx(0, abs=1e-3)


def test_hair_over_the_forehead_stays(face, points, cast, smooth):
    brows = int(points[list(LEFT_BROW), 1].min())
    fringed = face.copy()
    fringed[: brows - 12] = (20, 30, 200)
    drawn = swapped(fringed, points, cast, smooth)
    assert np.array_equal(drawn[: brows - 16], fringed[: brows - 16])
    assert not np.array_equal(drawn, fringed)


def test_nothing_of_the_person_s_own_face_is_mixed_in(face, points, cast):
    # A birthmark on each side, as near to the edge as it may be without reaching it.
    target = target_of(face, points, EVERYWHERE)
    depth = cv2.distanceTransform(target.area.astype(np.uint8), cv2.DIST_L2, 5)
    marked = face.copy()
    height = int(points[list(OUTLINE), 1].mean())
    for column in (np.nonzero(target.area[height])[0].min() + 13, np.nonzero(target.area[height])[0].max() - 13):
        marked[height - 3 : height + 4, column - 3 : column + 4] //= 2
    assert depth[(marked != face).any(-1)].min() > 8
    assert np.abs(marked.astype(int) - face).max() > 60
    donor = cast.donor(12, len(face))
    without = put_on(target, donor, cast.triangles).astype(int)
    # The same light for both, which is read off the skin.
    shown = put_on(replace(target, picture=marked), donor, cast.triangles).astype(int)
    light = np.abs(shown - without)[target.area]
    assert np.median(light) <= 1
    assert light.max() < 6


def test_colours_meet_at_the_edge(face, points, cast, smooth):
    # A skin that grows darker towards the left, faster than a plane of light does.
    shade = np.ones((256, 256, 1))
    middle = int(points[:, 0].mean())
    shade[:, :middle, 0] = np.linspace(0.4, 1, middle) ** 2
    shaded = (face * shade).astype(np.uint8)
    target = target_of(shaded, points, EVERYWHERE)
    inside = cv2.erode(target.area.astype(np.uint8), np.ones((5, 5)))
    rim = (cv2.erode(inside, np.ones((5, 5))) == 0) & (inside > 0)
    # Above the brows the new face fades out over more than that.
    rim[: int(points[[*LEFT_BROW, *RIGHT_BROW], 1].min())] = False

    def jump(drawn):
        """How far colours beside the edge are from those beyond it, smoothed over both."""
        sides = []
        for part in (rim, target.ring):
            share = cv2.GaussianBlur(part.astype(np.float32), (0, 0), 8)[..., None]
            sides.append(cv2.GaussianBlur(drawn * part[..., None].astype(np.float32), (0, 0), 8) / (share + 1e-6))
        return np.abs(sides[0] - sides[1])[rim].mean()

    donor = cast.donor(smooth, 256)
    met = jump(put_on(target, donor, cast.triangles))
    unmet = jump(put_on(replace(target, ring=np.zeros_like(target.ring)), donor, cast.triangles))
    assert met < 0.8 * unmet


def test_on_the_forehead_the_new_face_fades_out(face, points, cast, smooth, monkeypatch):
    soft = target_of(face, points, EVERYWHERE)
    drawn = put_on(soft, cast.donor(smooth, 256), cast.triangles)
    assert np.array_equal(drawn[~soft.area], face[~soft.area])
    monkeypatch.setattr(swap, "FOREHEAD_EDGE", swap.EDGE)
    hard = target_of(face, points, EVERYWHERE)
    assert np.array_equal(soft.area, hard.area)
    # Downwards through the middle of the forehead: from the photograph to the new face in many small steps.
    brows = int(points[[*LEFT_BROW, *RIGHT_BROW], 1].min())
    column = int(points[NOSE_TIP, 0])
    steps = [np.diff(target.edge[:brows, column, 0]).max() for target in (soft, hard)]
    assert steps[0] < 0.4 * steps[1]
    # Below the brows the edge is as narrow as it was.
    eyes = int(points[list(LEFT_EYE), 1].mean())
    np.testing.assert_allclose(soft.edge[eyes:], hard.edge[eyes:])


def with_a_lock(donor, width):
    """A donor with black hair on the left temple, up to `width` of the eye distance beyond the eye's outer corner."""
    picture = donor.picture.copy()
    top = int(donor.points[list(LEFT_BROW), 1].max()) + 4
    bottom = int(donor.points[NOSE_TIP, 1]) - 5
    corner = donor.points[list(LEFT_EYE), 0].min() + width * eye_distance(donor.points)
    picture[top:bottom, : int(corner)] = 5
    return replace(donor, picture=picture)


def test_a_donor_s_hair_at_the_edge_is_left_out(face, points, cast, smooth, monkeypatch):
    target = target_of(face, points, EVERYWHERE)
    donor = with_a_lock(cast.donor(smooth, 256), -0.05)
    drawn = put_on(target, donor, cast.triangles)
    monkeypatch.setattr(swap, "MOST_HAIR", 0.0)
    black = (put_on(target, donor, cast.triangles).max(-1) < 20) & (face.max(-1) > 60)
    assert black.sum() > 50
    # What is there instead is the photograph, but for a few pixels at the end of the lock, where the new face begins.
    assert (drawn == face).all(-1)[black].mean() > 0.95
    assert drawn[black].max(-1).min() > 60


def test_half_a_face_in_the_dark_is_no_hair(face, points, cast, smooth):
    target = target_of(face, points, EVERYWHERE)
    donor = with_a_lock(cast.donor(smooth, 256), 0.7)
    drawn = put_on(target, donor, cast.triangles)
    # Nothing of the person's own face shows in the dark half.
    assert (drawn == face).all(-1)[target.edge[..., 0] > 0.99].mean() < 0.02


def test_a_donor_who_looks_to_the_other_side_is_stretched_more_than_the_mirror_image(face, points, cast):
    # A face that is turned: its points as seen from the side.
    angle = 0.5
    solid = points - points.mean(0)
    turned = solid.copy()
    turned[:, 0] = np.cos(angle) * solid[:, 0] + np.sin(angle) * solid[:, 2]
    turned[:, 2] = np.cos(angle) * solid[:, 2] - np.sin(angle) * solid[:, 0]
    turned += points.mean(0)
    sideways = int((cast.turns * np.sign(turn(turned))).argmin())
    mirrored = sideways + len(cast.codes)
    assert turn(cast.donor(sideways, 256).points) * turn(turned) < 0
    assert turn(cast.donor(mirrored, 256).points) * turn(turned) > 0

    def uneven(number):
        """How much more some triangles grow than others, as a deviation of logarithms."""
        areas = []
        for mesh in (cast.donor(number, 256).points, turned):
            first, second, third = (mesh[cast.triangles[:, corner], :2] for corner in range(3))
            along, down = second - first, third - first
            areas.append(np.abs(along[:, 0] * down[:, 1] - along[:, 1] * down[:, 0]) + 1)
        return np.log(areas[1] / areas[0]).std()

    assert uneven(mirrored) < 0.8 * uneven(sideways)


def test_small_pictures_get_the_same_face(face, points, cast, smooth):
    half = cv2.resize(face, (128, 128), interpolation=cv2.INTER_AREA)
    small = swapped(half, points / 2, cast, smooth, EVERYWHERE[::2, ::2])
    large = cv2.resize(swapped(face, points, cast, smooth), (128, 128), interpolation=cv2.INTER_AREA)
    assert np.abs(small.astype(int) - large).mean() < 4


def test_a_face_of_which_too_little_would_change_is_not_called_hidden(face, points):
    outline = points[list(OUTLINE), :2]
    cells = ~EVERYWHERE
    left, top = (outline.min(0) // 8).astype(int)
    right, bottom = (outline.max(0) // 8).astype(int) + 1
    cells[top:bottom, left:right] = True
    assert target_of(face, points, cells).hidden
    # A mesh that lies beyond the picture hides nothing in it.
    beyond = points + np.float32(300)
    assert not target_of(face, beyond, cells).hidden


def test_what_becomes_smaller_is_a_mean_and_no_row_of_dots():
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 200
    rows, columns = np.mgrid[:32, :32].astype(np.float32)
    # Every second column alone would be white, or black.
    half = swap._sampled(stripes, np.stack([2 * columns, 2 * rows], -1))
    assert abs(half[4:-4, 4:-4].astype(int) - 100).max() < 30
    as_large = swap._sampled(stripes, np.stack([columns, rows], -1))
    assert (as_large == stripes[:32, :32]).all()


def test_a_large_picture_that_becomes_smaller_throughout_is_sampled_in_pieces():
    # Brighter from row to row and from column to column, so that no pixel may be another's.
    down, across = np.mgrid[:512, :512]
    slope = np.stack([down // 2, across // 2, (down + across) // 4], -1).astype(np.uint8)
    rows, columns = np.mgrid[:256, :256].astype(np.float32)
    half = swap._sampled(slope, np.stack([2 * columns, 2 * rows], -1))
    off = np.abs(half.astype(int) - slope[::2, ::2])
    assert off[4:-4, 4:-4].max() <= 2


@pytest.mark.parametrize(("wanted", "seen"), [((0.05, 0.0), (0.05, 0.0)), ((0.6, 0.0), (swap.FARTHEST_LOOK, 0.0))])
def test_both_pupils_move_alike_and_not_beyond_the_lids(points, wanted, seen):
    side = 256
    shape = points[:, :2]
    middles = np.stack([shape[list(eye)].mean(0) for eye in (LEFT_EYE, RIGHT_EYE)])
    width = float(np.mean([np.ptp(shape[list(eye), 0]) for eye in (LEFT_EYE, RIGHT_EYE)]))
    columns, rows = np.meshgrid(np.arange(side), np.arange(side))
    field = np.stack([columns, rows], -1).astype(np.float32)
    before = field.copy()
    # One eye is read twice as far off as wanted, and the other as straight ahead.
    off = np.array([2 * np.array(wanted), (0, 0)]) * width
    there = np.floor(middles)
    swap._look_like(field, shape, middles, there + off)
    for middle in there.astype(int):
        move = field[middle[1], middle[0]] - before[middle[1], middle[0]]
        assert move == pytest.approx(np.array(seen) * width, abs=0.01 * width)
    outside = np.ones((side, side), bool)
    for eye in (LEFT_EYE, RIGHT_EYE):
        outside &= ~filled(shape[list(eye)], side)
    assert (field == before)[outside].all()
