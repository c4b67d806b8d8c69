import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from faceanon.networks.compensation import IdentityCompensation, mlp
from faceanon.networks.flow import AllInOneBlock, RealNVPBlock, SecureIdentityFlow, set_signed_sum

KINDS = {"realnvp": {"hidden": 32}, "all_in_one": {"bound": 2.0}}


def make_flow(kind, dim=32, secret_dim=16, seed=0, **options):
    torch.manual_seed(seed)
    return SecureIdentityFlow(dim, secret_dim, kind=kind, **(KINDS[kind] | options))


def train(flow, steps=30):
    """Push codes away from where they were, hard: what a run does to the weights, in little time."""
    optimizer = torch.optim.Adam(flow.parameters(), lr=3e-3)
    for _ in range(steps):
        code, secret = torch.randn(16, 32), torch.randn(16, 16)
        moved = flow(code, secret)
        loss = torch.cosine_similarity(moved, code).mean() + (moved.square().mean() - 1).square()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(torch.cosine_similarity(moved.detach(), code).mean())


def relative_error(flow, code, secret):
    """Largest error of the round trip over the largest entry, or over 1 where that is less."""
    back = flow(flow(code, secret), secret, inverse=True)
    return float((back - code).abs().max() / code.abs().max().clamp(min=1))


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    seed=st.integers(0, 2**31),
    size=st.floats(0, 100),
    secret_size=st.floats(0, 10),
    odd=st.booleans(),
)
@torch.no_grad()
def test_random_flows_are_undone(kind, seed, size, secret_size, odd):
    dim = 33 if odd else 32
    flow = make_flow(kind, dim, seed=seed % 1000)
    draws = torch.Generator().manual_seed(seed)
    code = size * torch.randn(8, dim, generator=draws)
    secret = secret_size * torch.randn(8, 16, generator=draws)
    assert relative_error(flow, code, secret) < 1e-5
    assert flow(code, secret).shape == code.shape


@pytest.mark.parametrize("kind", KINDS)
def test_trained_flows_are_undone_in_float32(kind):
    flow = make_flow(kind)
    assert train(flow) < 0.4  # it did learn: a fresh realnvp begins at 0.98
    with torch.no_grad():
        for size in (0.01, 1.0, 30.0):
            assert relative_error(flow, size * torch.randn(64, 32), torch.randn(64, 16)) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_autocast_does_not_spoil_the_inverse(kind):
    flow = make_flow(kind)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert relative_error(flow, torch.randn(8, 32), torch.randn(8, 16)) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_log_determinant_against_autograd(kind):
    flow = make_flow(kind, dim=7, secret_dim=3).double()
    for parameter in flow.parameters():  # away from where determinants are near 1
        parameter.data += 0.3 * torch.randn_like(parameter)
    code, secret = torch.randn(5, 7).double(), torch.randn(5, 3).double()
    for inverse in (False, True):
        moved, found = flow.with_log_det(code, secret, inverse)
        assert torch.equal(moved, flow(code, secret, inverse))
        for row in range(5):
            jacobian = torch.autograd.functional.jacobian(
                lambda x, row=row, inverse=inverse: flow(x[None], secret[row : row + 1], inverse)[0], code[row]
            )
            torch.testing.assert_close(found[row], torch.linalg.slogdet(jacobian)[1])
        assert found.abs().min() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_entry_of_code_and_secret_counts(kind):
    flow = make_flow(kind)
    code, secret = torch.randn(1, 32), torch.randn(1, 16)
    start = flow(code, secret)
    for tensor, length in ((code, 32), (secret, 16)):
        for entry in range(length):
            shift = torch.zeros_like(tensor)
            shift[0, entry] = 1
            moved = flow(code + shift, secret) if tensor is code else flow(code, secret + shift)
            assert (moved - start).abs().max() > 1e-4, entry


@torch.no_grad()
def test_a_wrong_secret_is_not_the_inverse():
    flow = make_flow("realnvp")
    train_on = torch.randn(8, 32)
    right, wrong = torch.randn(8, 16), torch.randn(8, 16)
    with torch.enable_grad():
        train(flow)
    moved = flow(train_on, right)
    assert (flow(moved, wrong, inverse=True) - train_on).abs().mean() > 0.2


