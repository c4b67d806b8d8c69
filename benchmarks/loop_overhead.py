"""What Lightning and data loading add to training: three loops, in turns, in one process.

    python benchmarks/loop_overhead.py --config configs/dbaf_s2.yaml --init-from runs/dbaf_s1/model

Batches are trained in blocks, in turns: by Lightning as configured (logger, progress bar, callbacks), by a bare loop
that makes the same calls on a copy of everything, and by a bare loop whose batches were made beforehand. Every block of
a loop goes on where its last one ended. At the end the copies' weights must be Lightning's, bit for bit: that is what
makes the calls the same. Ratios are medians over rounds, of processor time (all threads) and of wall time. Further
arguments go to the trainer, such as --trainer.accelerator=gpu.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import yaml
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningCLI

from faceanon.data.streams import stream
from faceanon.stages.backbone_stage import BackboneStage
from faceanon.types import FaceBatch

LOOPS = ("lightning", "bare", "cached")


class PlainOptimizer:
    """Stands where Lightning's wrapper does: clip, then step."""

    def __init__(self, optimizer: torch.optim.Optimizer, clip: float) -> None:
        self.optimizer, self.clip = optimizer, clip

    def zero_grad(self) -> None:
        """As the optimizer's."""
        self.optimizer.zero_grad()

    def step(self) -> None:
        """Clip as the stage does, then step."""
        if self.clip:
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)
        self.optimizer.step()


class Stub:
    """A trainer that counts its own batches, and is the real one for all other questions."""

    def __init__(self, trainer: Trainer) -> None:
        self.real, self.fit_loop = trainer, SimpleNamespace(total_batch_idx=0)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.real, name)


class BareLoop:
    """A copy of a stage, trained without Lightning.

    Args:
        stage: In a trainer that is about to begin.
        batches: Batches on the stage's device.
        every: Batches between two at which the terms are read, as the trainer's `log_every_n_steps`.
    """

    def __init__(self, stage: BackboneStage[Any], batches: Iterator[FaceBatch], every: int) -> None:
        trainer, stage._trainer = stage.trainer, None
        shared = [stage.bundle, trainer, *trainer.callbacks, trainer.datamodule]  # type: ignore[attr-defined]
        self.stage = deepcopy(stage, {id(item): item for item in shared})
        stage._trainer = trainer
        stub = Stub(trainer)
        optimizers: list[Any] = [PlainOptimizer(o, stage.gradient_clip) for o in self.stage.configure_optimizers()]
        self.done, self.batches, self.every, self.terms = stub.fit_loop, batches, every, dict[str, float]()
        mixed = {"bf16-mixed": torch.bfloat16}.get(str(trainer.precision))
        self.device = stage.device.type
        # As Lightning: without a cache every use of a weight has a cast of its own, whose gradients round on their own.
        self.precision = (
            (lambda: torch.autocast(self.device, mixed, cache_enabled=False)) if mixed is not None else nullcontext
        )
        self.stage.__dict__ |= {
            "_trainer": stub,
            "optimizers": lambda: optimizers,
            "toggled_optimizer": nullcontext,
            "manual_backward": lambda loss: loss.backward(),
            "log_dict": self._read,
        }

    def _read(self, terms: Mapping[str, torch.Tensor], **_: object) -> None:
        if (self.done.total_batch_idx + 1) % self.every == 0:
            self.terms |= {name: value.item() for name, value in terms.items()}

    def train(self, count: int) -> None:
        """So many batches."""
        for _ in range(count):
            batch = next(self.batches)
            self.stage.on_train_batch_start(batch, 0)
            with self.precision():
                self.stage.training_step(batch, 0)
            self.done.total_batch_idx += 1


def real_batches(data: Any, device: torch.device) -> Iterator[FaceBatch]:  # noqa: ANN401 - any datamodule of ours
    """What Lightning would feed: epoch after epoch off the loader, jittered."""
    number, epoch = 0, 0
    while True:
        loader = data.train_dataloader()
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            batch = batch.to(device)
            if data.jitter:
                batch = data.jitter(batch, stream("jitter", data.seed, 0, number), data.jitter_group)
            yield batch
            number += 1
        epoch += 1


