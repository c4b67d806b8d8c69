import pytest
import torch

from faceanon.losses.independence import dependence


def sides(count, seed, signal):
    """Features that hold so much of a code, beside noise, and the code."""
    stream = torch.Generator().manual_seed(seed)
    code = torch.randn(count, 8, generator=stream)
    noise = torch.randn(count, 40, generator=stream)
    noise[:, :8] += signal * code
    return noise, code


def test_unrelated_features_tell_nothing_and_a_trace_is_seen():
    unrelated = torch.stack([dependence([features], code) for features, code in (sides(16, i, 0.0) for i in range(60))])
    trace = torch.stack([dependence([features], code) for features, code in (sides(16, i, 2.0) for i in range(60))])
    assert unrelated.mean().abs() < 3 * unrelated.std() / 60**0.5  # unbiased, at the batch size of the presets
    assert trace.mean() > unrelated.mean() + 0.3


def test_a_side_determines_itself_whatever_its_scale_and_place():
    _, code = sides(32, 0, 0.0)
    assert float(dependence([100 * code + 1e3], code)) == pytest.approx(1, abs=1e-3)
    assert float(dependence([code, code.unsqueeze(-1)], code)) == pytest.approx(1, abs=1e-5)


def test_its_gradient_removes_the_trace():
    features, code = sides(64, 0, 2.0)
    features.requires_grad_()
    optimizer = torch.optim.Adam([features], lr=0.05)
    before = float(dependence([features.detach()], code))
    for _ in range(60):
        optimizer.zero_grad()
        dependence([features], code).backward()
        optimizer.step()
    assert float(dependence([features.detach()], code)) < 0.3 * before


def test_equal_rows_and_bfloat16_stay_finite():
    features = torch.zeros(6, 5, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = dependence([features, torch.randn(6, 3, 4).bfloat16()], torch.randn(6, 4))
    found.backward()
    assert found.dtype == torch.float32
    assert found.isfinite()
    assert features.grad.isfinite().all()
    with pytest.raises(ValueError, match="at least 4"):
        dependence([features[:3]], torch.randn(3, 4))
