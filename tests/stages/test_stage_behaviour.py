"""What a training does to weights and logs."""

import math

import pytest
import torch
from stage_probes import checkpoint, fit, losses

from faceanon.errors import UserError
from faceanon.stages import base
from faceanon.weights.bundle import Bundle
from faceanon.weights.files import load_tensors

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
    def trained(tiny_bundle, tmp_path_factory):
        out = tmp_path_factory.mktemp("s1")
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
        assert changed(cli, "backbone.cid")
        assert changed(cli, "backbone.maar")

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

    def test_sample_sheets(self, trained):
        names = sorted(path.name for path in trained[1].rglob("samples/*.png"))
        assert names == ["batch_0000003.png", "batch_0000006.png"]


def test_no_discriminator_without_the_adversarial_term(tiny_bundle, tmp_path):
    cli = fit("dbaf_s1", tiny_bundle, tmp_path, more=TWO_BATCHES, **{"weights.adversarial": 0.0})
    assert cli.model.discriminator is None
    assert not [name for name in losses(tmp_path) if name.startswith("train/d")]
    assert {name.split(".")[0] for name in checkpoint(tmp_path)["state_dict"]} == {"backbone", "ema"}


def test_a_wrong_prefix_names_the_parts(tiny_bundle, tmp_path):
    with pytest.raises(UserError, match=r"starts with 'kriah'; the parts are cid, encoder, generator, kria, maar"):
        fit("dbaf_s2", tiny_bundle, tmp_path, more=TWO_BATCHES, trainable="[kriah]")


@pytest.mark.parametrize("loop", ["latent", "image", "file"])
def test_every_loop_runs(tiny_bundle, tmp_path, loop):
    fit("dbaf_keyed_s2", tiny_bundle, tmp_path, more=TWO_BATCHES, loop=loop)
    terms = losses(tmp_path)
    assert ("train/g/target" in terms) == (loop != "latent")  # the codes found in a picture, where one was read
    assert {"train/g/code", "train/g/recovery", "train/g/anchor", "train/g/recovered_identity"} <= set(terms)
    assert all(math.isfinite(value) for values in terms.values() for value in values)


@pytest.mark.parametrize("config", ["dbaf_s1", "dbaf_keyed_s2"])
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
