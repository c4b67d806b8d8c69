"""What several views say, brought together: second opinions, turns, parts of a face."""

import numpy as np
import pytest

from faceanon.photo.agreement import COLUMNS, LYING, Bars, agreed, main_turn, without_parts

BARS = Bars(sure=0.7, likely=0.45, again=0.3)


def row(box, score, size=0, turn=0):
    found = np.zeros(COLUMNS)
    found[:4] = box
    found[4] = score
    found[15] = size
    found[16] = turn
    return found


def together(*rows, turn=0):
    bars = dict.fromkeys(range(4), LYING) | {turn: BARS}
    return agreed(np.stack(rows), 0.3, bars)


BOX = (0, 0, 50, 50)


def test_two_views_have_to_agree_where_none_is_sure():
    assert len(together(row(BOX, 0.9))) == 1
    assert len(together(row(BOX, 0.6))) == 0
    assert len(together(row(BOX, 0.6), row(BOX, 0.35, size=1))) == 1
    assert len(together(row(BOX, 0.4), row(BOX, 0.4, size=1))) == 0
    # Twice in one view is one opinion, and so is the same in another turn.
    assert len(together(row(BOX, 0.6), row(BOX, 0.5))) == 0
    assert len(together(row(BOX, 0.6), row(BOX, 0.5, size=1, turn=2))) == 0
    assert len(together(row(BOX, 0.9), row((100, 100, 150, 150), 0.8))) == 2


def test_a_face_that_lies_otherwise_than_the_photo_has_to_score_more():
    assert len(together(row(BOX, 0.8, turn=1))) == 0
    assert len(together(row(BOX, 0.8, turn=1), turn=1)) == 1
    assert len(together(row(BOX, 0.9, turn=1))) == 1
    assert len(together(row(BOX, 0.8, turn=1), row(BOX, 0.65, size=1, turn=1))) == 1


def test_the_better_turn_says_how_a_face_lies():
    kept = together(row(BOX, 0.75), row(BOX, 0.93, turn=3))
    assert kept[:, 16].tolist() == [3]


def test_the_photo_lies_as_most_of_its_faces_do():
    rows = [row((100 * number, 0, 100 * number + 50, 50), 0.9, turn=2) for number in range(3)]
    assert main_turn(np.stack([*rows, row((0, 100, 50, 150), 0.95)]), 0.3) == 2
    assert main_turn(np.stack([rows[0], row((0, 100, 50, 150), 0.95)]), 0.3) == 0
    assert main_turn(np.empty((0, COLUMNS)), 0.3) == 0


@pytest.mark.parametrize(
    ("box", "score", "left"),
    [
        ((50, 60, 150, 160), 0.7, False),  # an eye
        ((50, 60, 150, 160), 0.97, True),  # surer than the large box: not a part of it
        ((300, 350, 560, 650), 0.7, True),  # somebody in front of the shoulder
        ((405, 200, 505, 300), 0.8, False),  # an ear, beside the box
        ((405, 200, 505, 300), 0.92, True),  # a face behind the ear, clearly seen
        ((700, 200, 800, 300), 0.8, True),  # somebody further away
    ],
)
def test_what_lies_in_or_on_a_larger_face_is_no_face(box, score, left):
    kept = without_parts(np.stack([row((0, 0, 400, 500), 0.95), row(box, score)]))
    assert len(kept) == 1 + left


def test_faces_that_lie_in_different_ways_do_not_cover_each_other():
    face = row((0, 0, 250, 340), 0.96)
    kept = without_parts(np.stack([face, row((30, -60, 290, 110), 0.86, turn=1)]))
    assert kept[:, 4].tolist() == [0.96]
    assert len(without_parts(np.stack([face, row((30, -60, 290, 110), 0.86)]))) == 2


def test_a_group_taken_for_one_face_does_not_swallow_its_people():
    people = [row((100 * number, 0, 100 * number + 60, 70), 0.9) for number in range(3)]
    kept = without_parts(np.stack([row((0, 0, 300, 300), 0.72), *people]))
    assert len(kept) == 4
