"""A run that was interrupted and resumed is the run that was not."""

from pathlib import Path

import pytest
import torch
from stage_probes import checkpoint, fit, losses

from faceanon.weights.files import load_tensors

TWO_EPOCHS = ("--trainer.max_epochs=2",)
RANDOM = ("--data.init_args.jitter.scale=0.1", "--data.init_args.jitter.shift=0.06", "--model.init_args.saved_noise=1")


@pytest.mark.filterwarnings("ignore:The dirpath has changed")  # the resumed run writes elsewhere, to compare
# Adam, no GAN; Ranger, GAN; anchor, jittered crops and noise
@pytest.mark.parametrize("config", ["dbaf_keyed_s1", "dbaf_s2", "dbaf_keyed_s2"])
def test_resume_after_an_interrupt(tiny_bundle, tmp_path, config):
    whole, broken, resumed = tmp_path / "whole", tmp_path / "broken", tmp_path / "resumed"
    more = TWO_EPOCHS
    if config == "dbaf_keyed_s2":
        fit("dbaf_keyed_s1", tiny_bundle, tmp_path / "first")
        more = (*TWO_EPOCHS, *RANDOM, f"--model.init_args.init_from={tmp_path / 'first' / 'model'}")
    fit(config, tiny_bundle, whole, more=more)
    stop = {"class_path": "stage_probes.Interrupt", "init_args": {"epoch": 1, "batch": 2}}
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(config, tiny_bundle, broken, stop, more=more)
    assert not (broken / "model").exists()
    (last,) = Path(broken).rglob("last.ckpt")
    fit(config, tiny_bundle, resumed, more=(*more, f"--ckpt_path={last}"))

    expected, found = losses(whole), losses(resumed)
    assert expected.keys() >= found.keys()
    assert len(found["train/g/perceptual"]) == 4
    for name, values in found.items():
        assert values == expected[name][-len(values) :], name
    states = [checkpoint(folder)["state_dict"] for folder in (whole, resumed)]
    assert states[0].keys() == states[1].keys()
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []
    models = [load_tensors(folder / "model/weights.safetensors") for folder in (whole, resumed)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert any(not torch.equal(states[0][name], value) for name, value in checkpoint(broken)["state_dict"].items())
