import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import nn
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance, poly_mmd

from faceanon.metrics.features import (
    FrechetDistance,
    KernelDistance,
    jackknife_error,
    kid_interval,
    polynomial_mmd,
)


class Pooled(nn.Module):
    """A small feature network that torchmetrics' own FID and KID accept."""

    num_features = 12

    def forward(self, image):
        return nn.functional.adaptive_avg_pool2d(image.float(), 2).flatten(1)


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    real = torch.rand(60, 3, 8, 8, generator=generator)
    fake = torch.rand(60, 3, 8, 8, generator=generator) * 0.7 + 0.2 * real
    return real, fake


def fid(real, fake, size):
    metric = FrechetDistance(12)
    for start in range(0, len(real), size):
        metric.update(real[start : start + size], fake[start : start + size])
    return float(metric.compute())


def test_fid_equals_torchmetrics_and_scipy(images):
    reference = FrechetInceptionDistance(feature=Pooled(), normalize=True)
    reference.update(images[0], real=True)
    reference.update(images[1], real=False)
    features = [Pooled()(image) for image in images]
    found = fid(*features, 7)
    assert found == pytest.approx(float(reference.compute()), rel=1e-3)
    means, covariances = zip(
        *((f.double().numpy().mean(0), np.cov(f.double().numpy().T)) for f in features), strict=True
    )
    root = sqrtm(covariances[0] @ covariances[1]).real
    expected = ((means[0] - means[1]) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root)
    assert found == pytest.approx(expected, rel=1e-6)


def test_fid_with_fewer_pictures_than_features(images):
    features = [Pooled()(image)[:6] for image in images]
    found = fid(*features, 4)
    values, other = (f.double().numpy() for f in features)
    root = sqrtm(np.cov(values.T) @ np.cov(other.T) + 1e-14 * np.eye(12)).real
    gap = ((values.mean(0) - other.mean(0)) ** 2).sum()
    assert found == pytest.approx(gap + np.trace(np.cov(values.T) + np.cov(other.T) - 2 * root), rel=1e-3)
    assert fid(features[0], features[0], 3) == pytest.approx(0, abs=1e-7)


def test_kid_of_the_whole_equals_torchmetrics(images):
    with pytest.warns(UserWarning, match="buffer"):
        reference = KernelInceptionDistance(feature=Pooled(), subsets=1, subset_size=60, normalize=True)
    reference.update(images[0], real=True)
    reference.update(images[1], real=False)
    metric = KernelDistance(subsets=3, subset_size=60)
    for start in range(0, 60, 13):
        metric.update(*(Pooled()(image)[start : start + 13] for image in images))
    found = metric.compute()
    assert float(found["mean"]) == pytest.approx(float(reference.compute()[0]), rel=1e-3)
    assert float(found["std"]) == pytest.approx(0, abs=1e-9)


def test_jackknife_equals_leaving_out_one_by_one(images):
    real, fake = (Pooled()(image)[:15].double() for image in images)
    keep = [[j for j in range(15) if j != i] for i in range(15)]
    values = np.array([float(poly_mmd(real[k], fake[k])) for k in keep])
    expected = math.sqrt(14 / 15 * ((values - values.mean()) ** 2).sum())
    assert float(jackknife_error(real, fake)) == pytest.approx(expected, rel=1e-6)


def test_kid_interval_covers_and_shrinks():
    def draw(count, seed):
        generator = torch.Generator().manual_seed(seed)
        real, fake = torch.randn(2, count, 6, generator=generator, dtype=torch.double)
        metric = KernelDistance(subsets=10, subset_size=count)
        metric.update(real, fake + 0.4)
        return kid_interval(metric.compute())

    generator = torch.Generator().manual_seed(99)
    many = torch.randn(2, 3000, 6, generator=generator, dtype=torch.double)
    truth = float(polynomial_mmd(many[0], many[1] + 0.4))
    found = [draw(60, seed) for seed in range(25)]
    assert sum(low <= truth <= high for low, high in found) >= 20
    assert np.ptp(draw(240, 0)) < 0.7 * np.mean([high - low for low, high in found])


def test_order_does_not_matter_to_kid_subsets(images):
    features = [Pooled()(image) for image in images]
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    values = []
    for rows in (torch.arange(60), order):
        metric = KernelDistance(subsets=5, subset_size=20)
        metric.update(*(f[rows] for f in features))
        values.append(float(metric.compute()["mean"]))
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_bad_features_are_named():
    good = torch.ones(3, 12)
    for real, fake, message in [
        (good[:0], good, "empty"),
        (good, good * math.nan, "NaN"),
        (good, good[:, :4], "one F"),
        (good[0], good, "one F"),
        (good[:, :4], good[:, :4], "12 numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            FrechetDistance(12).update(real, fake)
    with pytest.raises(ValueError, match="at least one number"):
        FrechetDistance(0)
    single = FrechetDistance(12)
    single.update(good[:1], good)
    with pytest.raises(ValueError, match="two pictures"):
        single.compute()
