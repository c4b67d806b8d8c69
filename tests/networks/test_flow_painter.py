"""The flow that paints faces: its error, its steps, and the small network that knows its end."""

from itertools import pairwise

import pytest
import torch

from faceanon.networks.face_redrawer import FaceRedrawer, begin_from
from faceanon.networks.flow_painter import FlowPainter, flow_error, follow, times_of, waves


@pytest.fixture
def inputs():
    draw = torch.Generator().manual_seed(0)
    latents = torch.randn(2, 32, 16, 16, generator=draw)
    mask = torch.zeros(2, 1, 16, 16)
    mask[..., 4:12, 4:12] = 1
    maps = torch.randn(2, 5, 16, 16, generator=draw)
    condition = torch.randn(2, 7, generator=draw)
    return torch.randn(2, 32, 16, 16, generator=draw), torch.tensor([0.2, 0.9]), latents, mask, maps, condition


def small(kind, **others):
    torch.manual_seed(3)
    net = kind(maps=5, condition=7, hidden=16, **others).eval()
    # As trained: the blocks start close to the identity.
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return net


@pytest.mark.parametrize("kind", [FlowPainter, FaceRedrawer])
def test_directions_look_beyond_the_mask_but_only_within_it_at_the_noise(kind, inputs):
    net = small(kind, **({"widths": {16: 16, 8: 32}} if kind is FlowPainter else {"width": 16}))
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


def test_a_redrawer_begins_with_what_it_shares_with_the_painter(inputs):
    painter = small(FlowPainter, widths={16: 16, 8: 32})
    redrawer = small(FaceRedrawer, width=16, blocks=3)
    before = {name: tensor.clone() for name, tensor in redrawer.state_dict().items()}
    begin_from(redrawer, painter)
    assert all(not torch.equal(tensor, before[name]) for name, tensor in redrawer.state_dict().items())
    level = painter.painter.levels["16"]
    assert torch.equal(redrawer.blocks[0].conv1.weight, level.before[0].conv1.weight)
    # The painter's first block on the way up sees the coarse maps first, then what the way down kept.
    assert torch.equal(redrawer.blocks[1].conv1.weight, level.after[0].conv1.weight[:, 16:])
    assert torch.equal(redrawer.blocks[2].conv2.weight, level.after[1].conv2.weight)
    assert redrawer(*inputs).isfinite().all()


def test_the_exact_direction_has_no_error_and_leads_to_the_face_in_one_step_or_many(inputs):
    noise, time, latents, mask, *_ = inputs

    def exact(here, at):
        return latents - noise

    assert flow_error(exact, latents, mask, noise, time).abs().max() < 1e-10
    off = flow_error(lambda here, at: exact(here, at) + 2, latents, mask, noise, time)
    torch.testing.assert_close(off, torch.full((2,), 4.0))
    for steps in (1, 5):
        torch.testing.assert_close(follow(exact, noise, times_of(steps)), latents, atol=1e-5, rtol=0)


def test_heun_s_steps_follow_a_curve_better_than_plain_ones():
    def curve(here, at):
        return here  # grows to e times the start

    start = torch.ones(1, 1, 1, 1)
    plain = (1 + 1 / 8) ** 8
    found = follow(curve, start, times_of(8)).item()
    assert abs(found - torch.e) < abs(plain - torch.e) / 4


def test_times_rise_from_0_to_1_and_may_be_denser_near_the_noise():
    times = times_of(6, early=3.0)
    assert times[0] == 0
    assert times[-1] == 1
    steps = [end - start for start, end in pairwise(times)]
    assert steps == sorted(steps)
    assert torch.tensor(times_of(6)).diff().std() < 1e-6


def test_waves_tell_near_times_apart():
    told = waves(torch.tensor([0.5, 0.501, 0.9]))
    assert told.shape == (3, 64)
    assert (told[0] - told[1]).abs().max() > 0.2
    assert (told[0] - told[2]).abs().max() > 1
