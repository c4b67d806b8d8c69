"""What does it save a training step on photographs that latents, meshes and embeddings were prepared beforehand?

  python benchmarks/prepared_speed.py configs/dbaf_s1.yaml --batches 40
  python benchmarks/prepared_speed.py configs/dbaf_s2.yaml --batches 40 --more --model.init_args.init_from=MODEL

One training by `faceanon fit`, on one thread. Every second batch comes as a picture alone. For it the stage runs codec,
mesh and recogniser, and sees pictures where it would have compared latents: the same losses, written plainly. Printed
are medians of the processor's time for a step of either kind, without the first ones and without those of R1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import lightning as L
import torch

from faceanon.data.prepared import PreparedFaces
from faceanon.training.cli import run
from faceanon.types import FaceBatch

FIRST = 4  # batches that do not count: much is built when it is first needed
R1 = 16  # batches between two of R1, which costs several steps


class Alternating(PreparedFaces):
    """Photographs of which every second batch has lost what was prepared."""

    sent = 0

    def on_after_batch_transfer(self, batch: FaceBatch, dataloader_idx: int) -> FaceBatch:
        """Leave the picture alone of every second batch."""
        batch = super().on_after_batch_transfer(batch, dataloader_idx)
        if not self.trainer or not self.trainer.training:
            return batch
        self.sent += 1
        if self.sent % 2:
            return batch
        return replace(batch, latents=None, mesh=None, embedding=None)


class Clock(L.Callback):
    """Processor time of every step, by whether its batch was prepared."""

    seconds: dict[str, list[float]] = {"prepared": [], "plain": []}  # noqa: RUF012 - one run a process
    begun = 0.0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Look at the clock."""
        self.begun = time.process_time()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: object, batch: FaceBatch, batch_idx: int
    ) -> None:
        """Count the step."""
        if batch_idx >= FIRST and batch_idx % R1:
            kind = "plain" if batch.latents is None else "prepared"
            self.seconds[kind].append(time.process_time() - self.begun)


def main() -> None:
    """Train, and print what a step of either kind costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="of a stage on photographs")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--export", help="folder for the trained model, to start a stage 2 from")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="further words of `faceanon fit`")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        keys = {
            "data.class_path": f"{__name__}.Alternating",
            "trainer.callbacks": json.dumps([{"class_path": f"{__name__}.Clock"}]),
            "trainer.default_root_dir": folder,
            "trainer.logger": "false",
            "trainer.enable_progress_bar": "false",
            "trainer.limit_train_batches": options.batches,
            "trainer.limit_val_batches": 0,
            "trainer.max_epochs": 1,
            "model.init_args.export": options.export or "null",
            "model.init_args.samples_every": 0,
        }
        words = ["fit", "--config", options.config, *options.more]
        # Before what is set here: --data.class_path would else forget the arguments of the config's own class.
        run([*words, *(f"--{name}={value}" for name, value in keys.items())])
    prepared = statistics.median(Clock.seconds["prepared"])
    plain = statistics.median(Clock.seconds["plain"])
    print(f"{Path(options.config).name}: {prepared:.3f} s prepared, {plain:.3f} s plain, {plain / prepared:.2f} times")


if __name__ == "__main__":
    main()
