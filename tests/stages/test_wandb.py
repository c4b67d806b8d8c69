"""W&B without a network: the same terms and sheets as in the files."""

import json

import pytest
from stage_probes import fit

pytestmark = pytest.mark.slow


def test_offline_run_holds_terms_and_sheets(tiny_bundle, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logger = {
        "class_path": "lightning.pytorch.loggers.WandbLogger",
        "init_args": {"offline": True, "save_dir": str(tmp_path), "project": "faceanon-tests"},
    }
    more = (f"--trainer.logger={json.dumps(logger)}", "--trainer.max_epochs=1", "--trainer.limit_train_batches=2")
    try:
        cli = fit("dbaf_keyed_s2", tiny_bundle, tmp_path, more=more, samples_every=2)
        summary = dict(cli.trainer.logger.experiment.summary)
    finally:
        wandb.finish()
    assert {"train/g/recovery", "train/g/anchor", "val_psnr_recovered", "samples"} <= set(summary)
    assert list(tmp_path.rglob("offline-run-*/run-*.wandb"))
    assert list(tmp_path.rglob("media/images/samples_*.png"))
