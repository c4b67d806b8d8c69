import math
from dataclasses import replace

import pytest
import torch
from metric_fakes import (
    PEOPLE,
    PHOTOS,
    Blur,
    Broken,
    CopyRecovery,
    FakeBundle,
    FloatSmuggler,
    Irreversible,
    KeyIgnored,
    PassThrough,
    Shift,
    faces,
)

from faceanon.metrics.evaluation import Evaluation


def evaluate(backbone, batch=None, size=36, **options):
    evaluation = Evaluation(FakeBundle(), **options)
    batch = batch if batch is not None else faces()
    for start in range(0, len(batch), size):
        evaluation.update(batch.map(lambda t, s=start: t[s : s + size]), backbone)
    return evaluation, evaluation.compute()


@pytest.fixture(scope="module")
def ideal():
    return evaluate(Shift(), kffa_keys=3)


def test_ideal_method_is_seen_as_ideal(ideal):
    evaluation, figures = ideal
    for name in ("judge", "trainer"):
        assert figures[f"deid_rate/{name}"] < 0.15
        assert figures[f"wrong_key_rate/{name}"] < 0.15
        assert figures[f"key_similarity/{name}"] < 0.15
        assert figures[f"self_verification/{name}"] == 1
        assert figures[f"tar_at_far/{name}/0.01"] == 1
        assert figures[f"rank1/{name}/original"] == figures[f"rank1/{name}/recovered"] == 1
        assert figures[f"rank1/{name}/anonymized"] < 0.3
        assert figures[f"deid_rate_gallery/{name}"] < 0.15
        for level in ("latent", "image", "file"):
            assert figures[f"recovery_rate/{name}/{level}"] == 1
    assert evaluation.warnings == []


def test_every_promised_figure_is_there(ideal):
    evaluation, figures = ideal
    levels = [f"{what}/{level}" for what in ("recovered",) for level in ("latent", "image", "file", "jpeg75")]
    for what in ("psnr", "mse", "ssim", "lpips"):
        assert {f"{what}/{level}" for level in [*levels, "anonymized/file", "wrong/file"]} <= set(figures)
    assert {f"psnr_face/{level}" for level in levels} <= set(figures)
    others = {
        "psnr_background/anonymized/file",
        "psnr_outside_face/anonymized/file",
        "occluder_psnr/anonymized/file",
        "occluder_psnr/recovered/file",
        "landmark_distance/anonymized",
        "parsing_iou/recovered",
        "kid",
        "kid_std",
        "kffa/judge",
        "id_cos/judge/anonymized",
        "id_cos/judge/keys",
        "wrong_anonymized_similarity/judge",
        "threshold/judge",
        "recovery_copy_rate",
    }
    assert others <= set(figures)
    assert next(iter(figures)).split("/")[1] == "judge"
    assert all(math.isfinite(value) for value in figures.values())
    assert {"deid_rate/judge", "recovery_rate/judge/file", "self_verification/trainer"} <= set(evaluation.ci)
    assert evaluation.skipped == []


def test_levels_are_what_they_say(ideal):
    figures = ideal[1]
    assert figures["psnr/recovered/latent"] == figures["psnr/recovered/image"] == 100
    assert 45 < figures["psnr/recovered/file"] < 65  # only 8-bit rounding was lost
    assert figures["psnr/recovered/jpeg75"] < figures["psnr/recovered/file"] - 10
    assert figures["parsing_iou/anonymized"] == 1


def test_intervals_hold_their_figures(ideal):
    evaluation, figures = ideal
    assert all(low <= figures[name] <= high for name, (low, high) in evaluation.ci.items())


def test_meta_names_judge_and_white_box(ideal):
    meta = ideal[0].meta
    assert meta["judge"] == "judge"
    assert meta["white_box"] == ["trainer"]
    assert meta["images"] == PEOPLE * PHOTOS
    assert meta["people"] == PEOPLE


