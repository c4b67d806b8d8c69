"""Each term of stage 2 against the formula that its paper prints, written out over pictures and rows."""

from functools import partial

import pytest
import torch
from stage_probes import SMALL_CID, crossed_faces
from torch.nn import functional as F

from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.losses.latent import latent_regulariser
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.stages.anonymize_terms import AnonymizeTerms, AnonymizeWeights
from faceanon.stages.disentangle import DisentangleWeights
from faceanon.types import Branches, Codes
from faceanon.weights.bundle import Bundle

ROWS = 4


@pytest.fixture
def drawn(tiny_bundle):
    """Originals, and five random pictures of each in the order of a step: ano1, ano2, rec, err1, err2."""
    bundle = Bundle(tiny_bundle)
    noise = torch.rand(5 * ROWS, 3, 64, 64, generator=torch.Generator().manual_seed(1)) - 0.5
    codes = Codes(torch.zeros(ROWS, 2))
    batch = crossed_faces(1, 0)
    return bundle, batch, Branches(noise, codes, codes, None, codes, torch.zeros(4 * ROWS, 2), wrong=codes)


def terms(drawn, objective, margin=0.0, **weights):
    bundle, batch, branches = drawn
    rest = dict.fromkeys(("identity", "reconstruction", "perceptual", "parsing"), 0.0)
    wanted = AnonymizeWeights(**{**rest, **weights})
    return AnonymizeTerms(bundle, wanted, objective, margin, False, "l1", 0.0)(batch, branches)


def embedded(drawn):
    """F_arc of the original, and of the five pictures by name."""
    bundle, batch, branches = drawn
    names = ("ano1", "ano2", "rec", "err1", "err2")
    return bundle.recogniser(batch.image), dict(
        zip(names, bundle.recogniser(branches.pictures).split(ROWS), strict=True)
    )


def cos(one, other, row):
    return float(F.cosine_similarity(one[row], other[row], dim=0))


def test_dbaf_s_identity_loss_is_as_equations_29_to_32_print_it(drawn):
    original, faces = embedded(drawn)
    strangers = ("ano1", "ano2", "err1", "err2")  # S1
    expected = 0.0
    for row in range(ROWS):
        dif = sum(max(0.0, cos(original, faces[x], row)) for x in strangers)
        rev = 1 - cos(original, faces["rec"], row)
        div = sum(max(0.0, cos(faces[x], faces[y], row)) for x in strangers for y in strangers if x != y)
        expected += (dif + rev + div) / ROWS
    assert terms(drawn, "dbaf", identity=2.0)["identity"].item() == pytest.approx(expected, rel=1e-5)


def test_hford_s_identity_loss_is_as_equations_10_to_13_print_it(drawn):
    original, faces = embedded(drawn)
    x = ("ano1", "ano2", "err1", "err2")
    n = len(x)
    expected = 0.0
    for row in range(ROWS):
        dif = sum(max(0.0, cos(faces[i], faces[j], row)) for i in x for j in x if i != j) / (n * (n - 1))
        anony = sum(max(0.0, cos(original, faces[i], row)) for i in x) / n
        rev = 1 - cos(original, faces["rec"], row)
        expected += (dif + anony + rev) / ROWS
    assert terms(drawn, "hford", identity=2.0)["identity"].item() == pytest.approx(expected, rel=1e-5)


def test_the_released_identity_loss_is_a_mean_of_three_pairs_one_pull_and_a_mean_of_five(drawn):
    original, faces = embedded(drawn)
    apart = (("ano1", None), ("ano2", None), ("ano1", "ano2"))
    wrong = (("err1", "rec"), ("err2", "rec"), ("err1", "err2"), ("err1", None), ("err2", None))
    expected = 0.0
    for row in range(ROWS):
        for pairs in (apart, wrong):
            for one, other in pairs:
                against = original if other is None else faces[other]
                expected += max(0.1, cos(faces[one], against, row)) / len(pairs) / ROWS
        expected += (1 - cos(original, faces["rec"], row)) / ROWS
    for objective in ("released", "means"):
        found = terms(drawn, objective, margin=0.1, identity=1.0)["identity"].item()
        assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("objective", ["dbaf", "hford", "released"])
def test_picture_terms_are_sums_over_the_five(drawn, objective):
    """DBAF eqs. (33)-(35)."""
    bundle, batch, branches = drawn
    found = terms(drawn, objective, perceptual=1.0, parsing=0.1, reconstruction=0.05)
    parts = list(bundle.part_classes)
    lpips, rec, parse = 0.0, 0.0, 0.0
    for x in branches.pictures.split(ROWS):
        lpips += bundle.perceptual(x, batch.image).mean()
        rec += (x - batch.image).abs().mean()
        parse += (bundle.parser(x) - bundle.parser(batch.image))[:, parts].square().mean()
    torch.testing.assert_close(found["perceptual"], lpips)
    torch.testing.assert_close(found["reconstruction"], rec)
    torch.testing.assert_close(found["parsing"], parse)
    ours = terms(drawn, "means", perceptual=1.0, parsing=0.1)
    torch.testing.assert_close(5 * ours["perceptual"], lpips)
    torch.testing.assert_close(5 * ours["parsing"], parse)


@pytest.fixture
def stage(tiny_bundle):
    return partial(AnonymizeStage, DBAF(str(tiny_bundle), **SMALL_CID), margin=0.0, loop="image")


