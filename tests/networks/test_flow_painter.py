"""The flow that paints faces: its directions, their error, and that it learns them."""

import pytest
import torch

from faceanon.networks.flow_painter import FlowPainter, flow_error


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


def test_who_expects_the_true_face_is_not_wrong_and_who_is_off_is_the_more_so_the_less_is_left_of_the_way(inputs):
    _, _, latents, mask, *_ = inputs
    time = torch.tensor([0.0, 0.75])
    # What is expected beyond the mask does not count.
    around = 5 * (1 - mask)
    assert torch.equal(flow_error(latents + around, latents, mask, time), torch.zeros(2))
    off = flow_error(latents + 0.5 + around, latents, mask, time)
    torch.testing.assert_close(off, 0.25 / (1 - time).square())


def test_the_error_is_that_of_the_direction_from_where_the_flow_is_on_its_way(inputs):
    noise, time, latents, mask, *_ = inputs
    direction = torch.randn(latents.shape, generator=torch.Generator().manual_seed(1))
    left = (1 - time)[:, None, None, None]
    here = left * noise + (1 - left) * latents
    true = latents - noise
    wanted = ((direction - true).square() * mask).sum((1, 2, 3)) / (32 * mask.sum((1, 2, 3)))
    torch.testing.assert_close(flow_error(here + left * direction, latents, mask, time), wanted)


def test_a_small_flow_learns_the_directions_to_two_faces(inputs):
    *_, latents, mask, maps, condition = inputs
    net = small_painter().train()

    def error(seed):
        draw = torch.Generator().manual_seed(seed)
        time = torch.rand(2, generator=draw) * 0.8
        left = (1 - time)[:, None, None, None]
        here = torch.lerp(latents, torch.randn(latents.shape, generator=draw), left)
        drawn = here + left * net(here, time, latents, mask, maps, condition)
        return flow_error(drawn, latents, mask, time).mean()

    torch.manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    with torch.no_grad():
        before = error(-1)
    for step in range(40):
        optimizer.zero_grad()
        error(step).backward()
        optimizer.step()
    with torch.no_grad():
        assert error(-1) < 0.7 * before