def test_samples_and_scores(ideal):
    evaluation = ideal[0]
    assert list(evaluation.samples) == ["original", "anonymized, key 1", "anonymized, key 2", "recovered", "wrong key"]
    assert all(row.shape == (8, 3, 24, 24) for row in evaluation.samples.values())
    assert not torch.equal(evaluation.samples["anonymized, key 1"], evaluation.samples["anonymized, key 2"])
    assert len(evaluation.scores["genuine"]) == PEOPLE * PHOTOS * (PHOTOS - 1) // 2
    assert len(evaluation.scores["impostor"]) == (36 * 35 // 2) - 36


def test_figures_do_not_depend_on_the_batch_size(ideal):
    assert evaluate(Shift(), size=7, kffa_keys=3)[1] == pytest.approx(ideal[1], abs=1e-5)


def test_another_seed_draws_other_keys(ideal):
    assert evaluate(Shift(), seed=1)[1]["id_cos/judge/anonymized"] != ideal[1]["id_cos/judge/anonymized"]


def test_reset_forgets(ideal):
    evaluation = Evaluation(FakeBundle(), kffa_keys=3)
    evaluation.update(faces(4), PassThrough())
    evaluation.reset()
    evaluation.update(faces(), Shift())
    assert evaluation.compute() == pytest.approx(ideal[1], abs=1e-5)


@pytest.mark.parametrize(
    ("method", "warning"),
    [
        (PassThrough, "nothing is anonymized"),
        (PassThrough, "recovery copies its input"),
        (PassThrough, "the lock is open"),
        (Blur, "blur passes for anonymity"),
        (KeyIgnored, "the key is ignored"),
        (KeyIgnored, "the lock is open"),
        (CopyRecovery, "recovery copies its input"),
        (FloatSmuggler, "does not survive the file"),
    ],
)
def test_bad_methods_are_caught(method, warning):
    evaluation, _ = evaluate(method())
    assert any(warning in text for text in evaluation.warnings), evaluation.warnings


def test_pass_through_is_recognised_every_time():
    _, figures = evaluate(PassThrough())
    assert figures["deid_rate/judge"] == figures["key_similarity/judge"] == figures["wrong_key_rate/judge"] == 1
    assert figures["rank1/judge/anonymized"] == 1


def test_copied_recovery_recovers_nobody():
    _, figures = evaluate(CopyRecovery())
    assert figures["recovery_rate/judge/file"] == figures["deid_rate/judge"]
    assert figures["wrong_anonymized_similarity/judge"] == figures["recovery_copy_rate"] == 1
    assert figures["recovery_rate/judge/latent"] == 1  # why the latent level alone proves nothing


def test_smuggler_recovers_from_floats_only():
    _, figures = evaluate(FloatSmuggler())
    assert figures["recovery_rate/judge/image"] == 1
    assert figures["recovery_rate/judge/file"] < 0.2


def test_blur_looks_anonymous_beside_its_self_verification():
    _, figures = evaluate(Blur())
    assert figures["deid_rate/judge"] == figures["self_verification/judge"] < 0.9


def test_method_without_codes_or_recovery():
    evaluation, figures = evaluate(Irreversible())
    assert not any(name.startswith(("recovery_rate", "wrong_key_rate", "self_verification")) for name in figures)
    assert any("no codes" in text for text in evaluation.skipped)
    assert any("not reversible" in text for text in evaluation.skipped)
    assert "recovered" not in evaluation.samples


def test_missing_networks_are_skipped_and_named():
    bundle = FakeBundle()
    bundle.parser = bundle.landmarks = bundle.perceptual = bundle.recogniser = None
    evaluation = Evaluation(bundle)
    evaluation.update(faces(truth=False), Shift())
    figures = evaluation.compute()
    assert "deid_rate/judge" in figures
    assert "deid_rate/trainer" not in figures
    assert not any(name.startswith(("lpips", "kid", "landmark", "parsing", "psnr_")) for name in figures)
    for role in ("parser", "landmarks", "perceptual", "recogniser"):
        assert any(f"no {role}" in text for text in evaluation.skipped)


def test_unknown_people_leave_rates_out():
    batch = faces()
    evaluation, figures = evaluate(Shift(), replace(batch, identity=torch.full_like(batch.identity, -1)))
    assert not any(name.startswith(("deid_rate", "threshold", "rank1", "tar")) for name in figures)
    assert "id_cos/judge/anonymized" in figures
    assert any("threshold" in text for text in evaluation.skipped)


def test_one_picture_a_person_has_rates_but_no_gallery():
    evaluation, figures = evaluate(Shift(), faces(photos=1))
    assert "deid_rate/judge" in figures
    assert not any(name.startswith(("deid_rate_gallery", "rank1", "tar_at_far")) for name in figures)
    assert any("two pictures" in text for text in evaluation.skipped)


def test_regions_without_truth_come_from_the_parser():
    _, figures = evaluate(Shift(), faces(truth=False))
    assert "psnr_face/recovered/file" in figures
    assert not any(name.startswith("occluder_psnr") for name in figures)


def test_broken_method_and_bad_batches_are_named():
    with pytest.raises(ValueError, match="NaN"):
        evaluate(Broken())
    batch = faces()
    with pytest.raises(ValueError, match=r"batch.image must lie in \[-1, 1\]"):
        evaluate(Shift(), replace(batch, image=batch.image * 255))
    with pytest.raises(ValueError, match="nothing to compute"):
        Evaluation(FakeBundle()).compute()


@pytest.mark.parametrize("options", [{"far": 0}, {"keys": 1}, {"kffa_keys": 1}, {"jpeg_qualities": (0,)}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError):  # noqa: PT011 - four messages
        Evaluation(FakeBundle(), **options)
