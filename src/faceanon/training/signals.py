"""Ctrl-C and SIGTERM: save after the batch at hand, then leave; a second one leaves at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch.distributed as dist

from faceanon.errors import RunError
from faceanon.training.checkpoints import RunCheckpoint
from faceanon.training.failures import last_checkpoint

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KEY = "faceanon/stop"


class StoppedError(RunError):
    """A signal ended the run; the code is 128 + its number, as shells count.

    Args:
        number: Of the signal.
        what: What happened.
        saved: Whether every process saved and left at the same batch.
        advice: The rest of the line: how to go on from there.

    Attributes:
        happened: The line without the advice, for whoever has another one.
    """

    def __init__(self, number: int, what: str, saved: bool = False, advice: str = "") -> None:
        if number == signal.SIGINT:
            name = "Ctrl-C"
        else:
            name = signal.Signals(number).name
        self.happened = f"stopped by {name}{what}"
        super().__init__(self.happened + advice, 128 + number)
        self.saved = saved


class GracefulStop(L.Callback):
    """Saves a checkpoint after the batch in which Ctrl-C or SIGTERM came, and leaves before the next one.

    It saves where `RunCheckpoint` does: between two batches, or at the end of the epoch where that or a validation is
    what follows. Several processes agree on the batch through the store that they met in, without a collective: the
    one that was told writes the number of the next batch, which no other can finish before it has read that, since
    gradients wait for all. What arrives during validation waits for its end; a second signal never waits.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.last: int | None = None
        self.saved: Path | None = None
        self.before: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Listen; Lightning's own answer to SIGTERM saves nothing and leaves with 0 in some places."""
        self.received = self.last = self.saved = None
        if threading.current_thread() is threading.main_thread():
            self.trainer = trainer
            self.before = {number: signal.signal(number, self._receive) for number in SIGNALS}

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            path = self.saved or last_checkpoint(self.trainer)
            raise StoppedError(number, f" a second time, at once{_saved(path)}", advice=_advice(path))
        self.received = number

    def on_train_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: Any,  # noqa: ANN401 - whatever a loader yields
        batch_idx: int,
    ) -> None:
        """Leave, once the batch before is saved and logged.

        Raises:
            StoppedError: A signal came, and this is the batch after it.
        """
        done = int(trainer.fit_loop.total_batch_idx)
        # The signal came in or after the last batch of an epoch, at whose end `RunCheckpoint` saves. One process leaves
        # here; several agree on a batch first, after the next one.
        at_an_epochs_end = batch_idx == 0 and self.received is not None and trainer.world_size == 1
        if not at_an_epochs_end and (self.last is None or done < self.last):
            return
        if self.saved is None and batch_idx > 0 and _checkpoints(trainer):
            # A validation came between: after this batch, then.
            return
        # At an epoch's end `RunCheckpoint` has saved.
        path = self.saved or last_checkpoint(trainer)
        what = f" after batch {done}{_saved(path)}"
        raise StoppedError(self.received or signal.SIGTERM, what, saved=True, advice=_advice(path))

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,  # noqa: ANN401
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """Save, if this is the batch to stop after."""
        done = int(trainer.fit_loop.total_batch_idx) + 1
        self.last = _agreed(self.last, done, self.received is not None, trainer.world_size > 1)
        if self.saved is None and self.last is not None and done >= self.last:
            for callback in _checkpoints(trainer):
                if callback.between(trainer, batch_idx):
                    self.saved = callback.save(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Put the signal handlers back: after the training nothing is left to save."""
        self._restore()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """As `on_train_end`; while the rest is put away a further signal ends the process at once."""
        self._restore()

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}


@contextlib.contextmanager
def leave_on_sigterm() -> Iterator[None]:
    """Outside the loop of a training SIGTERM ends the process in order, as Ctrl-C does: nothing is to be saved.

    Raises:
        StoppedError: SIGTERM or Ctrl-C came; also for a `KeyboardInterrupt`, and what Lightning makes of it.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        if main:
            signal.signal(signal.SIGTERM, _leave)
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt):
            raise StoppedError(signal.SIGINT, "; nothing was saved that was not saved before") from error
        raise
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> None:
    raise StoppedError(number, "; nothing was saved that was not saved before")


def _saved(path: Path | None) -> str:
    return "" if path is None else f", saved as {path}"


def _advice(path: Path | None) -> str:
    if path is None:
        return "; there is no checkpoint yet, start again"
    return "; resume with the same command and --ckpt_path last"


def _checkpoints(trainer: L.Trainer) -> list[RunCheckpoint]:
    callbacks = []
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, RunCheckpoint):
            callbacks.append(callback)
    return callbacks


def _agreed(last: int | None, done: int, told: bool, several: bool) -> int | None:
    """Number of batches to stop after, or None; with several processes the one that is told first says which."""
    if last is not None:
        return last
    if not (several and dist.is_available() and dist.is_initialized()):
        if told:
            return done
        return None
    store = dist.distributed_c10d._get_default_store()
    if told:
        # Where another process was told first, this gives back that one's number.
        return int(store.compare_set(_KEY, "", str(done + 1)))
    if store.check([_KEY]):
        return int(store.get(_KEY))
    return None
