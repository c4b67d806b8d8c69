"""The linear start of a prior of latents."""

import copy

import pytest
import torch

from faceanon.losses.latent import sliced_wasserstein
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.stylegan2 import Generator
from faceanon.stages.base import trainable_parameters
from faceanon.stages.colour_moments import colour_moments
from faceanon.stages.draft import fit_draft, fit_mapping, freeze_draft

CELLS = 16
CHANNELS = 4
DRAFT = [0, 7]


@pytest.fixture(scope="module")
def networks():
    torch.manual_seed(0)
    sides = {4: 8, 8: 8, 16: 8}
    generator = Generator(size=CELLS, style_dim=12, n_mlp=2, channels=sides, latents=CHANNELS, depth=6, draft=DRAFT)
    shape = {"input_size": CELLS, "input_nc": CHANNELS, "strides": [1, 1, 2, 2]}
    small = {"widths": [16] * 5, "units": [1] * 4}
    encoder = Encoder4Editing(stylegan_size=CELLS, style_dim=12, depth=6, flat=DRAFT, **shape, **small)
    return generator, encoder.eval()


@pytest.fixture(scope="module")
def latents():
    """Latents of 20 directions around a mean."""
    torch.manual_seed(1)
    directions = torch.randn(20, CHANNELS * CELLS**2)
    return (torch.randn(200, 20) @ directions + 1).view(-1, CHANNELS, CELLS, CELLS)


@pytest.fixture(scope="module")
def fitted(networks, latents):
    generator, encoder = networks
    return fit_draft(generator, encoder, latents)


def read(encoder, latents):
    """Codes by the linear function alone."""
    with torch.no_grad():
        return encoder._flat_rows(latents)


def drafted(generator, codes):
    with torch.no_grad():
        return generator._drafted(codes.unbind(1))


@pytest.mark.usefixtures("fitted")
def test_as_many_components_as_there_are_directions_draw_every_latent_again(networks, latents):
    generator, encoder = networks
    torch.testing.assert_close(drafted(generator, read(encoder, latents)), latents, rtol=1e-3, atol=1e-2)


def test_a_code_has_one_component_a_number_of_deviation_1(networks, latents, fitted):
    codes = read(networks[1], latents)
    torch.testing.assert_close(codes[:, 0].std(0), torch.ones(12), rtol=0.05, atol=0)
    assert codes[:, 0].mean(0).abs().max() < 0.05
    assert fitted.shape == (200, 12)


@pytest.mark.usefixtures("fitted")
def test_a_single_w_draws_from_the_components_of_the_first_row_alone(networks, latents):
    generator, encoder = networks
    codes = read(encoder, latents)
    one = codes[:, :1].expand(-1, 14, -1)
    error = (drafted(generator, one) - latents).square().mean()
    whole = (drafted(generator, codes) - latents).square().mean()
    spread = latents.var(0).mean()
    assert whole < 0.01 * error < 0.5 * error < 0.5 * spread


def test_the_mapping_network_comes_near_the_codes(networks, fitted):
    generator, _ = networks
    torch.manual_seed(2)
    z = torch.randn(200, 12)
    wanted = 3 + fitted
    with torch.no_grad():
        before = sliced_wasserstein(generator.mapping(z), wanted, 256)
    fit_mapping(generator, wanted)
    with torch.no_grad():
        after = sliced_wasserstein(generator.mapping(z), wanted, 256)
    assert after < 0.25 * before


def test_training_leaves_both_as_they_are(networks):
    freeze_draft(*networks)
    generator, encoder = networks
    codes = encoder.with_features(torch.randn(2, CHANNELS, CELLS, CELLS))[0]
    generator.draw(codes).square().mean().backward()
    assert generator.draft.weight.grad is None
    assert encoder.flat.weight.grad is None
    assert generator.see_draft.weight.grad is not None


