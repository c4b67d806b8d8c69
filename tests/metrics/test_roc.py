import numpy as np
import pytest
import torch
from scipy.interpolate import interp1d
from scipy.optimize import brentq
from sklearn.metrics import roc_auc_score, roc_curve

from faceanon.metrics.recognition import Identification, Verification
from faceanon.metrics.roc import ScoredPairs, curve_intervals, roc
from faceanon.metrics.suite import as_pairs

TIES = [False, True]


def scores(ties, seed=0):
    rng = np.random.default_rng(seed)
    genuine, impostor = rng.normal(0.6, 0.2, 150), rng.normal(0.1, 0.2, 900)
    return (genuine.round(1), impostor.round(1)) if ties else (genuine, impostor)


@pytest.mark.parametrize("ties", TIES)
def test_curve_equals_scikit_learn(ties):
    genuine, impostor = scores(ties)
    truth = np.r_[np.ones_like(genuine), np.zeros_like(impostor)]
    far, tar, threshold = roc_curve(truth, np.r_[genuine, impostor], drop_intermediate=False)
    found = roc(genuine, impostor)
    np.testing.assert_allclose(found.far, far)
    np.testing.assert_allclose(found.tar, tar)
    np.testing.assert_allclose(found.threshold, threshold)
    assert found.auc == pytest.approx(roc_auc_score(truth, np.r_[genuine, impostor]), abs=1e-9)
    for target in (0.001, 0.01, 0.2):
        assert found.tar_at(target) == pytest.approx(tar[far <= target].max(), abs=1e-12)


@pytest.mark.parametrize("ties", TIES)
def test_equal_error_rate_equals_scipy(ties):
    genuine, impostor = scores(ties)
    truth = np.r_[np.ones_like(genuine), np.zeros_like(impostor)]
    far, tar, _ = roc_curve(truth, np.r_[genuine, impostor], drop_intermediate=False)
    way = [interp1d(np.arange(len(far)), rate) for rate in (far, tar)]  # along the curve: it has upright parts
    crossing = brentq(lambda t: 1 - way[0](t) - way[1](t), 0.0, len(far) - 1.0, xtol=1e-12)
    assert 0.01 < way[0](crossing) < 0.2
    assert roc(genuine, impostor).eer == pytest.approx(float(way[0](crossing)), abs=1e-9)


def test_perfect_reversed_and_random():
    low, high = np.zeros(10), np.ones(10)
    assert (roc(high, low).eer, roc(high, low).auc) == (0, 1)
    assert (roc(low, high).eer, roc(low, high).auc) == (1, 0)
    assert (roc(low, low).eer, roc(low, low).auc) == (0.5, 0.5)


def test_tar_agrees_with_verification():
    generator = torch.Generator().manual_seed(0)
    identity = torch.arange(20).repeat_interleave(3)
    embedding = torch.randn(20, 8, generator=generator)[identity] + 0.9 * torch.randn(60, 8, generator=generator)
    metric = Verification(0.02)
    metric.update(embedding, identity)
    found = metric.compute()
    pairs = as_pairs(found)
    assert roc(pairs.genuine, pairs.impostor).tar_at(0.02) == pytest.approx(float(found["tar"]), abs=1e-6)
    assert len(pairs.genuine_people) == len(pairs.genuine) == 60
    assert (pairs.impostor_people[:, 0] != pairs.impostor_people[:, 1]).all()


def test_interval_covers_the_truth_and_is_wider_with_fewer_people():
    def draw(people, seed):
        generator = torch.Generator().manual_seed(seed)
        identity = torch.arange(people).repeat_interleave(3)
        centre = torch.randn(people, 6, generator=generator)
        metric = Verification(0.1)
        metric.update(centre[identity] + 0.8 * torch.randn(3 * people, 6, generator=generator), identity)
        pairs = as_pairs(metric.compute())
        pairs = pairs.thinned(2000, 0)
        return roc(pairs.genuine, pairs.impostor).eer, curve_intervals(pairs, (0.1,), draws=40)["eer"]

    truth = np.mean([draw(60, seed)[0] for seed in range(100, 110)])
    found = [draw(25, seed)[1] for seed in range(12)]
    assert sum(low <= truth <= high for low, high in found) >= 9
    few, many = (np.mean([np.ptp(draw(n, s)[1]) for s in range(3)]) for n in (10, 50))
    assert few > 1.4 * many


def test_interval_of_perfection_is_not_certain():
    people = np.arange(10)
    pairs = ScoredPairs(np.ones(10), people, np.zeros(45), np.array([(i, j) for i in range(10) for j in range(i)]))
    found = curve_intervals(pairs, (0.1,), draws=50)
    assert found["eer"][0] == 0
    assert found["eer"][1] > 0.2
    assert found["tar/0.1"][1] == 1
    assert found["tar/0.1"][0] < 0.8


def test_gallery_pairs_equal_brute_force():
    generator = torch.Generator().manual_seed(3)
    identity = torch.tensor([0, 0, 1, 1, 1, -1, 2])
    gallery, probe = torch.nn.functional.normalize(torch.randn(2, 7, 5, generator=generator), dim=-1)
    metric = Identification()
    metric.update(probe[:3], gallery[:3], identity[:3])
    metric.update(probe[3:], gallery[3:], identity[3:])
    found = metric.lookup().pairs()
    genuine, impostor = [], []
    for i in range(7):
        for j in range(7):
            if i != j and identity[i] >= 0 and identity[j] >= 0:
                (genuine if identity[i] == identity[j] else impostor).append(float(probe[i] @ gallery[j]))
    assert sorted(found["genuine"].tolist()) == pytest.approx(sorted(genuine), abs=1e-6)
    assert sorted(found["impostor"].tolist()) == pytest.approx(sorted(impostor), abs=1e-6)
    assert found["impostor_people"].shape == (len(impostor), 2)


def test_ranks_equal_scikit_learn():
    from sklearn.metrics import top_k_accuracy_score

    generator = torch.Generator().manual_seed(4)
    centre = torch.randn(12, 6, generator=generator)
    gallery = torch.cat([centre, centre + torch.randn(12, 6, generator=generator)])
    identity = torch.arange(12).repeat(2)
    probe = gallery + 0.7 * torch.randn(24, 6, generator=generator)
    metric = Identification()
    metric.update(probe, gallery, identity)
    unit = [torch.nn.functional.normalize(x.double(), dim=-1).numpy() for x in (probe, gallery)]
    # with one other picture a person, the own picture left out, ranks among the other half and its own half
    for rank in (1, 3, 5):
        similarity = unit[0] @ unit[1].T
        np.fill_diagonal(similarity, -2)
        truth = (np.arange(24) + 12) % 24
        expected = top_k_accuracy_score(truth, similarity, k=rank, labels=np.arange(24))
        assert float((metric.lookup().ranks() <= rank).float().mean()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("genuine", "impostor", "message"),
    [([], [0.1], "no genuine"), ([0.1], [], "no impostor"), ([np.nan], [0.1], "NaN")],
)
def test_bad_scores_are_named(genuine, impostor, message):
    with pytest.raises(ValueError, match=message):
        roc(np.array(genuine), np.array(impostor))


def test_bad_rates_are_named():
    with pytest.raises(ValueError, match="far"):
        roc(np.ones(2), np.zeros(2)).tar_at(1.0)
