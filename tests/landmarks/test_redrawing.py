"""Which faces are redrawn, how far, and what of it a large picture gets."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from faceanon.landmarks.drawings import LEFT_EYE, NOSE_OUTLINE, OUTER_LIPS, RIGHT_EYE
from faceanon.landmarks.redrawing import (
    MIXTURES,
    NOISES,
    SHAPE,
    STILL_UNLIKE,
    UNLIKE_IN_CLIPS,
    carried_over,
    feature_pixels,
    led_back,
    noise,
    noises,
    redraw,
    redraw_frames,
    times,
)


def test_the_noise_is_standard_normal_and_always_the_same():
    drawn = noise()
    assert drawn.shape == SHAPE
    assert abs(drawn.mean()) < 0.05
    assert abs(drawn.std() - 1) < 0.05
    # Of the first numbers: other noise would give the same password other strangers.
    assert drawn.reshape(-1)[:3] == pytest.approx(FIRST, abs=1e-6)
    assert abs(np.corrcoef(drawn.reshape(-1)[:-1], drawn.reshape(-1)[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(drawn.reshape(-1), noise(NOISES[1]).reshape(-1))[0, 1]) < 0.05


def test_a_donor_has_the_same_noise_always_and_the_next_one_another():
    found = noises([3, 4, 3])
    assert found.shape == (3, *SHAPE)
    assert (found[0] == found[2]).all()
    assert (found[0] != found[1]).mean() > 0.99


FIRST = [0.664100, 0.606810, 1.421306]


def test_a_flow_begins_at_the_mixture_and_ends_at_the_face():
    for start, steps in MIXTURES:
        assert times(start, steps)[0] == start
        assert times(start, steps)[-1] == 1
        assert len(times(start, steps)) == steps + 1
    # The one with more noise comes first.
    assert [start for start, _ in MIXTURES] == sorted(start for start, _ in MIXTURES)


class Fake:
    """Redraws a picture to the number of the attempt, from 1, and is as alike as a table says."""

    def __init__(self, alike):
        self.alike_of = alike
        self.asked = []
        self.looked = 0

    def look(self, drawn, rows):
        self.looked += 1

        def again(some, when, noise):
            assert noise.shape == (len(some), *SHAPE)
            self.asked.append((tuple(rows[place] for place in some), when[0]))
            return np.full_like(drawn[some], len(self.asked))

        return again

    def alike(self, drawn, rows):
        found = []
        for picture, row in zip(drawn, rows, strict=True):
            found.append(self.alike_of[row].get(round(float(picture[0, 0, 0]), 2), 0.0))
        return np.array(found, np.float32)


def test_a_face_is_redrawn_again_or_not_at_all_where_it_would_be_like_the_person():
    like = STILL_UNLIKE + 0.1
    never = dict.fromkeys(range(1, len(MIXTURES) + 1), like)
    less = never | {0: like + 0.1, 2: like - 0.01}
    fake = Fake([{}, {1: like}, never, less])
    drawn = redraw(np.zeros((4, 3, 8, 8), np.float32), fake.look, fake.alike, np.zeros((4, 8, 8), np.float32), range(4))
    # The third was less alike as it was put on, and the last one in the second attempt.
    assert drawn[:, 0, 0, 0] == pytest.approx([1, 2, 0, 2])
    attempts = [(0, 1, 2, 3), (1, 2, 3), *[(2, 3)] * (len(MIXTURES) - 2)]
    assert fake.asked == [(rows, start) for rows, (start, _) in zip(attempts, MIXTURES, strict=True)]
    # What is to be known of a put-on face is read once for all mixtures.
    assert fake.looked == 1


def test_faces_that_could_not_be_put_on_stay_unknown_and_are_not_looked_at():
    put_on = np.zeros((2, 3, 8, 8), np.float32)
    put_on[0] = np.nan
    fake = Fake([{}, {}])
    own = np.zeros((2, 8, 8), np.float32)
    drawn = redraw(put_on, fake.look, fake.alike, own, [0, 0])
    assert np.isnan(drawn[0]).all()
    assert np.isfinite(drawn[1]).all()
    assert fake.asked == [((1,), MIXTURES[0][0])]
    nobody = redraw(put_on[:1], fake.look, fake.alike, own[:1], [0])
    assert np.isnan(nobody).all()
    assert len(fake.asked) == 1


def test_an_open_mouth_that_is_the_person_s_own_is_not_redrawn():
    put_on = np.full((1, 3, 8, 8), 0.25, np.float32)
    own = np.zeros((1, 8, 8), np.float32)
    own[0, 5, 2:6] = [0.5, 1, 1, 0.5]
    fake = Fake([{}])
    drawn = redraw(put_on, fake.look, fake.alike, own, [0])
    assert drawn[0, :, 5, 3:5] == pytest.approx(0.25)
    assert drawn[0, :, 5, 2] == pytest.approx((0.25 + 1) / 2)
    drawn[0, :, 5, 2:6] = 1
    assert drawn == pytest.approx(1)


def test_what_redrawing_changed_is_carried_over_within_the_mask_alone():
    large = np.zeros((1, 3, 32, 32), np.float32)
    before = np.zeros((1, 3, 16, 16), np.float32)
    after = before.copy()
    after[:, :, 4:8, 4:8] = 0.5
    mask = np.zeros((1, 1, 4, 4), np.float32)
    mask[:, :, 1, 1] = 1
    nowhere = np.zeros((1, 16, 16), np.float32)
    wide = carried_over(large, before, after, mask, nowhere)
    assert wide[0, :, 10:14, 10:14] == pytest.approx(0.5, abs=0.1)
    inside = np.zeros((32, 32), bool)
    inside[8:16, 8:16] = True
    assert (wide[:, :, ~inside] == 0).all()
    assert (carried_over(large, before, before, mask, nowhere) == large).all()


def test_eyes_of_a_large_face_get_the_light_of_a_redrawn_one_and_no_second_pair_of_lids():
    large = np.zeros((1, 3, 128, 128), np.float32)
    before = np.zeros((1, 3, 64, 64), np.float32)
    stripes = np.where(np.arange(64) % 4 < 2, 0.5, -0.5)
    after = before + (0.2 + stripes).astype(np.float32)
    mask = np.ones((1, 1, 8, 8), np.float32)
    eyes = np.zeros((1, 64, 64), np.float32)
    eyes[:, :, 32:] = 1
    wide = carried_over(large, before, after, mask, eyes)
    assert wide[..., 80:112].min() == pytest.approx(0.2, abs=0.05)
    assert wide[..., 80:112].max() == pytest.approx(0.2, abs=0.05)
    # Elsewhere what is fine comes with it.
    assert np.ptp(wide[..., 16:48]) > 0.9


def test_features_are_eyes_nose_and_lips_and_what_is_beside_them():
    mesh = np.zeros((468, 3), np.float32)
    # Middle, and half of width and height.
    places = {
        LEFT_EYE: (40, 50, 13, 5),
        RIGHT_EYE: (88, 50, 13, 5),
        NOSE_OUTLINE: (64, 76, 9, 8),
        OUTER_LIPS: (64, 100, 14, 6),
    }
    for part, (x, y, wide, high) in places.items():
        turns = np.linspace(np.pi, 3 * np.pi, len(part), endpoint=False)
        mesh[list(part), :2] = np.stack([x + wide * np.cos(turns), y + high * np.sin(turns)], 1)
    target = SimpleNamespace(picture=np.zeros((128, 128, 3), np.uint8), mesh=mesh)
    share = feature_pixels([target])[0]
    assert share.shape == (128, 128)
    for x, y, _, high in places.values():
        assert share[y, x] == pytest.approx(1, abs=0.01)
        assert share[y - high, x] > 0.9
    # Forehead, cheeks and chin are none.
    for x, y in ((64, 25), (30, 80), (98, 80), (64, 126)):
        assert share[y, x] < 0.001
    # Half of it is left where it ends, so that nothing shows an edge.
    assert 0.2 < share[50, 40 - 13 - 10] < 0.8


def test_steps_lead_to_the_wanted_face():
    start = np.zeros((2, 32, 16, 16), np.float32)
    wanted = np.full_like(start, 2.0)
    seen = []

    def direction(here, time):
        seen.append(time)
        return wanted

    for numbers in (start, torch.from_numpy(start)):
        if isinstance(numbers, torch.Tensor):
            wanted = torch.from_numpy(wanted)
        found = led_back(numbers, times(0.5, 2), direction)
        assert found.dtype == numbers.dtype
        # Half of the way is left.
        assert np.allclose(found, 1.0, atol=1e-6)
    assert seen == [0.5, 0.75] * 2


def test_of_a_clip_s_frames_the_less_is_redrawn_the_more_it_is_like_the_person():
    least, most = UNLIKE_IN_CLIPS
    middle = (least + most) / 2
    fake = Fake([{}, {1: least}, {1: middle}, {1: most + 0.1}, {}])
    put_on = np.zeros((5, 3, 8, 8), np.float32)
    put_on[4] = np.nan
    own = np.zeros((5, 8, 8), np.float32)
    own[0, 5, 3] = 1
    drawn = redraw_frames(put_on, fake.look, fake.alike, own, range(5))
    assert drawn[1:4, 0, 0, 0] == pytest.approx([1, 0.5, 0.0], abs=1e-6)
    # The person's own open mouth stays.
    assert drawn[0, :, 5, 3] == pytest.approx(0.0)
    assert drawn[0, :, 0, 0] == pytest.approx(1)
    # Where no face was put on, none is looked at, and one mixture is for all.
    assert np.isnan(drawn[4]).all()
    assert fake.asked == [((0, 1, 2, 3), MIXTURES[0][0])]
    assert np.isnan(redraw_frames(put_on[4:], fake.look, fake.alike, own[4:], [4])).all()
