"""Latents of some cells as bytes: the round trip, what it costs, and bytes that are no code."""

import contextlib
import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faceanon.errors import UserError
from faceanon.sealed.coder import (
    LARGEST_STEP,
    SMALLEST_STEP,
    decode_cells,
    default_step,
    encode_cells,
    rows_of_code,
)
from faceanon.sealed.statistics import NEIGHBOURS, fit, neighbours, save, shipped

CHANNELS = 32


def smooth_latents(side, seed=0):
    """Latents in which neighbours are alike, of standard deviation 1."""
    numbers = np.random.default_rng(seed).standard_normal((CHANNELS, side, side))
    blurred = numbers + np.roll(numbers, 1, 1) + np.roll(numbers, 1, 2)
    return (blurred / 3**0.5).astype(np.float32)


def disc(side, radius=0.34):
    """About a third of the cells, around the middle."""
    places = (np.arange(side) + 0.5) / side - 0.5
    return places[:, None] ** 2 + places[None, :] ** 2 < radius**2


def decoded_or_none(code):
    """What `decode_cells` gives, or None where it refuses."""
    with contextlib.suppress(UserError):
        return decode_cells(code)
    return None


def furthest(latents, mask, step):
    """Largest distance in the basis between latents and what their code gives back."""
    decoded, found = decode_cells(encode_cells(latents, mask, step))
    assert (found == mask).all()
    assert not decoded[:, ~mask].any()
    basis = shipped()[0 if mask.shape[1] <= 23 else 1].basis
    return np.abs(np.einsum("kc,chw->khw", basis, latents - decoded)[:, mask]).max(initial=0)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    share=st.floats(0, 1),
    step=st.floats(SMALLEST_STEP, LARGEST_STEP),
    seed=st.integers(0, 1000),
)
def test_every_coefficient_comes_back_within_half_a_step(rows, columns, share, step, seed):
    generator = np.random.default_rng(seed)
    latents = generator.standard_normal((CHANNELS, rows, columns)).astype(np.float32)
    mask = generator.random((rows, columns)) < share
    # The step is kept to 1/1024.
    assert furthest(latents, mask, step) <= step / 2 + 127 / 2048 + 1e-4


@pytest.mark.parametrize("side", [8, 16, 32, 64])
def test_a_mask_of_nothing_and_a_mask_of_everything_come_back(side):
    latents = smooth_latents(side)
    for mask in (np.zeros((side, side), bool), np.ones((side, side), bool)):
        assert furthest(latents, mask, 0.5) <= 0.251


def test_absurd_latents_are_clipped_and_leave_their_neighbours_alone():
    latents = smooth_latents(16)
    latents[:, 7, 7] = 1e6
    mask = disc(16)
    decoded, _ = decode_cells(encode_cells(latents, mask, 0.35))
    assert np.abs(decoded[:, 7, 7]).max() > 10
    mask[7, 7] = False
    assert np.abs(decoded - latents)[:, mask].max() < 1.2


def test_a_smaller_step_costs_bytes_and_brings_the_latents_nearer():
    latents = smooth_latents(16)
    mask = disc(16)
    sizes = []
    errors = []
    for step in (0.2, 0.4, 0.8):
        code = encode_cells(latents, mask, step)
        sizes.append(len(code))
        errors.append(float(np.square(decode_cells(code)[0] - latents)[:, mask].mean()))
    assert sizes[0] > sizes[1] > sizes[2]
    assert errors[0] < errors[1] < errors[2]


def test_the_mask_takes_few_bytes():
    empty = np.zeros((CHANNELS, 32, 32), np.float32)
    alone = len(encode_cells(empty, np.zeros((32, 32), bool)))
    outline = 0
    for chance in (0.0, 1.0):
        mask = disc(32) if chance else np.zeros((32, 32), bool)
        outline = len(encode_cells(empty, mask)) - alone
    # Zeros are cheap along every direction, but not free: 0.35 bits and more each. A bitmap alone would take 128.
    assert alone <= 16
    assert outline < 128 + mask.sum() * CHANNELS * 2.2 / 8


def test_the_bytes_of_a_code_never_change():
    # Files hold such codes: if this fails, the format has changed and needs a new version.
    whole = ((np.arange(CHANNELS * 256) * 7919) % 4001).reshape(CHANNELS, 16, 16)
    latents = (whole.astype(np.float32) - 2000) / 1000
    codes = [encode_cells(latents, disc(16), 0.35), encode_cells(np.tile(latents, (1, 2, 2)), disc(32), 0.5)]
    assert [hashlib.sha256(code).hexdigest()[:16] for code in codes] == ["c2b06c6c47a80cfc", "33fbe64e7ce541bf"]


