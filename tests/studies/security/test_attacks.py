"""Every attack finds what is wrong with a method that is bad in a known place, and nothing in a good one."""

import pytest
import torch
from attack_fakes import (
    BUDGET,
    FewKeys,
    HashedKey,
    Irreversible,
    KeyIgnored,
    LeakyAttributes,
    LinearKey,
    Negative,
    PassThrough,
    Shift,
    outcomes,
    shrink,
    target,
)
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from faceanon.errors import UserError
from faceanon.metrics.recognition import chance
from faceanon.studies.security.base import DoesNotApplyError, graded
from faceanon.studies.security.collisions import collisions, nearest_pair
from faceanon.studies.security.disturbance import DISTURBANCES, disturbance
from faceanon.studies.security.kdf_cost import kdf_cost
from faceanon.studies.security.known_pairs import known_pairs
from faceanon.studies.security.leak import RIDGE, apply_ridge, leak, ridge
from faceanon.studies.security.linkability import linkability
from faceanon.studies.security.parrot import parrot
from faceanon.studies.security.password_bit import changed, derive, flipped, password_bit
from faceanon.studies.security.recognised import recognised
from faceanon.studies.security.reidentify import reidentify
from faceanon.studies.security.restorer import Restorer
from faceanon.studies.security.training import LogisticDetector, least_squares
from faceanon.studies.security.wrong_keys import wrong_keys
from metrics.metric_fakes import CopyRecovery, FloatSmuggler


@pytest.fixture(autouse=True)
def small_attackers(monkeypatch):
    """Networks of the size of this small world."""
    shrink(monkeypatch)


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def test_wrong_keys_lock_a_good_method_and_show_that_they_are_wrong():
    found = wrong_keys(target(Shift()))
    assert found.right_rate > 0.95
    assert found.wrong_rate < 0.05
    assert found.detector_auc > 0.95  # a wrong key gives noise here: nobody needs the original to see that
    assert outcomes(found) == ["holds", "fails"]


@pytest.mark.parametrize("method", [KeyIgnored, PassThrough])
def test_wrong_keys_open_a_method_that_ignores_them(method):
    found = wrong_keys(target(method()))
    assert found.wrong_rate > 0.95
    assert abs(found.detector_auc - 0.5) < 0.15  # the same pictures: nothing to tell apart
    assert outcomes(found) == ["fails", "holds"]


def test_wrong_keys_prove_nothing_where_the_right_key_fails():
    assert outcomes(wrong_keys(target(CopyRecovery())))[0] == "open"


def test_one_bit_of_the_password():
    found = password_bit(target(Shift()))
    assert outcomes(found) == ["holds", "holds"]
    assert found.right > 0.95
    assert abs(found.hamming - 0.5) < 0.02
    assert outcomes(password_bit(target(KeyIgnored()))) == ["holds", "fails"]
    assert outcomes(password_bit(target(Irreversible()))) == ["holds"]


def test_flipping_a_bit_is_one_bit():
    one, other = b"secret", flipped("secret", 8).encode()
    assert sum(bin(a ^ b).count("1") for a, b in zip(one, other, strict=True)) == 1
    assert changed(derive("a"), derive("a")) == 0


def test_collisions():
    good = collisions(target(Shift()))
    assert (good.same_bytes, good.same_codes) == (0, 0)
    assert good.nearest == pytest.approx(good.nearest_ideal, rel=0.3)
    assert outcomes(good) == ["holds", "holds", "holds"]
    few = collisions(target(FewKeys()))
    assert few.same_codes > 300 * 299 / 2 / 4 * 0.9
    assert few.alike > 0.2
    assert outcomes(few) == ["holds", "fails", "fails"]
    ignored = collisions(target(KeyIgnored()))
    assert outcomes(ignored) == ["holds", "fails", "fails"]


def test_nearest_pair_against_all_distances():
    rows = torch.randn(1300, 5)
    rows[700] = rows[3]
    distances = torch.pdist(rows.double())
    equal, nearest, median = nearest_pair(rows)
    assert (equal, nearest) == (1, pytest.approx(0, abs=1e-6))
    assert median == pytest.approx(float(distances.median()), rel=0.02)
    rows[700] += 5
    assert nearest_pair(rows)[1] == pytest.approx(float(torch.pdist(rows.double()).min()), rel=1e-6)


