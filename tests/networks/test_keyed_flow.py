import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity

from faceanon.networks.keyed_flow import KeyedFlow, orthogonal, rotate_pairs

GRADES = st.sampled_from([(4,), (6,), (20,), (12, 8), (8, 6, 6)])
flows = st.builds(KeyedFlow, GRADES, rounds=st.integers(0, 6), swing=st.floats(0, 0.6))


def drawn(flow, count, seed, size=1.0):
    """Codes and keys, one each a row."""
    stream = torch.Generator().manual_seed(seed)
    return size * torch.randn(count, flow.dim, generator=stream), torch.randn(count, flow.key_size, generator=stream)


@settings(max_examples=12, deadline=None)
@given(flow=flows, seed=st.integers(0, 2**31), size=st.floats(0.01, 100))
@torch.no_grad()
def test_it_is_undone_and_keeps_lengths(flow, seed, size):
    code, key = drawn(flow.double(), 8, seed, size)
    code = code.double()
    turned = flow(code, key)
    torch.testing.assert_close(flow(turned, key, inverse=True), code, rtol=0, atol=1e-10 * size)
    torch.testing.assert_close(flow(flow(code, key, inverse=True), key), code, rtol=0, atol=1e-10 * size)
    torch.testing.assert_close(turned.norm(dim=1), code.norm(dim=1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
@torch.no_grad()
def test_float32_undoes_it_too(size):
    flow = KeyedFlow((12, 8))
    code, key = drawn(flow, 200, 0, size)
    back = flow(flow(code, key), key, inverse=True)
    assert (back - code).abs().max() < 1e-5 * code.abs().max()


def test_errors_and_gradients_of_codes_far_out_stay_small():
    flow = KeyedFlow((12, 8))
    code, key = drawn(flow, 50, 0, 1000.0)
    code.requires_grad_()
    flow(code, key).sum().backward()
    assert code.grad.abs().max() < 100


@settings(max_examples=5, deadline=None)
@given(flow=flows, seed=st.integers(0, 2**31))
@torch.no_grad()
def test_volumes_stay(flow, seed):
    code, key = drawn(flow, 1, seed)
    flow, code = flow.double(), code.double()
    jacobian = torch.func.jacrev(lambda row: flow(row[None], key)[0])(code[0])
    torch.testing.assert_close(torch.linalg.det(jacobian).abs(), torch.ones((), dtype=torch.float64))


@settings(max_examples=6, deadline=None)
@given(flow=flows, seed=st.integers(0, 2**31))
@torch.no_grad()
def test_a_row_depends_on_its_own_code_and_key_alone(flow, seed):
    code, key = drawn(flow, 6, seed)
    alone = torch.cat([flow(code[i : i + 1], key[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(flow(code, key), alone, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_normal_codes_stay_normal():
    flow = KeyedFlow((12, 8), swing=0.6)
    code, key = drawn(flow, 8000, 0)
    turned = flow(code, key[:1])
    assert turned.mean(0).abs().max() < 0.06
    assert (turned.T @ turned / len(turned) - torch.eye(20)).abs().max() < 0.06
    assert (turned.pow(4).mean(0) - 3).abs().max() < 0.5


@torch.no_grad()
def test_without_swing_it_is_an_antisymmetric_turn():
    flow = KeyedFlow((12, 8), swing=0.0)
    code, key = drawn(flow, 50, 0)
    turned = flow(code, key)
    assert cosine_similarity(code, turned).abs().max() < 1e-5
    torch.testing.assert_close(flow(turned, key), -code, rtol=0, atol=2e-5)


@torch.no_grad()
def test_with_swing_no_code_lies_near_its_strangers():
    flow = KeyedFlow((20,))
    code, key = drawn(flow, 1500, 0)
    cosine = cosine_similarity(code, flow(code, key))
    assert cosine.mean().abs() < 0.03
    assert cosine.std() < 0.18  # unrelated codes: 0.22
    assert (cosine > 0.6).sum() == 0


@torch.no_grad()
@pytest.mark.parametrize("swing", [0.0, 0.4])
def test_a_wrong_key_opens_something_unrelated(swing):
    flow = KeyedFlow((20,), swing=swing)
    code, key = drawn(flow, 2000, 0)
    opened = flow(flow(code, key), drawn(flow, 2000, 1)[1], inverse=True)
    cosine = cosine_similarity(code, opened)
    assert cosine.mean().abs() < 0.03
    assert 0.19 < cosine.std() < 0.25


@torch.no_grad()
def linear_attack(flow, pairs, seed=0):
    """Cosine of predicted with true codes, never seen, after so many known pairs under one key."""
    code, key = drawn(flow, 4000, seed)
    turned = flow(code, key[:1])
    predicted = turned[3000:] @ torch.linalg.lstsq(turned[:pairs], code[:pairs]).solution
    return float(cosine_similarity(predicted, code[3000:]).mean())


def test_known_pairs_solve_it_without_swing_and_not_with():
    linear = KeyedFlow((12, 8), swing=0.0)
    assert linear_attack(linear, 24) > 0.999
    few, many = (linear_attack(KeyedFlow((12, 8), swing=0.5), pairs) for pairs in (24, 3000))
    assert few < 0.5
    assert 0.4 < many < 0.85
    assert linear_attack(KeyedFlow((12, 8), swing=0.25), 3000) > many


@torch.no_grad()
@pytest.mark.parametrize("degrees", [60.0, 110.0, 150.0])
def test_a_flow_may_lead_to_another_angle_and_farther_from_the_mean(degrees):
    codes = torch.randn(2000, 20, generator=torch.Generator().manual_seed(0))
    straight = KeyedFlow((12, 8), swing=0.0, degrees=degrees, stretch=1.5)
    key = torch.randn(2000, straight.key_size, generator=torch.Generator().manual_seed(1))
    stranger = straight(codes, key)
    torch.testing.assert_close(stranger.norm(dim=1), 1.5 * codes.norm(dim=1), rtol=1e-4, atol=1e-4)
    expected = math.cos(math.radians(degrees))
    torch.testing.assert_close(cosine_similarity(codes, stranger), torch.full((2000,), expected), atol=1e-3, rtol=0)
    twisted = KeyedFlow((12, 8), swing=0.4, degrees=degrees, stretch=1.5)
    moved = twisted(codes, key)
    # A swing takes something off the angle's cosine.
    share = cosine_similarity(codes, moved).mean().item() / expected
    assert 0.5 < share < 1.1
    torch.testing.assert_close(twisted(moved, key, inverse=True), codes, atol=1e-3, rtol=1e-3)


def test_the_flow_is_the_same_in_every_process():
    line = (
        "import torch; from faceanon.networks.keyed_flow import KeyedFlow as K; f = K((12, 8)); "
        "g = torch.Generator().manual_seed(5); "
        "print(f(torch.randn(1, 20, generator=g), torch.randn(1, f.key_size, generator=g)).double().tolist())"
    )
    flow, stream = KeyedFlow((12, 8)), torch.Generator().manual_seed(5)
    here = flow(torch.randn(1, 20, generator=stream), torch.randn(1, flow.key_size, generator=stream))
    there = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True).stdout
    torch.testing.assert_close(here, torch.tensor(eval(there)).float(), rtol=0, atol=1e-5)


def test_gradients_are_finite_and_float32_survives_autocast():
    flow = KeyedFlow((12, 8))
    code, key = drawn(flow, 6, 0)
    code[0] = 0
    code.requires_grad_()
    flow(code, key).sin().sum().backward()
    assert code.grad.isfinite().all()
    assert (code.grad != 0).any(1).all()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        turned = flow(code, key)
        assert turned.dtype == torch.float32
        assert (flow(turned, key, inverse=True) - code).abs().max() < 1e-4
        assert flow(code.bfloat16(), key).dtype == torch.float32


@torch.no_grad()
def test_frames_are_orthogonal_and_spread_evenly():
    frames = orthogonal(torch.randn(10_000, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert (frames @ frames.mT - torch.eye(4)).abs().max() < 1e-5
    assert frames.mean(0).abs().max() < 0.02
    assert (frames.square().mean(0) - 1 / 4).abs().max() < 0.01
    trace = frames.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert abs(float(trace.square().mean()) - 1) < 0.05  # E tr(Q)^2 and E tr(Q^2) of the uniform distribution
    assert abs(float((frames @ frames).diagonal(dim1=-2, dim2=-1).sum(-1).mean()) - 1) < 0.05
    assert torch.linalg.det(frames).mean().abs() < 0.03


def test_pairs_turn_by_their_angle():
    turned = rotate_pairs(torch.tensor([[1.0, 0.0, 0.0, 2.0]]), torch.tensor([[torch.pi / 2, torch.pi]]))
    torch.testing.assert_close(turned, torch.tensor([[0.0, 1.0, 0.0, -2.0]]))


@pytest.mark.parametrize("grades", [(), (2,), (5, 4), (8, 3)])
def test_runs_that_cannot_be_halved_into_pairs(grades):
    with pytest.raises(ValueError, match="even and at least 4"):
        KeyedFlow(grades)
