"""The prior's training on a bundle that exists, and what it writes for the next one."""

import math
import shutil

import torch
from stage_probes import REPO, SAVE_LAST, logged

from bundles import NETWORKS
from faceanon.training.cli import run
from faceanon.weights.bundle import Bundle
from faceanon.weights.checksums import write_checksums


def test_four_steps_with_an_adversarial_half_become_a_bundle(tiny_bundle, tmp_path):
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    keys = {
        **{
            f"model.init_args.{role}.init_args": NETWORKS[role][1] for role in ("generator", "encoder", "discriminator")
        },
        "model.init_args.bundle": tiny_bundle,
        "data.init_args.batch_size": 8,
        "model.init_args.adversarial_from": 0.7,  # batch 3 of 4
        "model.init_args.export": bundle,
        "trainer.callbacks": [SAVE_LAST],
        "trainer.default_root_dir": tmp_path,
        "trainer.logger.init_args.save_dir": tmp_path,
        "trainer.log_every_n_steps": 1,
        "trainer.max_epochs": 1,
        "trainer.limit_train_batches": 4,
        "trainer.num_sanity_val_steps": 0,
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
    }
    words = [f"--{key}={value}" for key, value in keys.items()]
    stage = run(
        ["fit", "--config", str(REPO / "configs/paper/prior.yaml"), "--data", "stage_probes.BlobFaces", *words]
    ).model

    columns = logged(tmp_path)
    adversarial = [value for value in columns["train/g/adversarial"] if value is not None]
    assert len(adversarial) == 2
    assert len([value for value in columns["train/g/pixel"] if value is not None]) == 4
    assert all(math.isfinite(value) for column in columns.values() for value in column if value is not None)

    assert write_checksums(bundle) == []
    made = Bundle(bundle)
    for role, trained in (("generator", stage.ema.generator), ("encoder", stage.ema.encoder)):
        loaded, before = getattr(made, role)().state_dict(), getattr(Bundle(tiny_bundle), role)().state_dict()
        for name, value in trained.state_dict().items():
            torch.testing.assert_close(loaded[name], value, rtol=1e-3, atol=1e-7, msg=name)  # written as float16
        assert any(not torch.equal(loaded[name], value) for name, value in before.items()), role
    assert made.discriminator().state_dict().keys() == stage.discriminator.state_dict().keys()
    assert made.latent_avg.shape == (10, 16)
    assert made.fingerprint != Bundle(tiny_bundle).fingerprint
