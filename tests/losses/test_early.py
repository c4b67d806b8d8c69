import gc
import weakref

import pytest
import torch
from torch import nn

from faceanon.losses.adversarial import discriminator_loss, discriminator_share, generator_loss
from faceanon.losses.early import rowwise, total
from faceanon.losses.parsing import parse_loss
from faceanon.networks.discriminator import Discriminator
from faceanon.stages.chunks import (
    CPU_PICTURES,
    discriminator_chunks,
    fooling_rows,
    landmark_rows,
    parsing_rows,
    plain_chunks,
)

CHANNELS = {4: 8, 8: 8, 16: 8}


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 1))


def rows_of(net):
    return lambda part, _: net(part)[:, 0].square()


@pytest.mark.parametrize("weights", [torch.ones(6), torch.arange(6.0)])
def test_rowwise_gives_values_and_gradients_of_the_plain_function(net, weights):
    net.requires_grad_(False)
    x = torch.randn(6, 3, 8, 8, requires_grad=True)
    plain = rows_of(net)(x, None)
    (expected,) = torch.autograd.grad((weights * plain).sum(), x)
    chunks = [torch.tensor([4, 1]), torch.tensor([0, 5, 3]), torch.tensor([2])]
    values = rowwise(rows_of(net), x, chunks)
    (found,) = torch.autograd.grad((weights * values).sum(), x)
    assert torch.allclose(values, plain, rtol=1e-6)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_rowwise_keeps_no_graph(net):
    net.requires_grad_(False)
    held = []

    def noted(part, rows):
        hidden = net[1](net[0](part))
        held.append(weakref.ref(hidden.untyped_storage()))
        return net[3](net[2](hidden))[:, 0]

    x = torch.randn(4, 3, 8, 8, requires_grad=True)
    values = rowwise(noted, x, [torch.arange(2), torch.arange(2, 4)])
    gc.collect()
    assert [item() for item in held] == [None, None]
    assert values.requires_grad
    with torch.no_grad():
        assert not rowwise(noted, x, [torch.arange(4)]).requires_grad


def test_losses_that_are_scaled_keep_their_graph(net):
    net.requires_grad_(False)
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        values = rowwise(lambda part, _: part.square().mean((1, 2, 3)), x, [torch.arange(2)])
    assert "Rows" not in type(values.grad_fn).__name__
    values.sum().backward()
    assert torch.allclose(x.grad, 2 * x.detach() / x[0].numel())


def test_total_adds_the_gradients_of_its_parts(net):
    x = torch.randn(6, 3, 8, 8)
    net[0].bias.requires_grad_(False)
    expected = 3 * net(x).square().sum()
    expected.backward()
    wanted = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    found = total([lambda: net(x[:2]).square().sum(), lambda: net(x[2:]).square().sum()], net.parameters())
    (3 * found).backward()
    assert torch.allclose(3 * found, expected)
    for parameter, gradient in zip(net.parameters(), wanted, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        assert gradient is None or torch.allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 10, 12, 16])
def test_a_discriminator_s_chunks_keep_its_groups(count):
    torch.manual_seed(count)
    net, pictures = Discriminator(16, channels=CHANNELS).requires_grad_(False), torch.randn(count, 3, 16, 16)
    whole, chunks = net(pictures), discriminator_chunks(net, pictures)
    assert max(map(len, chunks)) <= CPU_PICTURES
    assert sorted(torch.cat(chunks).tolist()) == list(range(count))
    for rows in chunks:
        assert torch.allclose(net(pictures[rows]), whole[rows], atol=1e-5)
    drawn = pictures.clone().requires_grad_()
    plain, ours = generator_loss(net(drawn)), fooling_rows(net, drawn).mean()
    expected, found = (torch.autograd.grad(loss, drawn)[0] for loss in (plain, ours))
    assert torch.allclose(ours, plain)
    assert torch.allclose(found, expected, atol=1e-4 * float(expected.abs().max()))


def test_an_unknown_discriminator_sees_all_at_once(net):
    assert len(discriminator_chunks(net, torch.zeros(9, 3, 8, 8))) == 1
    assert [len(rows) for rows in plain_chunks(torch.zeros(9, 3, 8, 8))] == [4, 4, 1]


def test_shares_add_up_to_the_discriminator_s_loss():
    logits = torch.randn(7, 1)
    parts = [torch.tensor([0, 6, 2]), torch.tensor([1, 3, 4, 5])]
    shares = [discriminator_share(logits[rows], rows, 3, 7) for rows in parts]
    assert torch.allclose(sum(shares), discriminator_loss(logits[:3], logits[3:]))


def test_parse_loss_by_picture():
    torch.manual_seed(0)
    net = nn.Conv2d(3, 5, 3).requires_grad_(False)
    originals, drawn = torch.randn(3, 3, 8, 8), torch.randn(6, 3, 8, 8)
    target = net(torch.cat([originals, originals]))
    assert torch.allclose(parsing_rows(net, drawn, originals, (1, 3)).mean(), parse_loss(net(drawn), target, (1, 3)))


def test_landmark_distance_by_picture():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 10), nn.Unflatten(1, (5, 2))).requires_grad_(False)
    originals, drawn = torch.randn(3, 3, 8, 8), torch.randn(6, 3, 8, 8, requires_grad=True)
    rows = landmark_rows(net, drawn, originals)
    wanted = net(torch.cat([originals, originals]))
    by_hand = (net(drawn) - wanted).square().sum(-1).sqrt().mean(1) / 2
    assert torch.allclose(rows, by_hand)
    assert torch.allclose(landmark_rows(net, originals, originals), torch.zeros(3))
    rows.sum().backward()
    assert drawn.grad is not None
    assert drawn.grad.abs().max() > 0
