"""Run a saved batch again: the same pictures, weights, random state and place in the training."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from faceanon.errors import UserError
from faceanon.files import sha256
from faceanon.training.guard import FORMAT, FiniteGuard, current_terms
from faceanon.training.run_state import restore_random_state
from faceanon.types import FaceBatch


class OutcomeError(Exception):
    """What came of a replay: the line to print, and whether the failure came again."""

    def __init__(self, line: str, again: bool) -> None:
        super().__init__(line)
        self.again = again


class OneBatch(L.LightningDataModule):
    """The saved batch as the only one of an epoch.

    Args:
        file: What `FiniteGuard` saved.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.content = read(file)

    def train_dataloader(self) -> DataLoader[Any]:
        """One item, which is the batch as the stage gets it."""
        stored = self.content["batch"]
        names = {field.name for field in fields(FaceBatch)}
        if isinstance(stored, dict) and stored.keys() == names:
            batch = FaceBatch(**stored)
        else:
            batch = stored
        # The item is a whole batch already.
        return DataLoader([batch], batch_size=None)  # type: ignore[arg-type]


class Replay(FiniteGuard):
    """Puts weights, random state and counters where the failure found them, and reports the step; trains nothing.

    Args:
        file: What `FiniteGuard` saved.
    """

    def __init__(self, file: Path) -> None:
        self.content = read(file)
        self.progress = self.content["progress"]

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """What a stage would measure on its data is in the saved weights; the rest it takes as from a checkpoint."""
        pl_module.initialised = True  # type: ignore[assignment]
        pl_module.on_load_checkpoint(self.content["extra"])

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Load; learning rates of 0, since a discriminator may take its step before the one that failed."""
        # Not strict: the guard saves no averaged weights, which a step does not read.
        missing, surplus = pl_module.load_state_dict(self.content["state"], strict=False)
        trained = []
        for name in missing:
            if not name.startswith("ema."):
                trained.append(name)
        wrong = trained + list(surplus)
        if wrong:
            raise UserError(f"the saved batch is of another model: {wrong[0]} does not fit; give its own --config")
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                # `base_lr` too: a stage computes the rate of every step from it.
                group["lr"] = group["base_lr"] = 0.0
        # Seeds, R1's turn and the scheduled learning rate follow from the batch's number and how many are planned.
        trainer.fit_loop.epoch_loop.batch_progress.total.ready = self.progress["number"]
        trainer.fit_loop.max_batches = self.progress["batches_an_epoch"]
        seeded = pl_module.on_train_batch_start

        # A stage seeds when a batch starts; what the failure began with takes the place of that.
        def then_restore(batch: Any, batch_idx: int) -> None:  # noqa: ANN401 - whatever a loader yields
            seeded(batch, batch_idx)
            restore_random_state(self.content["random"])

        pl_module.on_train_batch_start = then_restore  # type: ignore[method-assign]
        # A stage that draws by its place among all processes.
        if (rank_and_rows := self.progress["place"]) is not None:
            pl_module.parallel.place = lambda rows: rank_and_rows  # type: ignore[union-attr]

    def fail(self, trainer: L.Trainer, module: L.LightningModule, optimizer: Optimizer, what: str) -> None:
        """Stop because the failure came again.

        Raises:
            OutcomeError: Always; names what failed and the values of the terms.
        """
        raise OutcomeError(f"the failure came again: {what}; {_table(module)}", again=True)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,  # noqa: ANN401
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """It did not, and nothing after this batch is of interest."""
        raise OutcomeError(f"every loss and gradient was finite this time: {_table(pl_module)}", again=False)


def read(file: Path) -> dict[str, Any]:
    """The content of a saved batch; no code in it is run.

    Raises:
        UserError: Missing, damaged, or another file.
    """
    try:
        content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        if content["format"] == FORMAT:
            return content
    except FileNotFoundError:
        raise UserError(f"there is no {file}; give what a failed training saved under failures/") from None
    except Exception as error:  # rubbish makes the unpickler raise whatever it stumbles over
        raise UserError(f"{file} is damaged or no saved batch; give what a training saved under failures/") from error
    raise UserError(f"{file} is no saved batch of this version; give what a training saved under failures/")


def arguments(file: Path, scratch: Path, config: Path | None = None) -> list[str]:
    """Words behind `faceanon` that run the batch again.

    Args:
        file: The saved batch.
        scratch: Folder for what Lightning writes.
        config: The training's configuration; by default the one that the file points to.

    Raises:
        UserError: The configuration is not there, or has changed since.
    """
    content = read(file)
    if config is None:
        if content["config"] is None:
            raise UserError(f"{file} knows of no configuration; give --config")
        config = file.parent / content["config"]
        if not config.is_file():
            raise UserError(f"{file} points to {config}, which is not there; give --config")
        if sha256(config) != content["config_sha256"]:
            raise UserError(f"{config} has changed since the batch was saved; give the right one with --config")
    callback = json.dumps([{"class_path": "faceanon.training.replay.Replay", "init_args": {"file": str(file)}}])
    once = {"limit_train_batches": 1, "limit_val_batches": 0, "num_sanity_val_steps": 0}
    # One process, also for a batch of a training on several: `on_train_start` says whose rows it draws.
    alone = {"devices": 1, "num_nodes": 1, "strategy": "auto", "logger": "false", "enable_progress_bar": "false"}
    trainer = {**once, **alone, "callbacks": callback, "default_root_dir": scratch}
    overrides = []
    for name, value in trainer.items():
        overrides.append(f"--trainer.{name}={value}")
    return [
        *("fit", "--config", str(config), "--data", "faceanon.training.replay.OneBatch"),
        *("--data.init_args.file", str(file), "--ckpt_path=null"),
        *overrides,
    ]


def _table(module: L.LightningModule) -> str:
    return ", ".join(f"{name} {float(value):.6g}" for name, value in current_terms(module).items())
