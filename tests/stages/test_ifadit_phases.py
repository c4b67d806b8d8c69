"""Both phases of iFADIT and their ablations, two batches each, through the command line's own door."""

import json

import pytest
import torch
from stage_probes import REPO, checkpoint, losses, words

from faceanon.backbones.ifadit import IFADIT
from faceanon.errors import UserError
from faceanon.training.cli import run

PRINTED = {"anonymity", "diversity", "recovery", "image"}
ALL = {"plain_image", "plain_identity_l1", "plain_landmarks"} | PRINTED


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def weighed(*names):
    """The option that weighs these extra terms alone."""
    return f"--model.init_args.extra_weights={json.dumps(dict.fromkeys(names, 1.0))}"


PHASE_TWO = PRINTED
ABLATIONS = {
    "no_diversity": weighed(*PHASE_TWO - {"diversity"}),
    "no_image": weighed(*PHASE_TWO - {"image"}),
    "no_icl": "--model.init_args.trainable=[flow]",
}


def fit(config, bundle, out, *more, **options):
    """Two batches of the shipped configuration, through the command line's own door."""
    out.mkdir()
    options = {"backbone__init_args__flow_hidden": 32, **options}
    return run(
        [
            "fit",
            *words(config, bundle, out, **options),
            "--trainer.max_epochs=1",
            "--trainer.limit_train_batches=2",
            *more,
        ]
    )


def changed(out, start):
    """Parts of the backbone whose parameters differ from `start`, by their first name."""
    state = {
        name.removeprefix("backbone."): v
        for name, v in checkpoint(out)["state_dict"].items()
        if name.startswith("backbone.")
    }
    return {name.split(".")[0] for name, value in state.items() if not torch.equal(value, start[name])}


@pytest.fixture(scope="module")
def phase_one(tiny_bundle, tmp_path_factory):
    out = tmp_path_factory.mktemp("ifadit") / "s1"
    fit("ifadit_s1", tiny_bundle, out)
    return out


def trained(out):
    return {
        name.removeprefix("ema."): v for name, v in checkpoint(out)["state_dict"].items() if name.startswith("ema.")
    }


def test_phase_one_trains_encoder_and_mapper(phase_one, tiny_bundle):
    state = checkpoint(phase_one)["state_dict"]
    bundled = IFADIT(str(tiny_bundle)).encoder.state_dict()
    assert any(not torch.equal(state[f"backbone.encoder.{name}"], value) for name, value in bundled.items())
    assert set(losses(phase_one)) == {"train/g/image", "train/g/identity_l1", "train/g/landmarks"}
    assert len(losses(phase_one)["train/g/image"]) == 2


@pytest.mark.parametrize(
    ("ablation", "parts", "lacking"),
    [
        (None, {"flow", "compensation"}, set()),
        slow("no_diversity", {"flow", "compensation"}, {"diversity"}),
        slow("no_image", {"flow", "compensation"}, {"image"}),
        slow("no_icl", {"flow"}, set()),
    ],
)
def test_phase_two_and_its_ablations_train_what_they_say(phase_one, tiny_bundle, tmp_path, ablation, parts, lacking):
    out = tmp_path / "s2"
    more = [ABLATIONS[ablation]] if ablation else []
    fit("ifadit_s2", tiny_bundle, out, *more, init_from=phase_one / "model")
    assert changed(out, trained(phase_one)) == parts
    phase_two = PHASE_TWO - lacking
    assert {name.removeprefix("train/g/") for name in losses(out)} == phase_two
    assert (out / "model/weights.safetensors").is_file()


@pytest.mark.slow
def test_a_single_phase_trains_everything(tiny_bundle, tmp_path):
    parts = "--model.init_args.trainable=[encoder, mapper, flow, compensation]"
    fit("ifadit_s2", tiny_bundle, tmp_path / "s", weighed(*ALL), parts)
    assert {name.removeprefix("train/g/") for name in losses(tmp_path / "s")} == ALL
    fresh = IFADIT(str(tiny_bundle), flow_hidden=32).state_dict()
    assert {"encoder", "mapper", "flow", "compensation"} <= changed(tmp_path / "s", fresh)


def test_cross_identity_batches_and_the_released_preset_train(tiny_bundle, tmp_path):
    released = f"--model.init_args.backbone={REPO / 'configs/backbone/ifadit_released.yaml'}"
    bundle = f"--model.init_args.backbone.init_args.bundle={tiny_bundle}"
    out = tmp_path / "s"
    fit("ifadit_s1", tiny_bundle, out, "--model.init_args.pairing=roll", released, bundle)
    assert losses(out)["train/g/image"][1] == 0  # the second batch mixes persons
    card = (out / "model/model.yaml").read_text()
    assert "all_in_one" in card


def test_an_unknown_term_is_one_clear_line(tiny_bundle, tmp_path):
    weights = json.dumps({"anonymity": 1.0, "anonymitty": 1.0})
    with pytest.raises(UserError, match=r"extra_weights: IFADIT has no anonymitty"):
        fit("ifadit_s2", tiny_bundle, tmp_path / "s", extra_weights=weights)


def test_phase_one_from_a_linear_map_draws_what_the_flow_makes(tiny_bundle, tmp_path):
    maps = {"components": 8, "attributes_kept": 3, "identity_draft": 1.5, "flow_turn": 110.0, "flow_hidden": 64}
    linear = "faceanon.backbones.ifadit_linear.LinearIFADIT"
    start = {"backbone": json.dumps({"class_path": linear, "init_args": {"bundle": str(tiny_bundle), **maps}})}
    fit("ifadit_s1", tiny_bundle, tmp_path / "s1", pairing="roll", keyed_share=1.0, trainable="[mapper]", **start)
    state = checkpoint(tmp_path / "s1")["state_dict"]
    # Measured before the first batch, in the backbone and in its average.
    for name in ("backbone.identity_draft.weight", "ema.identity_draft.weight"):
        assert state[name].abs().mean() > 1e-4
    for name in ("principal.mean", "axes.colour"):
        assert torch.equal(state[f"backbone.{name}"], state[f"ema.{name}"])
    assert state["backbone.principal.mean"].abs().mean() > 1e-4
    assert not torch.equal(state["backbone.axes.colour"], torch.eye(8))
    assert state["backbone.mapper.2.weight"].abs().max() > 0
    # Before phase II there is nothing that a reader could be measured on.
    assert (state["backbone.identity_reader.weight"] == 0).all()
    assert set(losses(tmp_path / "s1")) == {"train/g/image", "train/g/identity_l1", "train/g/landmarks"}
    fit("ifadit_s2", tiny_bundle, tmp_path / "s2", init_from=tmp_path / "s1/model", **start)
    after = checkpoint(tmp_path / "s2")["state_dict"]
    for name in ("principal.mean", "axes.colour"):
        assert torch.equal(after[f"backbone.{name}"], state[f"ema.{name}"])
    name = "backbone.flow.blocks.0.shift_second.0.weight"
    assert not torch.equal(after[name], state[name])
    for part in ("backbone", "ema"):
        assert after[f"{part}.identity_reader.weight"].abs().mean() > 1e-6
    # What is read has the length of the codes that the flow makes.
    assert after["ema.identity_reader.norm"] > 1
