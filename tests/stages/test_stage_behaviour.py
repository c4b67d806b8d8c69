"""What a training does to weights and logs."""

import math

import pytest
import torch
from stage_probes import REPO, SMALL_CID, checkpoint, crossed_faces, fit, logged, losses

from bundles import give_noise_strengths, make_tiny_bundle
from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.rotation import Rotation
from faceanon.errors import UserError
from faceanon.files import load_tensors
from faceanon.losses.reconstruction import round_to_8_bit
from faceanon.stages import AnonymizeStage, base
from faceanon.stages.anonymize_terms import AnonymizeTerms, AnonymizeWeights
from faceanon.training.cli import run
from faceanon.types import Branches, Codes
from faceanon.weights.bundle import Bundle

TWO_BATCHES = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1")
STAGE_TWO_TERMS = {"adversarial", "identity", "reconstruction", "perceptual", "parsing", "latent"}


def start(cli):
    return next(callback for callback in cli.trainer.callbacks if type(callback).__name__ == "Start").state


def changed(cli, part):
    """Whether any tensor, and whether every parameter, under `part.` differs from the start."""
    before = {name: value for name, value in start(cli).items() if name.startswith(part + ".")}
    after = cli.model.state_dict()
    assert before, part
    return [name for name, value in before.items() if not torch.equal(value, after[name])]


def parameters(cli, part):
    """Names of what an optimizer can change in a part: statistics of batches change without any gradient."""
    return {f"backbone.{part}.{name}" for name, _ in getattr(cli.model.backbone, part).named_parameters()}


def count_r1(patch):
    """A list that grows with every R1 penalty; the log shows the last value until there is a new one."""
    calls = []
    real = base.r1_penalty
    patch.setattr(base, "r1_penalty", lambda *args: calls.append(args) or real(*args))
    return calls


class TestAdversarialStage:
    """One run of paper stage 1, with a discriminator."""

    @pytest.fixture(scope="class")
    @staticmethod
    def trained(tmp_path_factory):
        out = tmp_path_factory.mktemp("s1")
        # Encoder features reach a picture, and gradients MAAR, by the strengths that a trained generator has learnt.
        tiny_bundle = make_tiny_bundle(tmp_path_factory.mktemp("noisy"))
        give_noise_strengths(tiny_bundle)
        options = {"r1_interval": 3, "weights.parsing": 0.0, "trainable": "[cid, maar]", "samples_every": 3}
        more = ("--trainer.max_epochs=2", "--trainer.limit_train_batches=4")
        with pytest.MonkeyPatch.context() as patch:
            calls = count_r1(patch)
            cli = fit("dbaf_s1", tiny_bundle, out, "stage_probes.Start", more=more, **options)
        cli.r1_calls = len(calls)
        return cli, out

    def test_r1_is_computed_every_so_many_batches(self, trained):
        assert trained[0].r1_calls == 3  # batches 1, 4 and 7 of 8
        assert len(losses(trained[1])["train/d/adversarial"]) == 8
        assert len(losses(trained[1])["train/d/r1"]) == 3  # and is not repeated in the rows between

    def test_terms_are_logged_by_name_and_a_zero_weight_leaves_one_out(self, trained):
        names = {name.removeprefix("train/g/") for name in losses(trained[1]) if "/g/" in name}
        assert names == {"adversarial", "contrastive", "reconstruction", "perceptual", "latent"}
        assert all(math.isfinite(value) for values in losses(trained[1]).values() for value in values)

    def test_only_what_is_trainable_trains(self, trained):
        cli, _ = trained
        assert changed(cli, "backbone.generator") == changed(cli, "backbone.kria") == []
        frozen = {name for name, _ in cli.model.backbone.encoder.named_parameters()}
        assert not [
            name for name in changed(cli, "backbone.encoder") if name.removeprefix("backbone.encoder.") in frozen
        ]
        for part in ("cid", "maar"):
            assert set(changed(cli, f"backbone.{part}")) >= parameters(cli, part)

    def test_the_encoders_batch_statistics_stay_the_priors(self, trained):
        assert changed(trained[0], "backbone.encoder") == []

    def test_the_discriminator_trains(self, trained):
        assert changed(trained[0], "discriminator")

    def test_the_average_follows_and_is_what_is_exported(self, trained):
        cli, out = trained
        raw, average = cli.model.backbone.state_dict(), cli.model.ema.state_dict()
        exported = load_tensors(out / "model/weights.safetensors")
        for name in raw:
            if name.startswith("cid.") and raw[name].is_floating_point():
                break
        assert not torch.equal(raw[name], average[name])
        assert not torch.equal(start(cli)[f"backbone.{name}"], average[name])
        assert exported.keys() == average.keys()
        assert all(torch.equal(exported[key], average[key]) for key in average)

    def test_frozen_networks_are_not_in_the_checkpoint(self, trained):
        cli, out = trained
        names = set(checkpoint(out)["state_dict"])
        assert {name.split(".")[0] for name in names} == {"backbone", "ema", "discriminator"}
        bundle_roles = ("recogniser", "parser", "perceptual", "landmarks", "judge", "key_mapping")
        assert not [name for name in names if any(role in name for role in bundle_roles)]
        assert not any(parameter.requires_grad for parameter in cli.model.bundle.recogniser.net.parameters())

    def test_settings_of_the_base_classes_are_in_the_checkpoint(self, trained):
        settings = checkpoint(trained[1])["hyper_parameters"]
        assert settings["samples_every"] == settings["r1_interval"] == 3
        assert settings["trainable"] == ["cid", "maar"]
        assert {"keyed_share", "seed", "ema_half_life", "warmup"} <= set(settings)

    def test_sample_sheets(self, trained):
        names = sorted(path.name for path in trained[1].rglob("samples/*.png"))
        assert names == ["batch_0000003.png", "batch_0000006.png"]


