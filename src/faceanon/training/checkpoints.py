"""When a run saves, and how: often, atomically, with a hash, and always with the one before to fall back on."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path
from typing import Any

import lightning as L
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info

from faceanon.errors import UserError
from faceanon.training.checkpoint_file import (
    LAST,
    NEWEST,
    PREVIOUS,
    DamagedError,
    read_checkpoint,
    sync_folder,
    write_checkpoint,
)

EARLIER = ".earlier"
_ASK_EVERY = 20  # batches between two looks at the first process's clock, where there are several


class SafeCheckpointIO(CheckpointIO):
    """Writes checkpoints atomically with their hash, and compares on loading; loads tensors and plain values only."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Write a checkpoint atomically with its hash, see `training.checkpoint_file.write_checkpoint`."""
        write_checkpoint(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: object = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint, never by running what is in it, whatever `weights_only` says.

        Raises:
            UserError: It is missing or damaged.
        """
        try:
            return read_checkpoint(Path(path), map_location or "cpu")
        except FileNotFoundError as error:
            raise UserError(f"there is no {path}; give a .ckpt that an earlier run saved") from error
        except DamagedError as error:
            raise UserError(f"{error}; --ckpt_path last resumes from the one before") from error

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete the checkpoint at `path`; a missing one is no error."""
        _remove(Path(path))


class RunCheckpoint(Checkpoint):
    """Keeps the last two states of a run, `last.ckpt` and `previous.ckpt`, to resume from with `--ckpt_path last`.

    It saves at the end of every epoch, and in between after so many minutes or batches. `faceanon fit` installs it
    unless `trainer.enable_checkpointing` is false; a `ModelCheckpoint` beside it may keep the best.

    Args:
        minutes: Between two checkpoints inside an epoch; 0 saves at the ends of epochs alone.
        every_n_batches: Save after so many batches, besides.
        dirpath: Folder; by default `checkpoints` in the log folder.

    Raises:
        UserError: A number is negative.
    """

    def __init__(self, minutes: float = 10.0, every_n_batches: int = 0, dirpath: Path | None = None) -> None:
        if minutes < 0 or every_n_batches < 0:
            raise UserError(f"RunCheckpoint: minutes is {minutes}, every_n_batches {every_n_batches}; give 0 or more")
        self.minutes = minutes
        self.every_n_batches = every_n_batches
        self.dirpath = dirpath
        self._saved_at = time.monotonic()
        # Counts batches; -1 while nothing was saved.
        self._saved_after = -1

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Find the folder, the same on every process."""
        self.dirpath = Path(trainer.strategy.broadcast(self.dirpath or run_folder(trainer) / "checkpoints"))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set the clock; sweep halves that a kill left; put aside an earlier run that this one does not resume."""
        self._saved_at = time.monotonic()
        self._saved_after = int(trainer.fit_loop.total_batch_idx)
        if trainer.is_global_zero and self.dirpath is not None:
            # Names of temporary files of atomic writes.
            for half in self.dirpath.glob(".*.ckpt.*"):
                half.unlink(missing_ok=True)
        if trainer.ckpt_path is None and trainer.is_global_zero and not _trial(trainer):
            self._put_aside()

    def _put_aside(self) -> None:
        assert self.dirpath is not None
        older = []
        for name in (NEWEST, PREVIOUS, LAST):
            if (path := self.dirpath / name).exists():
                older.append(path)
        for path in older:
            _remove(aside := path.with_name(path.name + EARLIER))
            path.rename(aside)
        if older:
            rank_zero_info(f"{self.dirpath} holds an earlier run: its checkpoints are kept as *{EARLIER}")

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Save, if it is time and the epoch is not over, and `GracefulStop` has not saved just now."""
        saved = self._saved_after == trainer.fit_loop.total_batch_idx
        if not saved and self.between(trainer, batch_idx) and self._due(trainer):
            self.save(trainer)

    def between(self, trainer: L.Trainer, batch_idx: int) -> bool:
        """Whether nothing but the next batch follows; before a validation or an epoch's end none would be exact."""
        done = batch_idx + 1
        all_done = int(trainer.fit_loop.total_batch_idx) + 1
        # Half-summed gradients are in no checkpoint.
        if done >= trainer.num_training_batches or done % trainer.accumulate_grad_batches:
            return False
        every = getattr(trainer, "val_check_batch", None) or math.inf
        # With None Lightning counts the batches between two validations across epochs.
        if trainer.check_val_every_n_epoch is None:
            seen = all_done
        else:
            seen = done
        return seen % every != 0 or not trainer.enable_validation

    def _due(self, trainer: L.Trainer) -> bool:
        """Whether it is time, or the run is about to stop in the middle of an epoch; every process says the same."""
        done = int(trainer.fit_loop.total_batch_idx) + 1
        every = self.every_n_batches
        saved = self._saved_after + 1
        if every and done // every > saved // every:  # also where validation was in the way at the very batch
            return True
        if _stops(trainer):
            return True
        # Clocks of processes differ, so the first one decides; asking costs a message, so it is not asked every time.
        if not self.minutes or (trainer.world_size > 1 and done % _ASK_EVERY):
            return False
        return bool(trainer.strategy.broadcast(time.monotonic() - self._saved_at >= 60 * self.minutes))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save, unless the run stops in the middle of the epoch, where it has saved already."""
        if not _inside(trainer):
            self.save(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save where the run is about to stop in the middle of an epoch: before the validation it could not."""
        if trainer.state.fn == "fit" and _inside(trainer) and _stops(trainer):
            self.save(trainer)

    def save(self, trainer: L.Trainer) -> Path | None:
        """Save now; what was `last.ckpt` becomes `previous.ckpt`. Every process calls it, at the same batch.

        At any moment two of the files are whole, once two have been saved.

        Returns:
            `last.ckpt`; None in a trial run, which keeps nothing.
        """
        if _trial(trainer):
            return None
        assert self.dirpath is not None
        new = self.dirpath / NEWEST
        last = self.dirpath / LAST
        previous = self.dirpath / PREVIOUS
        # False keeps optimizers and loops in the file; it says nothing of how the file is read.
        trainer.save_checkpoint(new, weights_only=False)
        if trainer.is_global_zero:
            if last.exists():
                # First: were a kill to come between the two, `previous` and `new` are both whole.
                _replace(last, previous)
            _replace(new, last)
            sync_folder(self.dirpath)
        self._saved_at = time.monotonic()
        self._saved_after = int(trainer.fit_loop.total_batch_idx)
        return last


def run_folder(trainer: L.Trainer) -> Path:
    """Folder of a run: its first logger's, else the trainer's."""
    if not trainer.loggers:
        return Path(trainer.default_root_dir)
    logger: Logger = trainer.loggers[0]
    if isinstance(logger.version, str):
        version = logger.version
    else:
        version = f"version_{logger.version}"
    return Path(logger.save_dir or trainer.default_root_dir) / str(logger.name) / version


def _inside(trainer: L.Trainer) -> bool:
    """Whether the epoch has batches left."""
    return bool(trainer.fit_loop.batch_idx + 1 < trainer.num_training_batches)


def _stops(trainer: L.Trainer) -> bool:
    return bool(trainer.should_stop or 0 < trainer.max_steps <= trainer.global_step)


def _trial(trainer: L.Trainer) -> bool:
    return bool(getattr(trainer, "fast_dev_run", False)) or trainer.sanity_checking


def _replace(source: Path, target: Path) -> None:
    # A sharded checkpoint, which no rename replaces.
    if target.is_dir():
        shutil.rmtree(target)
    source.replace(target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
