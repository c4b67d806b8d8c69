"""A run that was interrupted in the middle of an epoch and resumed is the run that was not."""

import pytest
import torch
from stage_probes import checkpoint, fit, logged, losses

from faceanon.errors import RunError
from faceanon.files import load_tensors

TWO_EPOCHS = ("--trainer.max_epochs=2",)
EVERY_BATCH = {"class_path": "faceanon.training.checkpoints.RunCheckpoint", "init_args": {"every_n_batches": 1}}
RANDOM = ("--data.init_args.jitter.scale=0.1", "--data.init_args.jitter.shift=0.06", "--model.init_args.saved_noise=1")
ADVERSARY = "--model.init_args.weights.adversary=0.5"


# No GAN; anchor, adversary, jittered crops and noise. test_kill_resume.py has Ranger.
@pytest.mark.parametrize("config", ["pixels_s1", "pixels_s2"])
def test_resume_after_an_interrupt(tiny_bundle, tmp_path, config):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    more = TWO_EPOCHS
    if config == "pixels_s2":
        fit("pixels_s1", tiny_bundle, tmp_path / "first")
        more = (*TWO_EPOCHS, *RANDOM, ADVERSARY, f"--model.init_args.init_from={tmp_path / 'first' / 'model'}")
    fit(config, tiny_bundle, whole, more=more)
    stop = {"class_path": "stage_probes.Interrupt", "init_args": {"epoch": 1, "batch": 2}}
    with pytest.raises(RunError):
        fit(config, tiny_bundle, broken, EVERY_BATCH, stop, more=more)
    assert not (broken / "model").exists()
    before = checkpoint(broken)["state_dict"]
    assert len(losses(broken)["train/g/perceptual"]) == 6
    fit(config, tiny_bundle, broken, EVERY_BATCH, more=(*more, "--ckpt_path=last"))

    assert logged(broken) == logged(whole)
    assert len(losses(broken)["train/g/perceptual"]) == 8
    states = [checkpoint(folder)["state_dict"] for folder in (whole, broken)]
    assert states[0].keys() == states[1].keys()
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []
    models = [load_tensors(folder / "model/weights.safetensors") for folder in (whole, broken)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert any(not torch.equal(states[0][name], value) for name, value in before.items())
