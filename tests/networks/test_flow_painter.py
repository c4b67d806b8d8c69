"""The flow that paints faces: its directions, its error and its steps."""

import pytest
import torch

from faceanon.landmarks.redrawing import times
from faceanon.networks.flow_painter import FlowPainter, flow_error, follow


@pytest.fixture
def inputs():
    draw = torch.Generator().manual_seed(0)
    latents = torch.randn(2, 32, 16, 16, generator=draw)
    mask = torch.zeros(2, 1, 16, 16)
    mask[..., 4:12, 4:12] = 1
    maps = torch.randn(2, 5, 16, 16, generator=draw)
    condition = torch.randn(2, 7, generator=draw)
    return torch.randn(2, 32, 16, 16, generator=draw), torch.tensor([0.2, 0.9]), latents, mask, maps, condition


def small_painter():
    torch.manual_seed(3)
    net = FlowPainter(maps=5, condition=7, widths={16: 16, 8: 32}, hidden=16).eval()
    # As trained: the blocks start close to the identity.
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return net


def test_directions_look_beyond_the_mask_but_only_within_it_at_the_noise(inputs):
    net = small_painter()
    noisy, time, latents, mask, maps, condition = inputs
    found = net(*inputs)
    assert found.shape == latents.shape
    assert (found * (1 - mask) == 0).all()
    hidden = latents * (1 - mask) + 9 * mask
    torch.testing.assert_close(net(noisy, time, hidden, mask, maps, condition), found)
    torch.testing.assert_close(net(noisy * mask, time, latents, mask, maps, condition), found)
    for changed in (
        (noisy + mask, time, latents, mask, maps, condition),
        (noisy, time / 2, latents, mask, maps, condition),
        (noisy, time, latents + 1 - mask, mask, maps, condition),
        (noisy, time, latents, mask, maps + 1, condition),
        (noisy, time, latents, mask, maps, condition + 1),
    ):
        assert not torch.allclose(net(*changed), found, atol=1e-4)


def test_the_exact_direction_has_no_error_and_leads_to_the_face_in_one_step_or_many(inputs):
    noise, time, latents, mask, *_ = inputs

    def exact(here, at):
        return latents - noise

    assert flow_error(exact, latents, mask, noise, time).abs().max() < 1e-10
    off = flow_error(lambda here, at: exact(here, at) + 2, latents, mask, noise, time)
    torch.testing.assert_close(off, torch.full((2,), 4.0))
    for steps in (1, 5):
        torch.testing.assert_close(follow(exact, noise, times(0.0, steps)), latents, atol=1e-5, rtol=0)


def test_heun_s_steps_follow_a_curve_better_than_plain_ones():
    def curve(here, at):
        return here  # grows to e times the start

    start = torch.ones(1, 1, 1, 1)
    plain = (1 + 1 / 8) ** 8
    found = follow(curve, start, times(0.0, 8)).item()
    assert abs(found - torch.e) < abs(plain - torch.e) / 4
