import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from faceanon.metrics.probe import RIDGE, AttributeProbe, apply_ridge, determination, ridge


@pytest.fixture
def world():
    """Landmarks that are a linear map of yaw and smile, and a bit of the person; `other` holds what no point shows."""
    generator = torch.Generator().manual_seed(0)
    identity = torch.arange(40).repeat_interleave(3)
    factors = torch.randn(120, 3, generator=generator)
    mixing = torch.randn(2, 20, generator=generator)
    person = 0.1 * torch.randn(40, 20, generator=generator)[identity]
    points = (0.1 * (factors[:, :2] @ mixing + person)).reshape(120, 10, 2)
    return points, factors, identity


NAMES = ("yaw", "smile", "other")


def probe(changed, world, size=120):
    points, factors, identity = world
    metric = AttributeProbe(NAMES)
    for start in range(0, 120, size):
        rows = slice(start, start + size)
        metric.update(changed[rows], points[rows], factors[rows], identity[rows])
    return {name: float(value) for name, value in metric.compute().items()}


def test_regression_and_score_equal_scikit_learn(world):
    points, factors, _ = world
    x, y = points.flatten(1).double(), factors.double()
    centred = x[:60] - x[:60].mean(0)
    penalty = float(RIDGE * centred.square().sum() / x.shape[1])
    expected = Ridge(alpha=penalty).fit(x[:60].numpy(), y[:60].numpy()).predict(x[60:].numpy())
    found = apply_ridge(ridge(x[:60], y[:60]), x[60:])
    np.testing.assert_allclose(found, expected, atol=1e-8)
    score = r2_score(y[60:].numpy(), expected, multioutput="raw_values")
    np.testing.assert_allclose(determination(found, y[60:]), score, atol=1e-8)


def test_kept_attributes_are_read_and_lost_ones_are_not(world):
    points = world[0]
    kept = probe(points, world)
    assert min(kept["yaw/changed"], kept["smile/changed"]) > 0.9
    assert kept["yaw/changed"] == kept["yaw/original"]
    assert kept["other/original"] < 0.2  # what landmarks do not show says nothing
    shuffled = probe(points[torch.randperm(120, generator=torch.Generator().manual_seed(1))], world)
    assert shuffled["yaw/changed"] < 0
    assert shuffled["yaw/original"] == pytest.approx(kept["yaw/original"])


def test_batches_do_not_matter(world):
    assert probe(world[0] * 0.9, world, size=7) == pytest.approx(probe(world[0] * 0.9, world), abs=1e-9)


def test_too_few_people_give_no_figure():
    metric = AttributeProbe(("yaw",))
    metric.update(torch.rand(9, 3, 2), torch.rand(9, 3, 2), torch.rand(9, 1), torch.zeros(9, dtype=torch.long))
    assert metric.compute() == {}


def test_bad_input_is_named(world):
    points, factors, identity = world
    metric = AttributeProbe(NAMES)
    for arguments, message in [
        ((points[:0], points[:0], factors[:0], identity[:0]), "empty"),
        ((points, points[:, :4], factors, identity), "same shape"),
        ((points, points, factors[:, :2], identity), "factors must be"),
        ((points * math.nan, points, factors, identity), "NaN"),
        ((points, points, factors, identity.float()), "whole numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            metric.update(*arguments)