def test_no_discriminator_without_the_adversarial_term(tiny_bundle, tmp_path):
    cli = fit("dbaf_s1", tiny_bundle, tmp_path, more=TWO_BATCHES, **{"weights.adversarial": 0.0})
    assert cli.model.discriminator is None
    assert not [name for name in losses(tmp_path) if name.startswith("train/d")]
    assert {name.split(".")[0] for name in checkpoint(tmp_path)["state_dict"]} == {"backbone", "ema"}


@pytest.mark.parametrize(("setting", "wrong"), [("samples_every", "often"), ("schedule", "linear"), ("warmpu", 3)])
def test_settings_of_the_base_classes_are_checked_by_name_and_type(setting, wrong):
    config = str(REPO / "configs/paper/dbaf_s2.yaml")
    with pytest.raises(UserError, match=setting):
        run(["fit", "--config", config, f"--model.init_args.{setting}={wrong}", "--print_config"])


@pytest.mark.parametrize("name", ["DisentangleStage", "AnonymizeStage"])
def test_help_explains_the_settings_of_the_base_classes(capsys, name):
    with pytest.raises(SystemExit):
        run(["fit", "--model.help", f"faceanon.stages.{name}"])
    out = " ".join(capsys.readouterr().out.split())
    for setting, words in (("trainable", "Prefixes"), ("export", "Folder written"), ("r1_gamma", "Weight of R1")):
        assert f"--model.{setting} {setting.upper()}" in out
        assert words in out
    assert "--model.adversarial " not in out


def test_a_wrong_prefix_names_the_parts(tiny_bundle, tmp_path):
    with pytest.raises(UserError, match=r"starts with 'kriah'; the parts are cid, encoder, generator, kria, maar"):
        fit("dbaf_s2", tiny_bundle, tmp_path, more=TWO_BATCHES, trainable="[kriah]")