def test_guessing_costs_what_it_costs():
    found = kdf_cost(target(Shift()), price=0.36, advantage=1)
    cost = dict(zip(found.classes, found.cost, strict=True))
    assert cost["4 digits"] == pytest.approx(5000 * found.core_seconds * 1e-4, rel=1e-6)
    assert found.memory_kib == 65536
    assert outcomes(found) == ["holds", "partly", "holds"]
    assert "4 digits" in found.verdicts()[1].text.split("; more for")[0]
    assert "6 random words" in found.verdicts()[1].text.split("; more for")[1]
    assert outcomes(kdf_cost(target(Shift()), price=1e-30))[1] == "fails"
    assert len(outcomes(kdf_cost(target(Negative())))) == 2  # no key, no key space


def test_linkability():
    good = linkability(target(Shift()))
    assert good.originals_one > 0.9
    assert good.same_key_one > 0.1 > good.other_key_one  # one key makes more of one stranger of a person: said
    assert outcomes(good) == ["holds", "partly", "holds"]
    for method in (PassThrough, KeyIgnored):
        bad = linkability(target(method()))
        assert bad.other_key_one > 0.2
        assert outcomes(bad)[:2] == ["fails", "fails"]


def test_disturbed_files():
    good = disturbance(target(Shift()))
    rates = dict(zip(good.names, good.rates, strict=True))
    assert good.names == tuple(DISTURBANCES)
    assert rates["untouched"] == 1
    assert rates["noise"] > 0.9
    assert outcomes(good) == ["partly"]
    for method in (CopyRecovery, FloatSmuggler):
        assert outcomes(disturbance(target(method()))) == ["fails"]
    passed = disturbance(target(PassThrough()))
    assert passed.psnr[0] > 50


def test_disturbances_keep_the_shape_and_change_the_picture():
    image = target(Shift()).test.image[:2]
    for name, change in DISTURBANCES.items():
        assert change(image).shape == image.shape
        assert torch.equal(change(image), image) == (name == "untouched")


def test_the_parrot_undoes_a_fixed_change():
    found = parrot(target(Negative()))
    assert found.before.same < 0.05
    assert found.after.same > 0.9
    assert outcomes(found) == ["fails"]


def test_the_parrot_finds_nothing_where_there_is_nothing_and_says_when_it_is_weak():
    found = parrot(target(Irreversible()))
    assert found.after.same < 0.2
    assert outcomes(found) == ["open"]  # so few batches undo no blur of this world: fine noise


def test_pass_through_needs_no_parrot():
    assert outcomes(parrot(target(PassThrough()))) == ["fails"]


def test_reidentification():
    passed = reidentify(target(PassThrough()))
    assert passed.untrained.rank1 > 0.9
    assert outcomes(passed) == ["fails"]
    nothing = reidentify(target(Irreversible()))
    assert nothing.originals.rank1 > 0.9
    assert max(nothing.trained.rank1, nothing.untrained.rank1) < 0.2
    assert outcomes(nothing) != ["fails"]


def test_leaks():
    leaky = leak(target(LeakyAttributes()))
    assert leaky.replaced.same > 0.9
    assert outcomes(leaky)[0] == "fails"
    assert "holds" not in outcomes(leaky)
    assert leaky.sources == ("identity code", "attribute codes")
    assert leaky.probes[1].auc > 0.55  # few people teach a probe little; the drawing above tells all
    clean = leak(target(Shift()))
    assert clean.plain.same > 0.95
    assert clean.replaced.same < 0.1
    assert outcomes(clean) == ["holds"]
    assert clean.sources == ("identity code",)


def test_known_pairs_reveal_a_linear_key():
    found = known_pairs(target(LinearKey()))
    cosine = dict(zip(found.pairs, found.linear, strict=True))
    assert cosine[2] < 0.9 < cosine[9]
    assert cosine[9] == pytest.approx(1, abs=1e-3)
    assert outcomes(found) == ["fails"]
    assert "9 known pairs" in found.verdicts()[0].text


def test_known_pairs_reveal_nothing_of_a_scatter():
    found = known_pairs(target(HashedKey()))
    assert max(*found.linear, *found.mlp) < 0.5
    assert outcomes(found) == ["holds"]
    assert found.mlp_pairs == found.pairs[-len(found.mlp_pairs) :]