@pytest.mark.parametrize("place", range(6))
def test_a_changed_head_is_no_code_or_other_latents(place):
    code = bytearray(encode_cells(smooth_latents(16), disc(16)))
    before = decode_cells(bytes(code))
    code[place] ^= 0x41
    after = decoded_or_none(bytes(code))
    assert after is None or after[0].shape != before[0].shape or not np.allclose(after[0], before[0])


@settings(deadline=None, max_examples=100)
@given(data=st.binary(max_size=400))
def test_bytes_of_any_origin_raise_nothing_but_a_user_error(data):
    for code in (data, b"\x01\x00\x10\x10\x66\x01" + data):
        decoded = decoded_or_none(code)
        assert decoded is None or np.isfinite(decoded[0]).all()


@pytest.mark.parametrize("length", [0, 5, 7, 10, 100, -4, -1])
def test_a_code_cut_short_is_refused(length):
    code = encode_cells(smooth_latents(16), disc(16))
    with pytest.raises(UserError, match="damaged"):
        decode_cells(code[:length])


def test_a_code_with_more_behind_it_is_refused():
    code = encode_cells(smooth_latents(16), disc(16))
    with pytest.raises(UserError, match="damaged"):
        decode_cells(code + b"abcd")


@pytest.mark.parametrize(
    ("latents", "mask", "step"),
    [
        (np.zeros((4, 16, 16), np.float32), disc(16), 0.5),
        (np.zeros((32, 16, 16), np.float32), disc(8), 0.5),
        (np.zeros((32, 65, 65), np.float32), disc(65), 0.5),
        (np.full((32, 16, 16), np.nan, np.float32), disc(16), 0.5),
        (np.zeros((32, 16, 16), np.float32), disc(16), 0.01),
        (np.zeros((32, 16, 16), np.float32), disc(16), 5.0),
    ],
)
def test_what_has_no_code_is_refused(latents, mask, step):
    with pytest.raises(ValueError, match=r"code|step"):
        encode_cells(latents, mask, step)


def test_a_code_says_how_large_its_picture_was():
    for side in (4, 16, 32):
        code = encode_cells(np.zeros((32, side, side), np.float32), np.ones((side, side), bool))
        assert rows_of_code(code) == side
    for damaged in (b"", code[:3], code[:2] + b"\0" + code[3:], code[:2] + b"\xff" + code[3:]):
        with pytest.raises(UserError, match="damaged"):
            rows_of_code(damaged)


def test_default_steps_are_coarser_for_larger_faces():
    assert default_step(32) > default_step(16)


def test_neighbours_lie_before_their_cell():
    assert all(row < 0 or (row == 0 and column < 0) for row, column in NEIGHBOURS)
    values = np.arange(12).reshape(3, 4)
    left, above, above_left, above_right = neighbours(values)
    assert (left[1, 2], above[1, 2], above_left[1, 2], above_right[1, 2]) == (5, 2, 1, 3)
    assert (left[1, 0], above[0, 1], above_right[1, 3]) == (0, 0, 0)


def test_shipped_bases_are_orthonormal():
    for statistics in shipped():
        assert np.allclose(statistics.basis @ statistics.basis.T, np.eye(CHANNELS), atol=1e-5)


def test_fitted_statistics_know_directions_and_neighbours(tmp_path):
    generator = np.random.default_rng(3)
    common = generator.standard_normal((40, 1, 12, 12))
    smooth = (common + np.roll(common, 1, 2) + np.roll(common, 1, 3)) * np.array([3, -3, 0, 0])[:, None, None]
    latents = (smooth + 0.1 * generator.standard_normal((40, 4, 12, 12))).astype(np.float32)
    statistics = fit(latents, np.ones((40, 12, 12), bool))
    save(tmp_path / "s.safetensors", [statistics])
    assert (tmp_path / "s.safetensors").stat().st_size < 1000
    # The strongest direction is (1, -1, 0, 0), and its neighbours tell part of it.
    assert abs(statistics.basis[-1] @ np.array([1, -1, 0, 0]) / 2**0.5) > 0.999
    assert statistics.weights[-1, 0] > 10
    assert statistics.spread[-1] > 10 * statistics.spread[0]