@pytest.mark.parametrize("loop", ["latent", "image", "file"])
def test_every_loop_runs(tiny_bundle, tmp_path, loop):
    fit("pixels_s2", tiny_bundle, tmp_path, more=TWO_BATCHES, loop=loop, saved_noise=0.5 * (loop != "latent"))
    terms = losses(tmp_path)
    assert ("train/g/target" in terms) == (loop != "latent")  # the codes found in a picture, where one was read
    assert {"train/g/code", "train/g/recovery", "train/g/anchor", "train/g/recovered_identity"} <= set(terms)
    assert all(math.isfinite(value) for values in terms.values() for value in values)
    (error,) = [value for value in logged(tmp_path)["val_code_error"] if value is not None]
    (correlation,) = [value for value in logged(tmp_path)["val_code_correlation"] if value is not None]
    assert error > 0
    assert -1 <= correlation <= 1


class TestSavedNoise:
    """Noise on the picture that recovery reads."""

    @pytest.fixture
    def backbone(self, tiny_bundle):
        return Rotation(tiny_bundle, components=8)

    def read(self, backbone, monkeypatch, **settings):
        """All pictures of the first drawing, and the first half of them as they are read back."""
        stage, calls = AnonymizeStage(backbone, **settings), {"decode": [], "encode_anonymized": []}

        def spy(name, real):
            def spied(given):
                answer = real(given)
                calls[name].append(answer if name == "decode" else given)
                return answer

            monkeypatch.setattr(backbone, name, spied)

        spy("decode", backbone.decode)
        spy("encode_anonymized", backbone.encode_anonymized)
        torch.manual_seed(0)
        stage.draw(crossed_faces(2, 0).image)
        return calls["decode"][0], calls["encode_anonymized"][0]

    @pytest.mark.parametrize("loop", ["image", "file"])
    def test_its_deviation_is_in_8_bit_steps(self, backbone, monkeypatch, loop):
        drawn, read = (item.detach() for item in self.read(backbone, monkeypatch, loop=loop, saved_noise=3.0))
        drawn = drawn[: len(read)]
        steps = (read - drawn)[drawn.abs() < 0.8] * 127.5
        assert float(steps.std()) == pytest.approx((9 + (loop == "file") / 12) ** 0.5, rel=0.03)
        whole = (read + 1) * 127.5
        assert torch.allclose(whole, whole.round(), atol=1e-3) == (loop == "file")

    def test_without_it_the_picture_is_only_rounded(self, backbone, monkeypatch):
        drawn, read = self.read(backbone, monkeypatch)
        assert torch.equal(read, round_to_8_bit(drawn[: len(read)]))

    def test_gradients_pass_as_if_there_were_none(self, backbone, monkeypatch):
        drawn, read = self.read(backbone, monkeypatch, saved_noise=2.0)
        (gradient,) = torch.autograd.grad(read.sum(), drawn)
        first = slice(0, len(read))
        inside = drawn[first].abs() < 0.8
        assert torch.equal(gradient[first][inside], torch.ones_like(gradient[first][inside]))

    @pytest.mark.parametrize("wrong", [{"saved_noise": -1.0}, {"saved_noise": 1.0, "loop": "latent"}])
    def test_what_makes_no_sense_is_refused(self, backbone, wrong):
        with pytest.raises(UserError, match="saved_noise"):
            AnonymizeStage(backbone, **wrong)


def test_tests_measure_in_full_precision(tiny_bundle):
    """Under bf16 SSIM, a difference of near equals, came out a third too low."""

    class Listening:
        def update(self, batch, backbone):
            self.reduced = torch.is_autocast_enabled("cpu")

    stage = AnonymizeStage(DBAF(str(tiny_bundle), **SMALL_CID))
    stage.evaluation = Listening()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stage.test_step(crossed_faces(1, 0), 0)
    assert stage.evaluation.reduced is False


