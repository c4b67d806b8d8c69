import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from faceanon.metrics.readings import ThresholdReading, to_cosine
from faceanon.metrics.recognition import PairSimilarity, match_rate

KINDS = {
    "l2": lambda a, b: cdist(a, b, "euclidean"),
    "squared_l2": lambda a, b: cdist(a, b, "sqeuclidean"),
    "one_minus_cosine": lambda a, b: cdist(a, b, "cosine"),
}


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(0)
    first = torch.nn.functional.normalize(torch.randn(300, 4, generator=generator), dim=-1)
    second = torch.nn.functional.normalize(first + 0.8 * torch.randn(300, 4, generator=generator), dim=-1)
    return first, second


@pytest.mark.parametrize(
    ("distance", "threshold", "cosine"),
    [
        ("l2", 1.1, 0.395),
        ("squared_l2", 1.1, 0.45),
        ("l2", 0.8, 0.68),
        ("squared_l2", 0.8, 0.6),
        ("one_minus_cosine", 0.8, 0.2),
        ("cosine", 0.3, 0.3),
    ],
)
def test_thresholds_of_the_papers_as_cosines(distance, threshold, cosine):
    assert to_cosine(distance, threshold) == pytest.approx(cosine, abs=1e-12)
    assert ThresholdReading("x", "facenet", distance, threshold).cosine == pytest.approx(cosine, abs=1e-12)


@pytest.mark.parametrize("distance", KINDS)
@pytest.mark.parametrize("threshold", [0.3, 0.8, 1.1])
def test_rate_equals_scipy_on_the_distance_itself(pairs, distance, threshold):
    first, second = (item.double().numpy() for item in pairs)
    expected = (np.diag(KINDS[distance](first, second)) < threshold).mean()
    similarity = PairSimilarity()
    similarity.update(*pairs)
    accepted = match_rate(similarity.compute(), ThresholdReading("x", "facenet", distance, threshold).cosine)
    assert 0 < expected < 1
    assert float(accepted.mean()) == pytest.approx(expected, abs=1e-5)


def test_city_block_equals_scipy(pairs):
    metric = PairSimilarity()
    for start in range(0, 300, 77):
        metric.update(*(item[start : start + 77] for item in pairs))
    expected = np.diag(cdist(*(item.double().numpy() for item in pairs), "cityblock")).mean()
    assert float(metric.l1()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("distance", "threshold"), [("l2", 2.5), ("l2", -1.0), ("cosine", 1.5), ("miles", 1.0)])
def test_impossible_thresholds_are_named(distance, threshold):
    with pytest.raises(ValueError, match=r"accepts every pair or none|distance must be one of"):
        to_cosine(distance, threshold)