def test_a_method_that_trains_the_networks_leaves_both_as_they_are_too(networks):
    generator, encoder = networks
    method = torch.nn.ModuleDict({"generator": generator, "encoder": encoder})
    trained = {id(parameter) for parameter in trainable_parameters(method, [""])}
    assert not any(
        id(parameter) in trained for part in (generator.draft, encoder.flat) for parameter in part.parameters()
    )
    assert not generator.draft.weight.requires_grad
    assert id(generator.see_draft.weight) in trained


def test_what_counts_more_is_drawn_more_finely(networks):
    torch.manual_seed(3)
    # Every cell of every channel for itself: there are far more directions than components.
    latents = torch.randn(600, CHANNELS, CELLS, CELLS)
    weight = torch.ones(CELLS, CELLS)
    weight[:, : CELLS // 2] = 4.0
    errors = []
    for given in (None, weight):
        generator, encoder = copy.deepcopy(networks)
        fit_draft(generator, encoder, latents, weight=given)
        off = (drafted(generator, read(encoder, latents)) - latents).square()
        errors.append((off[..., : CELLS // 2].mean(), off[..., CELLS // 2 :].mean()))
    assert abs(errors[0][0] / errors[0][1] - 1) < 0.1
    assert errors[1][0] < 0.97 * errors[0][0]
    assert errors[1][1] > errors[0][1]


@pytest.mark.parametrize("given", [{"draft": [0]}, {"latents": 4, "draft": [7]}, {"latents": 4, "draft": [0, 0]}])
def test_a_draft_needs_latents_and_the_first_row(given):
    with pytest.raises(ValueError, match="rows in order"):
        Generator(size=CELLS, style_dim=12, n_mlp=1, channels={4: 8, 8: 8, 16: 8}, depth=6, **given)


def test_the_first_numbers_hold_the_colours_and_the_others_draw_none(networks, latents):
    generator, encoder = copy.deepcopy(networks)
    # What counts as colours here: any linear function of the latents.
    look = torch.randn(latents[0].numel(), 3, generator=torch.Generator().manual_seed(2))
    colours = latents.flatten(1) @ look / 10
    codes = fit_draft(generator, encoder, latents, colours=colours, steady=6)
    torch.testing.assert_close(codes[:, :6].std(0), torch.ones(6), rtol=1e-3, atol=1e-3)
    found = read(encoder, latents)
    torch.testing.assert_close(drafted(generator, found), latents, rtol=1e-3, atol=1e-2)
    spread = (colours - colours.mean(0)).square().sum()
    changed = found.clone()
    changed[:, 0, 6:] *= -1
    seen = drafted(generator, changed).flatten(1) @ look / 10
    assert (seen - colours).square().sum() < 1e-3 * spread
    # The others still draw the rest of the picture.
    assert (drafted(generator, changed) - latents).square().sum() > 0.3 * latents.var() * latents.numel()


def test_without_that_a_change_of_the_others_changes_colours(networks, latents):
    generator, encoder = copy.deepcopy(networks)
    look = torch.randn(latents[0].numel(), 3, generator=torch.Generator().manual_seed(2))
    colours = latents.flatten(1) @ look / 10
    fit_draft(generator, encoder, latents)
    changed = read(encoder, latents)
    changed[:, 0, 6:] *= -1
    seen = drafted(generator, changed).flatten(1) @ look / 10
    assert (seen - colours).square().sum() > 0.1 * (colours - colours.mean(0)).square().sum()


def test_colour_moments_say_how_bright_and_from_where():
    dark_left = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
    dark_left[:, :, :, 8:] = 255
    means, right, below = colour_moments(dark_left)[0].view(3, 6)[:, :3].T
    torch.testing.assert_close(means, torch.zeros(3), atol=1e-5, rtol=0)
    assert (right > 0.4).all()
    torch.testing.assert_close(below, torch.zeros(3), atol=1e-5, rtol=0)


def test_only_pixels_that_count_count():
    counts = torch.zeros(16, 16)
    counts[4:8, 4:8] = 1
    face = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
    face[:, :, 4:8, 4:8] = 255
    torch.testing.assert_close(colour_moments(face, counts)[0].view(3, 6)[:, 0], torch.ones(3))
