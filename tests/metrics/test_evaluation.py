import html
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

from faceanon.errors import UserError
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.guards import find_faults
from faceanon.metrics.protocol import load_protocol
from faceanon.metrics.readings import ThresholdReading
from faceanon.photo.detect import Detection
from faceanon.report.page import write_report
from faceanon.results import load_results


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
        "fid",
        "parsing_iou_outside/anonymized",
        "eer/judge/original",
        "eer/judge/anonymized",
        "auc/judge/recovered",
        "tar_at_far/judge/0.001",
        "rank5/judge/anonymized",
        "id_l1/judge/anonymized",
        "key_diversity/judge/mean",
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
    rates = [
        name for name in figures if name.split("/")[0].endswith("_rate") or name.startswith(("rank", "tar_", "eer"))
    ]
    without = {"recovery_copy_rate"}
    assert set(rates) - without <= set(evaluation.ci)
    assert {"deid_rate/judge", "eer/judge/anonymized", "tar_at_far/judge/0.01", "kid"} <= set(evaluation.ci)
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
        (PassThrough, {"deid_rate/judge": "nothing is anonymized"}),
        (PassThrough, {"recovery_copy_rate": "recovery copies its input"}),
        (PassThrough, {"wrong_key_rate/judge": "the lock is open", "key_similarity/judge": "the key is ignored"}),
        (Blur, {"self_verification/judge": "blur passes for anonymity"}),
        (KeyIgnored, {"key_similarity/judge": "the key is ignored", "wrong_key_rate/judge": "the lock is open"}),
        (CopyRecovery, {"recovery_copy_rate": "copies its input", "mse/recovered/file": "no nearer to the original"}),
        (FloatSmuggler, {"recovery_rate/judge/file": "does not survive the file"}),
    ],
)
def test_bad_methods_are_caught_at_the_figure_that_shows_it(method, warning, tmp_path):
    evaluation, figures = evaluate(method())
    for figure, text in warning.items():
        assert text in evaluation.faults[figure]
        assert figure in figures
    assert list(evaluation.faults.values()) == evaluation.warnings
    page = write_report(tmp_path, figures, {}, evaluation.meta, warnings=evaluation.warnings).read_text()
    top = page[: page.index("<table")]
    assert all(html.escape(evaluation.faults[figure]) in top for figure in warning)
    assert load_results(tmp_path).warnings == evaluation.warnings


def test_people_found_below_the_threshold_are_a_fault():
    figures = {"deid_rate/j": 0.1, "rank1/j/anonymized": 0.8, "rank1/j/original": 0.9}
    assert "people are still found: 80%" in find_faults(figures, "j", 0.01)["rank1/j/anonymized"]
    assert find_faults({**figures, "rank1/j/anonymized": 0.2}, "j", 0.01) == {}
    assert find_faults({}, "j", 0.01) == {}
    assert "kid" in find_faults({"kid": math.nan}, "j", 0.01)["finite"]


def test_a_recovery_that_brings_nobody_back_is_a_fault():
    """As of a training that has not learnt to draw: nobody is recognised anywhere, which is no anonymity."""
    figures = {"deid_rate/j": 0.005, "recovery_rate/j/image": 0.005, "recovery_rate/j/file": 0.005}
    assert "brings nobody back" in find_faults(figures, "j", 0.01)["recovery_rate/j/file"]
    assert find_faults({**figures, "recovery_rate/j/image": 0.4, "recovery_rate/j/file": 0.4}, "j", 0.01) == {}
    lost = find_faults({**figures, "recovery_rate/j/image": 0.9}, "j", 0.01)
    assert "does not survive the file" in lost["recovery_rate/j/file"]


def test_a_picture_of_which_little_is_left_is_a_fault():
    """Nobody is recognised in mush: a method that draws no face needs no key to hide it."""
    figures = {"deid_rate/j": 0.0, "parsing_iou/anonymized": 0.27}
    assert "IoU of 0.27 only" in find_faults(figures, "j", 0.01)["parsing_iou/anonymized"]
    assert find_faults({**figures, "parsing_iou/anonymized": 0.4}, "j", 0.01) == {}


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