@torch.no_grad()
def test_a_block_stretches_no_entry_beyond_its_bound():
    block = RealNVPBlock(8, 4, 16, bound=0.7)
    for parameter in block.parameters():
        parameter.mul_(50)
    _, log_det = block.onward(torch.randn(256, 8), torch.randn(256, 4))
    assert log_det.abs().max() <= 8 * 0.7 + 1e-5
    assert log_det.abs().max() > 0.5 * 8 * 0.7


@torch.no_grad()
def test_a_fresh_all_in_one_block_permutes_and_its_permutation_is_stored():
    block = AllInOneBlock(8, 4, bound=2.0, seed=3)
    for parameter in block.subnet.parameters():
        parameter.zero_()
    code = torch.randn(2, 8)
    moved, log_det = block.onward(code, torch.randn(2, 4))
    torch.testing.assert_close(moved, code[:, block.state_dict()["permutation"]], atol=1e-4, rtol=1e-4)
    assert log_det.abs().max() < 1e-3
    assert not torch.equal(block.permutation, torch.arange(8))


def test_released_widths_at_the_released_size():
    linear = [m for m in AllInOneBlock(512, 512, 2.0, 0).subnet if isinstance(m, torch.nn.Linear)]
    assert [linear[0].in_features, *(m.out_features for m in linear)] == [768, 256, 128, 128, 256, 512]
    assert sum(isinstance(m, torch.nn.LeakyReLU) for m in mlp(4, 8, 8, 2)) == 2


@torch.no_grad()
def test_compensation_starts_at_nothing_only_where_it_is_added():
    torch.manual_seed(0)
    code = torch.randn(4, 8)
    added, replaced = IdentityCompensation(8, residual=True), IdentityCompensation(8, residual=False)
    assert torch.equal(added(code), code)
    assert (replaced(code) - code).abs().max() > 0.1
    assert {name: p.shape for name, p in added.named_parameters()} == {
        name: p.shape for name, p in replaced.named_parameters()
    }


@torch.no_grad()
@pytest.mark.parametrize("degrees", [45.0, 90.0, 110.0])
def test_a_flow_that_starts_as_a_turn_turns_whitened_codes_by_the_angle(degrees):
    flow = make_flow("realnvp", dim=128, hidden=256).double()
    secrets = torch.randn(2000, 16, dtype=torch.float64) @ torch.randn(16, 16, dtype=torch.float64) + 3
    flow.start_turning(secrets, degrees)
    code = torch.randn(400, 128, dtype=torch.float64)
    turned = flow(code, secrets[:400])
    cosine = torch.cosine_similarity(turned, code)
    assert float(cosine.mean()) == pytest.approx(math.cos(math.radians(degrees)), abs=0.1)
    # A turn keeps lengths, so that strangers' codes are as long as people's.
    assert float(turned.square().mean()) == pytest.approx(1, abs=0.15)
    assert (flow(turned, secrets[:400], inverse=True) - code).abs().max() < 1e-9
    # The part of two keys that both leave alone is the cosine's; the rest of their strangers has nothing in common.
    other = flow(code, secrets[400:800])
    two_keys = float(torch.cosine_similarity(turned, other).mean())
    assert two_keys == pytest.approx(math.cos(math.radians(degrees)) ** 2, abs=0.2)


@torch.no_grad()
def test_a_network_of_three_layers_gives_entries_with_the_secrets_signs():
    network = mlp(4 + 3, 16, 16, 4).double()
    directions = torch.eye(4, 3, dtype=torch.float64)
    directions[3] = 1
    set_signed_sum(network, directions, torch.zeros(4, dtype=torch.float64), 1.5)
    secret = torch.tensor([[1.0, -1.0, 2.0]], dtype=torch.float64)
    entries = torch.tensor([[0.3, 0.3, -0.3, -2.0]], dtype=torch.float64)
    found = network(torch.cat([entries, secret], 1))
    # Weights that are not needed for it add a little.
    expected = 1.5 * torch.tensor([[0.3, -0.3, -0.3, -2.0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0)


def test_a_turn_needs_two_blocks_of_the_papers():
    with pytest.raises(ValueError, match="two blocks or more"):
        make_flow("realnvp", blocks=1).start_turning(torch.randn(50, 16), 90.0)
    with pytest.raises(ValueError, match="of the kind realnvp"):
        make_flow("all_in_one").start_turning(torch.randn(50, 16), 90.0)
