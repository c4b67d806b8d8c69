import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from faceanon.metrics.recognition import (
    Identification,
    PairSimilarity,
    Verification,
    genuine_pairs,
    impostor_pairs,
    match_rate,
    pair_scores,
    threshold_at_far,
)


@pytest.fixture
def gallery():
    generator = torch.Generator().manual_seed(0)
    identity = torch.arange(10).repeat_interleave(4)
    identity[[3, 17]] = -1
    centre = torch.randn(11, 16, generator=generator)
    return F.normalize(centre[identity] + 0.8 * torch.randn(40, 16, generator=generator)), identity


def brute_pairs(embedding, identity):
    genuine, impostor = [], []
    e, label = embedding.double().numpy(), identity.tolist()
    for i in range(len(e)):
        for j in range(i):
            if label[i] >= 0 and label[j] >= 0:
                score = e[i] @ e[j] / np.linalg.norm(e[i]) / np.linalg.norm(e[j])
                (genuine if label[i] == label[j] else impostor).append(score)
    return np.sort(genuine), np.sort(impostor)


def test_pairs_equal_brute_force(gallery):
    genuine, impostor = brute_pairs(*gallery)
    np.testing.assert_allclose(pair_scores(gallery[0], genuine_pairs(gallery[1])).sort().values, genuine, atol=1e-5)
    np.testing.assert_allclose(pair_scores(gallery[0], impostor_pairs(gallery[1])).sort().values, impostor, atol=1e-5)


@pytest.mark.parametrize("far", [0.001, 0.01, 0.1, 0.29])
def test_threshold_is_the_lowest_that_keeps_the_far(far):
    scores = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    threshold = threshold_at_far(scores, far)
    candidates = [s for s in scores.double().tolist() if (scores.double() > s).double().mean() <= far + 1e-12]
    assert threshold == pytest.approx(min(candidates), abs=1e-7)
    assert (scores > threshold).sum() == round(far * 1000)


def test_threshold_with_ties_never_exceeds_the_far():
    assert (torch.ones(50) > threshold_at_far(torch.ones(50), 0.1)).float().mean() == 0


def test_verification_equals_brute_force_and_ignores_batching(gallery):
    embedding, identity = gallery
    whole, parts = Verification(0.05), Verification(0.05)
    whole.update(embedding, identity)
    for start in range(0, 40, 7):
        parts.update(embedding[start : start + 7], identity[start : start + 7])
    genuine, impostor = brute_pairs(embedding, identity)
    found, again = whole.compute(), parts.compute()
    tar = (genuine > float(found["threshold"])).mean()
    assert float(found["tar"]) == pytest.approx(tar, abs=1e-6) == float(again["tar"])
    assert (impostor > float(found["threshold"]) + 1e-6).mean() <= 0.05
    assert float(found["threshold"]) == pytest.approx(float(again["threshold"]), abs=1e-6)


def test_many_pairs_are_sampled_and_keep_their_distribution(gallery):
    some = pair_scores(gallery[0], impostor_pairs(gallery[1], max_pairs=300))
    assert 200 < len(some) <= 300
    assert float(some.mean()) == pytest.approx(brute_pairs(*gallery)[1].mean(), abs=0.05)


def test_no_second_person_gives_nan_not_a_threshold():
    metric = Verification()
    metric.update(torch.eye(4), torch.tensor([-1, -1, 3, 3]))
    found = metric.compute()
    assert math.isnan(found["threshold"])
    assert math.isnan(found["tar"])


def test_match_rate_counts_each_row_once():
    metric = PairSimilarity()
    e = torch.eye(3)
    metric.update(torch.stack([e, e], 1), torch.stack([e, e.flip(0)], 1))
    cosine = metric.compute()
    assert cosine.tolist() == [[1, 0], [1, 1], [1, 0]]
    assert match_rate(cosine, 0.5).tolist() == [0.5, 1, 0.5]


def test_identification_equals_brute_force(gallery):
    embedding, identity = gallery
    probe = F.normalize(embedding + 0.2 * torch.randn(40, 16, generator=torch.Generator().manual_seed(2)))
    metric = Identification()
    for start in range(0, 40, 9):
        part = slice(start, start + 9)
        metric.update(probe[part], embedding[part], identity[part])
    hits, accepted = [], []
    for i in range(40):
        others = [j for j in range(40) if j != i]
        same = [j for j in others if identity[j] == identity[i] and identity[i] >= 0]
        cosines = (probe[i] @ embedding.T).tolist()
        best = max(others, key=lambda j: cosines[j])
        hits.append(float(best in same) if same else math.nan)
        accepted.append(np.mean([cosines[j] > 0.4 for j in same]) if same else math.nan)
    np.testing.assert_allclose(metric.lookup().hits(), hits)
    np.testing.assert_allclose(metric.lookup().accepted(0.4), accepted, atol=1e-6)
    assert float(metric.compute()) == pytest.approx(np.nanmean(hits))


def test_own_picture_is_no_hit():
    metric = Identification()
    metric.update(torch.eye(4), torch.eye(4), torch.tensor([0, 0, 1, 2]))
    assert metric.lookup().hits()[:2].tolist() in ([0, 0], [1, 0], [0, 1], [1, 1])
    assert metric.lookup().hits()[2:].isnan().all()


@pytest.mark.parametrize(
    ("embedding", "identity", "message"),
    [
        (torch.full((2, 3), math.nan), torch.tensor([0, 1]), "NaN"),
        (torch.zeros(2, 3), torch.tensor([0, 1]), "length zero"),
        (torch.ones(2, 3, 4), torch.tensor([0, 1]), "2 axes"),
        (torch.ones(2, 3), torch.tensor([0.0, 1.0]), "whole numbers"),
        (torch.ones(2, 3), torch.tensor([0]), "whole numbers"),
    ],
)
def test_bad_input_is_named(embedding, identity, message):
    with pytest.raises(ValueError, match=message):
        Verification().update(embedding, identity)


def test_bad_far_and_no_impostors_are_named():
    with pytest.raises(ValueError, match="far"):
        Verification(0)
    with pytest.raises(ValueError, match="impostor"):
        threshold_at_far(torch.zeros(0), 0.1)