def test_a_bundle_without_a_judge_is_tested_all_the_same():
    class WithoutJudge(FakeBundle):
        """As a bundle on the disk: what it has not got has no name either."""

        @property
        def judge_name(self):
            raise UserError("bundle 'fake' has no judge")

        def has(self, role):
            return role != "judge"

    evaluation = Evaluation(WithoutJudge())
    evaluation.update(faces(), Shift())
    assert "deid_rate/trainer" in evaluation.compute()
    assert any("no judge" in text for text in evaluation.skipped)
    assert evaluation.meta["judge"] == "trainer"


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


def followed(**changes):
    """photo128's protocol, made to fit the 36 fake faces."""
    protocol = load_protocol("photo128-v1")
    pictures = replace(protocol.pictures, images=36, people=12, signature=(), image_size=24)
    reading = ThresholdReading("l2_1.1", "judge", "l2", 1.1)
    matching = replace(protocol.matching, readings=(reading, replace(reading, recogniser="nobody")))
    changes = {"pictures": pictures, "matching": matching, "kid_subset_size": 20, "draws": 100} | changes
    return replace(protocol, **changes)


def test_a_protocol_sets_the_choices_and_signs_the_results():
    protocol = followed(keys=3, kffa_keys=2, jpeg_qualities=(50,), seed=4)
    evaluation, figures = evaluate(Shift(), protocol=protocol)
    assert {"psnr/recovered/jpeg50", "kffa/judge", "recognition_rate/judge/anonymized/l2_1.1"} <= set(figures)
    assert "psnr/recovered/jpeg75" not in figures
    assert not any("nobody" in name for name in figures)
    assert (evaluation.meta["keys"], evaluation.meta["seed"]) == (3, 4)
    signed = evaluation.meta["protocol"]
    assert (signed["name"], signed["version"], signed["deviations"]) == ("photo128", 1, [])
    assert len(signed["pictures_sha256"]) == 64
    assert len(evaluation.meta["method_sha256"]) == 64
    assert evaluation.warnings == []


def test_reading_equals_its_cosine():
    evaluation, figures = evaluate(Shift(), protocol=followed())
    expected = (evaluation.scores["anonymized"] > 0.395).float().mean()
    assert figures["recognition_rate/judge/anonymized/l2_1.1"] == pytest.approx(float(expected))
    assert "recognition_rate/judge/anonymized/l2_1.1" in evaluation.ci


def test_a_test_on_other_pictures_says_so_on_top():
    evaluation, _ = evaluate(Shift(), faces(6), protocol=followed())
    (warning,) = evaluation.warnings
    assert warning == "protocol photo128-v1 was not followed: 18 images instead of 36; 6 people instead of 12"
    assert evaluation.meta["protocol"]["deviations"]


def test_detectors_are_asked_about_every_version():
    class Everywhere:
        def detect(self, image):
            return [Detection((0, 0, 9, 9), 1.0, image[:5, 0, :2].astype(float))]

    evaluation, figures = evaluate(Shift(), detectors={"everywhere": Everywhere()})
    for name in ("detection_rate/everywhere", "detection_rate/everywhere/recovered"):
        assert figures[name] == 1
    assert figures["box_distance/everywhere"] == 0
    assert figures["landmark_distance/everywhere"] > figures["landmark_distance/everywhere/recovered"] == 0
    assert evaluation.ci["detection_rate/everywhere"][1] == 1


def test_a_protocol_s_draws_are_behind_the_intervals_of_detectors_too():
    evaluation = Evaluation(FakeBundle(), protocol=followed(detectors=(), draws=70))
    assert evaluation.detection.draws == evaluation.suites["judge"].draws == 70


def test_a_seed_of_ones_own_is_a_deviation():
    evaluation, _ = evaluate(Shift(), protocol=followed(), seed=3)
    assert evaluation.meta["protocol"]["deviations"] == ["seed 3 instead of 0"]