@pytest.mark.parametrize("both", [True, False])
def test_the_recovered_pictures_distance_is_the_same_alone_and_among_five(tiny_bundle, both):
    weights = AnonymizeWeights(perceptual=float(both), recovery_perceptual=1.0)
    bundle, batch = Bundle(tiny_bundle), crossed_faces(1, 0)
    codes = Codes(torch.zeros(4, 2))
    pictures = torch.rand(20, 3, 64, 64, generator=torch.Generator().manual_seed(1)) - 0.5
    branches = Branches(pictures, codes, codes, None, codes, torch.zeros(16, 2))
    terms = AnonymizeTerms(bundle, weights, "means", 0.1, False, "l1", 0.0)(batch, branches)
    alone = bundle.perceptual(pictures[8:12], batch.image).mean()
    torch.testing.assert_close(terms["recovery_perceptual"], alone)
    assert ("perceptual" in terms) == both


def test_an_adversary_learns_against_the_stage(tiny_bundle, tmp_path):
    options = {"weights.adversary": 1.0, "weights.adversarial": 0.0}
    cli = fit("pixels_s2", tiny_bundle, tmp_path, "stage_probes.Start", more=TWO_BATCHES, **options)
    terms = losses(tmp_path)
    assert len(terms["train/d/adversary"]) == len(terms["train/g/adversary"]) == 2
    assert min(terms["train/g/adversary"]) >= 0
    moved = changed(cli, "adversary")
    assert moved
    assert all(name.startswith("adversary.reader.") for name in moved)
    assert not [name for name in moved if "running" in name], "its norms keep their statistics"
    assert changed(cli, "backbone")
    assert "adversary" in {name.split(".")[0] for name in checkpoint(tmp_path)["state_dict"]}
    assert not [name for name in load_tensors(tmp_path / "model/weights.safetensors") if "adversary" in name]


def test_the_adversary_pulls_and_the_stage_escapes(tiny_bundle, tmp_path):
    options = {"weights.adversary": 1.0, "weights.adversarial": 0.0}
    stage = fit("pixels_s2", tiny_bundle, tmp_path, more=TWO_BATCHES, **options).model
    batch = crossed_faces(2, 0)
    hidden = batch.image.clone().requires_grad_()
    (slope,) = torch.autograd.grad(stage.adversary(hidden, batch.image, batch.identity).mean(), hidden)
    slope /= slope.abs().max()
    with torch.no_grad():
        start, more, less = (stage.adversary(hidden + step * slope, batch.image, batch.identity).mean()
                             for step in (0.0, 0.02, -0.02))  # fmt: skip
    assert less < start < more


def test_pseudonyms_are_compared_under_one_key(tiny_bundle, tmp_path):
    options = {"weights.pseudonym": 1.0, "branches_every": 2}
    stage = fit("pixels_s2", tiny_bundle, tmp_path, more=TWO_BATCHES, **options).model
    terms = losses(tmp_path)
    assert terms["train/g/pseudonym"][0] > 0
    assert len(terms["train/g/pseudonym"]) == 1, "the second batch draws under one key each"
    keys = stage._keys(4, crossed_faces(2, 0).image).flatten(1).chunk(4)
    assert [len(each.unique(dim=0)) for each in keys] == [8, 1, 8, 8]


def test_anchors_are_nothing_before_the_first_step(tiny_bundle, tmp_path):
    fit("pixels_s1", tiny_bundle, tmp_path / "1", more=TWO_BATCHES)
    cli = fit("pixels_s2", tiny_bundle, tmp_path / "2", more=TWO_BATCHES, init_from=tmp_path / "1/model")
    stage, image = cli.model, crossed_faces(1, 0).image
    stage.backbone.load_state_dict(stage.teacher[0].state_dict())
    with torch.no_grad():
        branches = stage.draw(image)
        anchors = stage._anchors(image, branches)
        few = stage._anchors(image, stage.draw(image, all_five=False))
    assert anchors["anchor"] < 1e-5
    # Wrong keys open what was read from the anonymized picture, the anchor what the original itself shows.
    assert 0 < anchors["wrong_anchor"] < 1
    assert set(few) == {"anchor"}


