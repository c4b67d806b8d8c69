"""Bytes in the lowest bits of a picture's windows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faceanon.errors import UserError
from faceanon.sealed.pixels import MAGIC, embed, find, has_part

WINDOWS = [(10, 20, 90, 110), (120, 5, 160, 50), (60, 100, 100, 140)]


def picture(seed=0, height=150, width=170):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@settings(deadline=None, max_examples=60)
@given(payload=st.binary(max_size=2500), seed=st.integers(0, 100))
def test_what_was_written_is_found_and_nothing_but_lowest_bits_of_the_windows_changed(payload, seed):
    before = picture(seed)
    after = before.copy()
    embed(after, WINDOWS, payload)
    assert find(after) == payload
    assert np.abs(after.astype(int) - before).max() <= 1
    inside = np.zeros(before.shape[:2], bool)
    for left, top, right, bottom in WINDOWS:
        inside[top:bottom, left:right] = True
    assert np.array_equal(after[~inside], before[~inside])


def test_a_payload_larger_than_one_window_goes_over_several():
    payload = np.random.default_rng(1).bytes(3000)
    pixels = picture()
    embed(pixels, WINDOWS, payload)
    assert find(pixels) == payload
    # The windows' corners move with the picture: it may be cut, as long as they stay whole.
    assert find(pixels[3:, 7:].copy()) == payload
    assert find(pixels[40:].copy()) is None


def test_too_little_room_is_a_mistake_with_numbers():
    pixels = picture()
    before = pixels.copy()
    with pytest.raises(UserError, match="5011 are to be carried: the faces are too small"):
        embed(pixels, WINDOWS, np.random.default_rng(1).bytes(5000))
    with pytest.raises(UserError, match="room for 0 bytes"):
        embed(pixels, [(0, 0, 20, 100)], b"x")
    assert np.array_equal(pixels, before)


def test_pictures_that_carry_nothing_give_nothing():
    for seed in range(5):
        assert find(picture(seed)) is None
    assert find(np.zeros((1, 1, 3), np.uint8)) is None


def test_one_changed_bit_in_the_payload_is_noticed():
    pixels = picture()
    embed(pixels, WINDOWS, np.random.default_rng(1).bytes(600))
    pixels[23, 40, 1] ^= 1
    assert find(pixels) is None


def test_the_magic_alone_is_nothing():
    bits = np.unpackbits(np.frombuffer(MAGIC, np.uint8))
    for height, width in ((1, 22), (2, 30), (40, 60)):
        pixels = picture(0, height, width)
        row = pixels[0].reshape(-1)
        row[: len(bits)] = (row[: len(bits)] & 0xFE) | bits
        pixels[0] = row.reshape(width, 3)
        assert find(pixels) is None


def test_a_part_of_what_was_carried_is_seen():
    pixels = picture()
    assert not has_part(pixels)
    embed(pixels, WINDOWS, np.random.default_rng(1).bytes(3000))
    for left, top, right, bottom in sorted(WINDOWS, key=lambda w: (w[0] - w[2]) * (w[1] - w[3])):
        assert has_part(pixels)
        pixels[top:bottom, left:right] = 0
        assert find(pixels) is None
    assert not has_part(pixels)
