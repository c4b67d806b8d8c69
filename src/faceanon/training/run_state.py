"""What a checkpoint lacks so that a resumed run is the run that was not interrupted: random numbers and logs."""

from __future__ import annotations

import random
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.loggers import WandbLogger
from torch import Tensor

from faceanon.compat import epoch_is_over, logged_now, steps_logged, writes_logs
from faceanon.errors import UserError
from faceanon.training.csv_logger import CSVLogger

KEY = "run_state"


def random_state() -> dict[str, Any]:
    """State of the random numbers of Python, NumPy and torch in this process, as plain values and tensors."""
    name, keys, *rest = np.random.get_state(legacy=True)
    state = {
        "python": random.getstate(),
        # As a tensor: `torch.load(weights_only=True)` takes no arrays of NumPy.
        "numpy": (str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *map(float, rest)),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Set all random generators back to what `random_state` gave."""
    version, words, spare = state["python"]
    random.setstate((version, tuple(words), spare))
    name, keys, position, has_spare, spare = state["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), int(position), int(has_spare), spare))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())


class RunState(L.Callback):
    """Adds to every checkpoint, and restores: random numbers of every process, the length of the log, W&B's run.

    `faceanon fit` installs it. Rows of `metrics.csv` that were written after the checkpoint are dropped when a run
    resumes from it.
    """

    def __init__(self) -> None:
        # Whether what was logged last has not reached the loggers yet.
        self._unlogged = False
        self._loaded: dict[str, Any] | None = None
        self._step = 0  # where the run resumes
        self._epoch_was_over = False

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, idx: int) -> None:
        """Lightning has passed the row of the batch before on to the loggers."""
        self._unlogged = False

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Lightning has passed on the last row of training by the time that validation starts."""
        self._unlogged = False

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: object, batch: object, idx: int
    ) -> None:
        """Lightning passes this batch's row on after all callbacks: a checkpoint of now has to hold it."""
        self._unlogged = True

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """As `on_train_batch_end`, for figures of the epoch."""
        self._unlogged = True

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Lightning has passed on all rows by the end of training."""
        self._unlogged = False

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add what is needed to resume; every process takes part."""
        states: list[Any] = [random_state()]
        if trainer.world_size > 1:
            # Random numbers differ between processes, and only process 0 writes the checkpoint.
            states = [None] * trainer.world_size
            torch.distributed.all_gather_object(states, random_state())
        row, step = self._row(trainer)
        # The other processes have dummies in place of files.
        loggers = trainer.loggers if trainer.is_global_zero else []
        csv = []
        for logger in loggers:
            if isinstance(logger, CSVLogger):
                csv.append(logger.saved_rows())
        wandb = []
        for logger in loggers:
            if isinstance(logger, WandbLogger):
                wandb.append(str(logger.version))
        checkpoint[KEY] = {"random": states, "csv_rows": csv, "wandb": wandb, "row": row, "step": step}

    def _row(self, trainer: L.Trainer) -> tuple[dict[str, float], int]:
        """The row that Lightning is about to log, and its step; empty where it has logged all."""
        epoch_over = epoch_is_over(trainer)
        # Lightning logs the figures of an epoch at the step of its last batch, one less than it has counted by then.
        step = steps_logged(trainer) - int(epoch_over)
        if not (self._unlogged and trainer.training and (epoch_over or writes_logs(trainer))):
            return {}, step
        logged = {}
        for name, value in logged_now(trainer).items():
            logged[name] = value.item() if isinstance(value, Tensor) else value
        if logged:
            return {"epoch": trainer.current_epoch, **logged}, step
        return {}, step

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep it until the fit starts; a checkpoint of an earlier version has none."""
        self._loaded = checkpoint.get(KEY)
        self._step = int(checkpoint.get("global_step", 0))
        self._epoch_was_over = close_epoch(checkpoint)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """After a checkpoint of an epoch's end this is a new epoch, which Lightning would take for the old one."""
        if self._epoch_was_over:
            trainer.fit_loop.epoch_loop.restarting = False
        self._epoch_was_over = False

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Let the CSV files be shortened, not deleted, before anything is logged.

        Raises:
            UserError: Processes resume from different steps: `last` was looked for on disks that are not shared.
        """
        first = trainer.strategy.broadcast(self._step)
        # All leave: none waits for another.
        if not trainer.strategy.reduce_boolean_decision(self._step == first):
            raise UserError(
                f"the processes resume from different steps (process {trainer.global_rank} from {self._step}, "
                f"process 0 from {first}): give all machines the same checkpoint, or one log folder that they share"
            )
        # Shortened, since rows after the checkpoint belong to batches that will be trained on again.
        if self._loaded is not None:
            loggers = []
            for logger in trainer.loggers:
                if isinstance(logger, CSVLogger):
                    loggers.append(logger)
            # Not strict: the resumed run may be configured with more loggers or fewer than the one that saved.
            for logger, rows in zip(loggers, self._loaded["csv_rows"], strict=False):
                logger.continue_after(rows)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the row that was open, and restore random numbers, after everything that is built at the start."""
        loaded = self._log_open_row(trainer)
        # With another number of processes the states fit nobody; the rows have streams of their own anyway.
        if loaded is not None and len(loaded["random"]) == trainer.world_size:
            restore_random_state(loaded["random"][trainer.global_rank])

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """A run that was over when it was resumed has had no start."""
        self._log_open_row(trainer)

    def _log_open_row(self, trainer: L.Trainer) -> dict[str, Any] | None:
        loaded = self._loaded
        self._loaded = None
        for logger in trainer.loggers:
            if isinstance(logger, CSVLogger) and loaded is not None and loaded["row"]:
                logger.log_metrics(loaded["row"], loaded["step"])
                logger.save()
        return loaded


def close_epoch(checkpoint: dict[str, Any]) -> bool:
    """Count an epoch whose batches are all done as completed, in a checkpoint of its end.

    Lightning saves that before it counts it, and where `max_steps` is set passes over the next epoch on resuming.

    Returns:
        Whether the checkpoint is of an epoch's end.
    """
    progress = checkpoint.get("loops", {}).get("fit_loop", {}).get("epoch_progress")
    if progress is None:
        return False
    now = progress["current"]
    over = now["ready"] == now["processed"] > 0
    if over:
        for part in progress.values():
            part["completed"] = part["processed"]
    return bool(over)