def test_anchors_stay_those_of_the_start_when_a_run_goes_on(tiny_bundle, tmp_path):
    first = fit("pixels_s2", tiny_bundle, tmp_path, more=TWO_BATCHES).model
    longer = (*TWO_BATCHES, "--trainer.max_epochs=2", "--ckpt_path=last")
    second = fit("pixels_s2", tiny_bundle, tmp_path, more=longer).model
    states = [stage.teacher[0].state_dict() for stage in (first, second)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    trained = second.backbone.state_dict()
    assert any(not torch.equal(value, trained[name]) for name, value in states[1].items())


def test_anchors_of_a_resumed_run_are_never_its_own_drawings(tiny_bundle, tmp_path):
    fit("pixels_s2", tiny_bundle, tmp_path, more=TWO_BATCHES)
    (path,) = tmp_path.rglob("last.ckpt")
    content = torch.load(path, weights_only=True)
    del content["faceanon_start"]
    torch.save(content, tmp_path / "old.ckpt")
    longer = (*TWO_BATCHES, "--trainer.max_epochs=2", f"--ckpt_path={tmp_path / 'old.ckpt'}")
    with pytest.raises(UserError, match="give init_from or anchor_from too"):
        fit("pixels_s2", tiny_bundle, tmp_path, more=longer)


def test_anchors_may_be_another_models_than_the_start(tiny_bundle, tmp_path):
    fit("pixels_s1", tiny_bundle, tmp_path / "1", more=TWO_BATCHES)
    stage = fit("pixels_s2", tiny_bundle, tmp_path / "2", more=TWO_BATCHES, anchor_from=tmp_path / "1/model").model
    wanted = load_tensors(tmp_path / "1/model/weights.safetensors")
    found = stage.teacher[0].state_dict()
    assert all(torch.equal(found[name], value) for name, value in wanted.items())


def test_a_term_can_be_watched_though_no_row_is_written(tiny_bundle, tmp_path):
    cli = fit("dbaf_s1", tiny_bundle, tmp_path, more=(*TWO_BATCHES, "--trainer.log_every_n_steps=50"))
    assert {"train/g/adversarial", "train/d/adversarial"} <= set(cli.trainer.callback_metrics)


@pytest.mark.parametrize("config", ["dbaf_s1", "pixels_s2"])
def test_bf16(tiny_bundle, tmp_path, config):
    cli = fit(config, tiny_bundle, tmp_path, more=(*TWO_BATCHES, "--trainer.precision=bf16-mixed"))
    values = [value for column in losses(tmp_path).values() for value in column]
    assert values
    assert all(math.isfinite(value) for value in values)
    assert all(value.isfinite().all() for value in cli.model.state_dict().values())
    assert cli.model.backbone.generator.conv1.conv.weight.dtype == torch.float32


@pytest.mark.parametrize("name", ["hford", "dbaf_released", "dbaf"])
def test_presets_run_through_both_stages(tiny_bundle, tmp_path, monkeypatch, name):
    fit(f"{name}_s1", tiny_bundle, tmp_path / "1", more=TWO_BATCHES)
    calls = count_r1(monkeypatch)
    cli = fit(f"{name}_s2", tiny_bundle, tmp_path / "2", more=TWO_BATCHES, init_from=tmp_path / "1/model")
    terms = losses(tmp_path / "2")
    assert {term.removeprefix("train/g/") for term in terms if "/g/" in term} == STAGE_TWO_TERMS
    assert len(calls) == (2 if name == "dbaf_released" else 1)
    assert all(math.isfinite(value) for values in terms.values() for value in values)
    released = name == "dbaf_released"
    generator = Bundle(tiny_bundle).generator().state_dict()
    now = cli.model.backbone.generator.state_dict()
    assert all(torch.equal(now[key], generator[key]) for key in generator) != released
