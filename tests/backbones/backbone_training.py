"""Two batches of `faceanon fit` on the tiny bundle, and what they changed."""

import json
from pathlib import Path
from unittest.mock import patch

import lightning as L
import torch

from faceanon.backbones.linear_person import LinearPerson
from faceanon.training.cli import run
from stages.stage_probes import stage_config


class Watch(L.Callback):
    """Compares the backbone's parameters after training with those before, and keeps the names of the logged terms."""

    changed: set[str]
    terms: set[str]

    def on_fit_start(self, trainer, pl_module):
        self.before = {name: item.detach().clone() for name, item in pl_module.backbone.named_parameters()}

    def on_fit_end(self, trainer, pl_module):
        after = dict(pl_module.backbone.named_parameters())
        assert all(item.isfinite().all() for item in after.values())
        Watch.changed = {name.split(".")[0] for name in after if not torch.equal(after[name], self.before[name])}
        Watch.terms = {name.rsplit("/", 1)[1] for name in trainer.logged_metrics if name.startswith("train/g/")}


def trained_parts(config, bundle, out, *words):
    """Parts of the backbone that two batches of a stage change, and the names of its terms."""
    keys = {
        "model.init_args.backbone.init_args.bundle": bundle,
        "model.init_args.export": Path(out, "model"),
        "model.init_args.samples_every": 0,
        "data": "stages.stage_probes.BlobFaces",
        "data.init_args.groups": 4,
        "data.init_args.batch_size": 8,
        "trainer.callbacks": json.dumps([{"class_path": "backbone_training.Watch"}]),
        "trainer.max_epochs": 1,
        "trainer.logger": "false",
        "trainer.enable_checkpointing": "false",
        "trainer.default_root_dir": out,
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
        "trainer.log_every_n_steps": 1,
    }
    # Readers of persons are measured on few strangers: on tiny networks nothing hangs on their number.
    with patch.object(LinearPerson, "reader_rows", 40):
        run(["fit", "--config", str(stage_config(config)), *(f"--{k}={v}" for k, v in keys.items()), *words])
    assert {path.name for path in Path(out, "model").iterdir()} == {"model.yaml", "weights.safetensors"}
    return Watch.changed, Watch.terms
