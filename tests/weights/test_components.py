"""Principal components of a prior are stored once: the encoder's reading follows from the generator's draft."""

import pytest
import torch

from faceanon.quantised import to_int8
from faceanon.weights.components import BIAS, CELLS, WEIGHT, reading, with_reading, without_reading

SIDE = 8
CHANNELS = 4
NUMBERS = 64


@pytest.fixture
def generator():
    torch.manual_seed(0)
    lengths = torch.logspace(0, -2, NUMBERS)
    draft = torch.linalg.qr(torch.randn(CHANNELS * SIDE**2, NUMBERS))[0] * lengths
    return {"draft.weight": draft, "draft.bias": torch.randn(CHANNELS * SIDE**2)}


@pytest.fixture
def cells():
    counts = torch.ones(SIDE, SIDE)
    counts[2:6, 2:6] = 4
    return counts


@pytest.mark.parametrize("rounded", [False, True])
def test_a_reading_finds_the_numbers_that_were_drawn(generator, cells, rounded):
    if rounded:
        steps, scale = to_int8(generator["draft.weight"])
        generator["draft.weight"] = steps * scale
    weight, bias = reading(generator["draft.weight"], generator["draft.bias"], cells)
    numbers = torch.randn(NUMBERS)
    drawn = generator["draft.weight"] @ numbers + generator["draft.bias"]
    torch.testing.assert_close(weight @ drawn + bias, numbers, rtol=0.02, atol=0.02)


def test_components_that_nothing_was_found_for_read_zero(generator, cells):
    generator["draft.weight"][:, -5:] = 0
    weight, bias = reading(generator["draft.weight"], generator["draft.bias"], cells)
    assert not weight[-5:].any()
    assert not bias[-5:].any()
    assert weight[:-5].any(1).all()


def test_cells_that_count_more_are_drawn_more_nearly(generator, cells):
    latents = torch.randn(50, CHANNELS, SIDE, SIDE)
    errors = []
    for counts in (torch.ones_like(cells), cells):
        weight, bias = reading(generator["draft.weight"], generator["draft.bias"], counts)
        numbers = latents.flatten(1) @ weight.T + bias
        off = (numbers @ generator["draft.weight"].T + generator["draft.bias"]).view_as(latents) - latents
        errors.append(off[..., 2:6, 2:6].square().mean())
    assert errors[1] < errors[0]


def test_what_follows_is_left_out_of_a_file_and_computed_anew(generator, cells):
    weight, bias = reading(generator["draft.weight"], generator["draft.bias"], cells)
    encoder = {"body": torch.ones(3), WEIGHT: weight, BIAS: bias}
    stored = without_reading(encoder, generator, cells)
    assert stored.keys() == {"body", CELLS}
    again = with_reading(stored, generator)
    assert again.keys() == encoder.keys()
    assert all(torch.equal(again[name], value) for name, value in encoder.items())


def test_a_reading_of_its_own_is_stored_whole(generator, cells):
    weight, bias = reading(generator["draft.weight"], generator["draft.bias"], cells)
    encoder = {WEIGHT: weight * 1.01, BIAS: bias}
    stored = without_reading(encoder, generator, cells)
    assert stored.keys() == encoder.keys()
    assert with_reading(stored, generator).keys() == encoder.keys()
