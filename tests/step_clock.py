"""A Lightning callback that prints what every training batch costs; notebook/ffhq256.md was made with it.

PYTHONPATH=tests faceanon fit ... --trainer.callbacks=step_clock.StepClock
"""

import resource
import time

import lightning as L
from lightning.pytorch.callbacks import Callback

from faceanon.types import FaceBatch


class StepClock(Callback):
    """Wall time and CPU time of every batch, and the process's largest memory so far."""

    def __init__(self) -> None:
        self._start = (time.monotonic(), time.process_time())

    def on_train_batch_start(self, trainer: L.Trainer, stage: L.LightningModule, batch: FaceBatch, index: int) -> None:
        """Start the clocks."""
        if index == 0:
            print(f"before the first step: {_peak()}, {time.process_time():.1f} s of CPU", flush=True)
        self._start = (time.monotonic(), time.process_time())

    def on_train_batch_end(
        self, trainer: L.Trainer, stage: L.LightningModule, outputs: object, batch: FaceBatch, index: int
    ) -> None:
        """Print."""
        wall, cpu = (now - then for now, then in zip((time.monotonic(), time.process_time()), self._start, strict=True))
        terms = {name: f"{float(value):.4g}" for name, value in sorted(trainer.callback_metrics.items())}
        print(f"step {index}, batch of {len(batch)}: {wall:.1f} s, {cpu:.1f} s of CPU, {_peak()}; {terms}", flush=True)


def _peak() -> str:
    return f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"