@pytest.mark.parametrize("attack", [wrong_keys, password_bit, collisions, known_pairs, leak, disturbance])
def test_attacks_without_an_object_say_why(attack):
    with pytest.raises(DoesNotApplyError, match=r"no key|not reversible|no codes"):
        attack(target(Negative()))


def test_recognised_against_scikit_learn():
    generator = torch.Generator().manual_seed(1)
    gallery = torch.nn.functional.normalize(torch.randn(20, 6, generator=generator))
    probe = torch.nn.functional.normalize(gallery + 0.5 * torch.randn(20, 6, generator=generator))
    identity = torch.arange(10).repeat_interleave(2)
    found = recognised(probe, gallery, identity, 0.8)
    similarity = (probe @ gallery.T).numpy()
    same = (identity[:, None] == identity).numpy()
    off = ~torch.eye(20, dtype=torch.bool).numpy()
    assert found.auc == pytest.approx(roc_auc_score(same[off], similarity[off]))
    assert found.same == pytest.approx((similarity.diagonal() > 0.8).mean())
    assert found.strangers == pytest.approx((similarity[~same] > 0.8).mean())
    assert chance(identity) == pytest.approx(1 / 19)


def test_blank_pictures_find_nobody():
    gallery = torch.eye(4)
    found = recognised(torch.zeros(4, 4), gallery, torch.tensor([0, 0, 1, 1]), 0.5)
    assert (found.same, found.rank1, found.auc) == (0, 0, 0.5)


def test_the_detector_learns_a_line_and_nothing_from_noise():
    points = torch.randn(200, 3)
    labels = (points @ torch.tensor([1.0, -2, 0.5]) > 0).float()
    detector = LogisticDetector(points[:100], labels[:100])
    assert roc_auc_score(labels[100:], detector.score(points[100:])) > 0.97
    chance_labels = torch.arange(100) % 2
    blind = LogisticDetector(torch.randn(100, 300), chance_labels)
    assert abs(roc_auc_score(chance_labels, blind.score(torch.randn(100, 300))) - 0.5) < 0.2


def test_least_squares_is_exact_for_affine_maps():
    x, weights = torch.randn(30, 4), torch.randn(4, 2)
    fitted = least_squares(x, x @ weights + 3)
    new = torch.randn(5, 4)
    assert torch.allclose(fitted(new), new @ weights + 3, atol=1e-4)


@pytest.mark.parametrize("size", [24, 37, 64])
def test_the_restorer_starts_out_changing_nothing(size):
    image = torch.rand(2, 3, size, size) * 2 - 1
    assert torch.equal(Restorer(size, 16, 1)(image), image)


def test_same_seed_same_keys_and_other_roles_other_keys():
    first, again, other = target(Shift()), target(Shift()), target(Shift(), seed=1)
    assert torch.equal(first.right_keys, again.right_keys)
    assert not torch.equal(first.right_keys, other.right_keys)
    assert not torch.equal(first.right_keys, first.keys("wrong", first.probes))
    assert torch.equal(first.one_key("a", 2)[0], first.one_key("a", 1)[0])


def test_pictures_without_pairs_are_refused():
    from attack_fakes import pictures

    from faceanon.studies.security.target import Target

    with pytest.raises(UserError, match="two known people"):
        Target(Shift(), pictures(0, 5, photos=1), lambda: pictures(50, 5), BUDGET)


def test_bounds_belong_to_the_better_side():
    assert [graded(value, 0.05, 0.2) for value in (0.05, 0.051, 0.2, 0.21)] == ["holds", "partly", "partly", "fails"]


def test_what_is_read_linearly_equals_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 20, generator=generator, dtype=torch.float64)
    y = x[:, :2] + 0.1 * torch.randn(120, 2, generator=generator, dtype=torch.float64)
    centred = x[:60] - x[:60].mean(0)
    penalty = float(RIDGE * centred.square().sum() / x.shape[1])
    expected = Ridge(alpha=penalty).fit(x[:60].numpy(), y[:60].numpy()).predict(x[60:].numpy())
    torch.testing.assert_close(
        apply_ridge(ridge(x[:60], y[:60]), x[60:]), torch.from_numpy(expected), atol=1e-8, rtol=0
    )