class Turns(Callback):
    """Runs the bare loops between blocks of Lightning's batches and keeps the times.

    Args:
        data: The datamodule.
        block: Batches in a block.
        rounds: Blocks of each loop, after one to warm up.
    """

    def __init__(self, data: LightningDataModule, block: int, rounds: int) -> None:
        self.data, self.block, self.rounds = data, block, rounds
        self.spent: dict[str, list[tuple[float, float]]] = {name: [] for name in LOOPS}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Copy the stage, and make the cached loop's batches."""
        assert isinstance(pl_module, BackboneStage)
        count, every = self.block * (self.rounds + 1), trainer.log_every_n_steps  # type: ignore[attr-defined]
        source = real_batches(self.data, pl_module.device)
        ready = iter([next(source) for _ in range(count)])
        fresh = real_batches(self.data, pl_module.device)
        self.loops = {"bare": BareLoop(pl_module, fresh, every), "cached": BareLoop(pl_module, ready, every)}
        self._begin()

    def _begin(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.start = time.process_time(), time.perf_counter()

    def _end(self, name: str) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.spent[name].append((time.process_time() - self.start[0], time.perf_counter() - self.start[1]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: FaceBatch, batch_idx: int
    ) -> None:
        """At the end of a block, the other loops' turn; what Lightning does afterwards counts in its next block."""
        done = trainer.fit_loop.total_batch_idx + 1
        if done % self.block:
            return
        self._end("lightning")
        for name in ("bare", "cached") if done // self.block % 2 else ("cached", "bare"):
            self._begin()
            self.loops[name].train(self.block)
            self._end(name)
        if done == self.block * (self.rounds + 1):
            self._compare(pl_module)
            trainer.should_stop = True
        self._begin()

    def _compare(self, stage: LightningModule) -> None:
        for name, loop in self.loops.items():
            theirs = loop.stage.state_dict()
            other = [key for key, value in stage.state_dict().items() if not torch.equal(value, theirs[key])]
            if other:
                raise SystemExit(f"the {name} loop made other calls: {len(other)} tensors differ, e.g. {other[0]}")
        print("weights and averages of the three loops are equal, bit for bit")

    def ratio(self, above: str, below: str, clock: int) -> float:
        """Median over the rounds, of processor time (0) or wall time (1); the first round warms up."""
        pairs = zip(self.spent[above][1:], self.spent[below][1:], strict=True)
        return statistics.median(a[clock] / b[clock] for a, b in pairs)


def resolved_config(words: list[str]) -> str:
    """What `faceanon fit` makes of options, as a config that Lightning's own command line reads."""
    command = [sys.executable, "-m", "faceanon", "fit", *words, "--print_config"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    if printed.returncode:
        raise SystemExit(printed.stderr)
    whole = yaml.safe_load(printed.stdout)
    parts = {}
    for name in ("seed_everything", "model", "data", "trainer"):
        parts[name] = whole[name]
    return yaml.safe_dump(parts)


def measure(args: argparse.Namespace, folder: str) -> Turns:
    """Train as configured, with the other loops in between."""
    torch.set_num_threads(args.threads)
    words = [f"--config={args.config}", f"--trainer.default_root_dir={folder}", "--model.init_args.samples_every=0"]
    words += ["--model.init_args.export=null", f"--trainer.logger.init_args.save_dir={folder}"]
    words += ["--trainer.limit_val_batches=0", f"--data.init_args.train_batches={args.batches}"]
    words += [f"--data.init_args.batch_size={args.batch}", "--trainer.max_epochs=1000"]
    words += [] if args.init_from is None else [f"--model.init_args.init_from={args.init_from}"]
    resolved = Path(folder) / "resolved.yaml"
    resolved.write_text(resolved_config([*words, *args.more]), encoding="utf-8")
    cli = LightningCLI(
        LightningModule,
        LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        save_config_callback=None,
        run=False,
        args=[f"--config={resolved}"],
    )
    turns = Turns(cli.datamodule, args.block, args.rounds)
    cli.trainer.callbacks.append(turns)  # type: ignore[attr-defined]
    cli.trainer.fit(cli.model, cli.datamodule)
    return turns


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="of a stage, such as configs/dbaf_s2.yaml")
    parser.add_argument("--init-from", help="the stage before")
    parser.add_argument("--batches", type=int, default=10, help="batches of an epoch (default: 10)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--block", type=int, default=10, help="batches in a block (default: 10)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    args, more = parser.parse_known_args()
    args.more = more
    with tempfile.TemporaryDirectory() as folder:
        turns = measure(args, folder)
    print(f"{args.config}, batch {args.batch}, {args.threads} threads of {os.cpu_count()} cores, {args.rounds} rounds")
    for name in LOOPS:
        times = turns.spent[name][1:]
        cpu, wall = (statistics.median(t[clock] for t in times) / args.block * 1e3 for clock in (0, 1))
        print(f"{name:>10}: {cpu:8.1f} ms of processor time a batch, {wall:8.1f} ms of wall time")
    for above, below in (("lightning", "bare"), ("bare", "cached")):
        cpu, wall = (turns.ratio(above, below, clock) for clock in (0, 1))
        print(f"{above} / {below}: {cpu:.3f} (processor time), {wall:.3f} (wall time)")


if __name__ == "__main__":
    main()