def step(stage):
    torch.manual_seed(0)
    batch = crossed_faces(1, 0)
    with torch.no_grad():
        branches = stage.draw(batch.image)
    return batch, branches, stage.generator_terms(batch, branches)


@pytest.mark.parametrize(("objective", "times"), [("dbaf", 5), ("hford", 1), ("released", 1), ("means", 1)])
def test_the_adversarial_loss_is_a_sum_in_dbaf_alone(stage, objective, times):
    """Eqs. (37) and (38), where HFORD's (16) and (17) and the released code have means."""
    made = stage(objective=objective)
    _, branches, found = step(made)
    batch = crossed_faces(1, 0)
    fake = made.discriminator(branches.pictures)
    torch.testing.assert_close(found["adversarial"], times * F.softplus(-fake).mean())
    made.trainer = type("Trainer", (), {"fit_loop": type("Loop", (), {"total_batch_idx": 3})})()  # no R1
    # Together, as in a step: StyleGAN2's discriminator compares the pictures of a batch.
    real, fake = made.discriminator(torch.cat([batch.image, branches.pictures])).split([ROWS, 5 * ROWS])
    with torch.no_grad():
        loss = made.adversary_terms(batch, branches)["adversarial"]
    torch.testing.assert_close(loss, times * (F.softplus(-real).mean() + F.softplus(fake).mean()))


def test_dbaf_s_regulariser_goes_to_the_generator_s_mean_code(stage):
    """Eq. (36), of the codes of all five pictures."""
    made = stage(objective="dbaf", latent_norm="mean_code")
    _, branches, found = step(made)
    mean = made.bundle.latent_avg
    expected, count = 0.0, 0
    for codes in (branches.edited, branches.recovered, branches.wrong):
        for w in made.backbone.w_plus(codes):
            expected += sum(float((w[i] - mean[i]).norm()) for i in range(1, len(w)))
            count += 1
    assert count == 5 * ROWS
    assert found["latent"].item() == pytest.approx(expected / count, rel=1e-5)


def test_hford_s_regulariser_is_of_the_offsets_from_the_first_layer():
    """Eq. (15)."""
    w = torch.randn(3, 10, 8, generator=torch.Generator().manual_seed(0))
    expected = sum(float((code[i] - code[0]).norm()) for code in w for i in range(1, 10)) / 3
    assert latent_regulariser(w, "delta").item() == pytest.approx(expected, rel=1e-5)


def test_a_single_stage_has_the_objectives_of_both(tiny_bundle):
    """DBAF eqs. (18) and (39) in one step; the mixture's terms are those of stage 1."""
    weights = DisentangleWeights()
    made = AnonymizeStage(DBAF(str(tiny_bundle), **SMALL_CID, cid_dropout=0.0), mixtures=weights, r1_gamma=0.0)
    made.trainer = type("Trainer", (), {"fit_loop": type("Loop", (), {"total_batch_idx": 0})})()
    batch = crossed_faces(1, 0)
    with torch.no_grad():
        drawn = made.draw_shard(batch)
        found = made.shard_terms(batch, drawn)
        learnt = made.adversary_terms(batch, drawn)
    assert drawn.mixed.source.tolist() == [0, 1, 2, 3]  # stage 1's first batch is of rows by themselves
    first = DisentangleStage(made.backbone, weights)
    first.discriminator = made.discriminator
    first.trainer = made.trainer
    with torch.no_grad():
        expected = first.shard_terms(batch, drawn.mixed)
    assert set(expected) == {"contrastive", "perceptual", "reconstruction", "parsing", "adversarial", "latent"}
    lambdas = {
        "contrastive": 1,
        "perceptual": 1,
        "reconstruction": 3.5,
        "parsing": 0.1,
        "latent": 0.1,
        "adversarial": 1,
    }
    total = sum(lambdas[name] * float(term) for name, term in expected.items())
    assert found["mixture"].item() == pytest.approx(total, rel=1e-5)
    assert "identity" in found
    assert made.further_weights == {"mixture": 1.0}
    assert {"adversarial", "mixture"} <= set(learnt)


class TestHandOn:
    def test_stage_2_goes_on_with_the_discriminator_of_stage_1(self, tiny_bundle, tmp_path):
        first = DisentangleStage(DBAF(str(tiny_bundle), **SMALL_CID), hand_on=True, export=tmp_path)
        with torch.no_grad():
            for parameter in first.discriminator.parameters():
                parameter.add_(1)
        first._trainer = type("Trainer", (), {"is_global_zero": True})()
        first.on_fit_end()
        second = AnonymizeStage(DBAF(str(tiny_bundle), **SMALL_CID), hand_on=True, init_from=tmp_path)
        wanted = first.discriminator.state_dict()
        assert all(torch.equal(wanted[name], item) for name, item in second.discriminator.state_dict().items())
        alone = AnonymizeStage(DBAF(str(tiny_bundle), **SMALL_CID), init_from=tmp_path)
        assert not all(torch.equal(wanted[name], item) for name, item in alone.discriminator.state_dict().items())
        (tmp_path / "discriminator.safetensors").unlink()
        with pytest.raises(UserError, match="holds no discriminator"):
            AnonymizeStage(DBAF(str(tiny_bundle), **SMALL_CID), hand_on=True, init_from=tmp_path)
