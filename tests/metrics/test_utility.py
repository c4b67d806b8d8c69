import math

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_jaccard_index

from faceanon.metrics.diversity import KeyAngle
from faceanon.metrics.interval import rate_interval, wilson
from faceanon.metrics.utility import LandmarkDistance, ParsingIoU


def test_landmark_distance_is_in_pixels():
    reference = torch.rand(6, 5, 2, generator=torch.Generator().manual_seed(0)) - 0.5
    metric = LandmarkDistance(64)
    metric.update(reference[:1] + torch.tensor([3 / 32, 4 / 32]), reference[:1])
    metric.update(reference[1:], reference[1:])
    assert float(metric.compute()) == pytest.approx(5 / 6, abs=1e-5)


def test_parsing_iou_equals_torchmetrics():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randint(0, 4, (2, 6, 16, 16), generator=generator)
    second[:3] = first[:3]
    metric = ParsingIoU(7)
    metric.update(first[:2], second[:2])
    metric.update(first[2:], second[2:])
    expected = multiclass_jaccard_index(first, second, 4, average="macro")
    assert float(metric.compute()) == pytest.approx(float(expected), abs=1e-5)


def test_key_angle_equals_numpy():
    embedding = torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(0))
    metric = KeyAngle()
    metric.update(embedding[:2])
    metric.update(embedding[2:])
    unit = embedding.double().numpy() / np.linalg.norm(embedding.double().numpy(), axis=-1, keepdims=True)
    angles = [np.degrees(np.arccos(e[i] @ e[j])) for e in unit for i in range(4) for j in range(i)]
    assert float(metric.compute()) == pytest.approx(np.mean(angles), abs=1e-4)


def test_key_angle_of_equal_and_of_orthogonal_strangers():
    same, orthogonal = KeyAngle(), KeyAngle()
    same.update(torch.ones(1, 3, 4))
    orthogonal.update(torch.eye(3)[None])
    assert float(same.compute()) == pytest.approx(0, abs=1e-5)
    assert float(orthogonal.compute()) == pytest.approx(90, abs=1e-4)


def test_bad_input_is_named():
    points = torch.zeros(2, 5, 2)
    with pytest.raises(ValueError, match="same shape"):
        LandmarkDistance(64).update(points, points[:, :4])
    with pytest.raises(ValueError, match="NaN"):
        LandmarkDistance(64).update(points, points * math.nan)
    with pytest.raises(ValueError, match="pixels"):
        LandmarkDistance(0)
    with pytest.raises(ValueError, match="from 0 to 2"):
        ParsingIoU(3).update(torch.full((1, 2, 2), 3), torch.zeros(1, 2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="two keys"):
        KeyAngle().update(torch.ones(2, 1, 4))


def test_interval_covers_the_true_rate():
    rng, covered = np.random.default_rng(0), 0
    people = np.repeat(np.arange(60), 3)
    for trial in range(60):
        chance = rng.beta(3, 7, 60)
        low, high = rate_interval((rng.random(180) < chance[people]).astype(float), people, draws=300, seed=trial)
        covered += low <= 0.3 <= high
    assert covered >= 52


def test_interval_takes_people_together():
    values = np.tile([0.0, 1.0], 50).repeat(10)
    together, apart = rate_interval(values, np.arange(100).repeat(10)), rate_interval(values, np.full(1000, -1))
    assert together[1] - together[0] > 2 * (apart[1] - apart[0])


def test_interval_of_a_rate_of_zero_is_not_certain():
    low, high = rate_interval(np.zeros(100), np.arange(100))
    assert (low, high) == pytest.approx((0, 0.03699), abs=1e-4)
    assert rate_interval(np.ones(100), np.arange(100))[0] == pytest.approx(1 - 0.03699, abs=1e-4)


def test_wilson_equals_published_value():
    assert wilson(5, 50) == pytest.approx((0.0435, 0.2136), abs=1e-4)


def test_interval_over_nothing_is_nan():
    assert all(math.isnan(end) for end in rate_interval(np.array([math.nan]), np.array([0])))
