"""A training that stops at the first loss or gradient that is no number, and keeps what shows why."""

from __future__ import annotations

import io
import math
import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from faceanon import __version__
from faceanon.compat import norms_of_all
from faceanon.errors import RunError, UserError
from faceanon.files import sha256, write_atomic
from faceanon.training.checkpoints import run_folder
from faceanon.training.failures import last_checkpoint
from faceanon.training.run_state import random_state, restore_random_state

FORMAT = "faceanon-batch-1"
FOLDER = "failures"
_MOST_NAMED = 3


class FiniteGuard(L.Callback):
    """Stops before an optimizer takes a step on a loss or a gradient that is not finite.

    One number is looked at each step: the loss plus the norm of every gradient, which is not finite where any of them
    is not. Only then are the terms and gradients asked one by one. Nothing was stepped, so weights stay good. With
    several processes gradients are summed before they are looked at: all stop, each with a file of its own.

    The file, `failures/batch_<number>_rank<rank>.pt` in the log folder, holds the batch (training faces, in clear),
    the random state, the weights without their moving average, and where the configuration lies. It reads with
    `torch.load(..., weights_only=True)`; `faceanon doctor --replay FILE` runs it again.
    """

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Find the run's folder, the same on every process, and where `faceanon fit` wrote the configuration."""
        self.folder = Path(trainer.strategy.broadcast(run_folder(trainer)))
        self.config = Path(trainer.log_dir or trainer.default_root_dir) / "config.yaml"

    def on_train_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: Any,  # noqa: ANN401 - whatever a loader yields
        batch_idx: int,
    ) -> None:
        """Remember the batch and the random state before it."""
        self.batch = batch
        self.batch_idx = batch_idx
        self.random = random_state()

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: Tensor) -> None:
        """Remember the loss until the optimizer step, where it is checked."""
        self.loss = loss.detach()

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer) -> None:
        """Check loss and gradients for numbers that are not finite, before they reach the weights.

        Raises:
            RunError: Something is not finite; names the term, the batch, the seed, and the file that shows it.
        """
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            # A scaler of fp16 skips such steps by itself.
            return
        total = self.loss.float()
        gradients = []
        for parameter in _parameters(optimizer):
            if parameter.grad is not None:
                gradients.append(parameter.grad)
        if gradients:
            # One sum of everything needs one transfer from the GPU; who is to blame is asked when it is not finite.
            total = total + torch.stack([norm.to(total) for norm in norms_of_all(gradients)]).sum()
        if not math.isfinite(float(total)):
            what = blame(pl_module, self.loss, optimizer)
            if what:  # else every number is finite, and only the squares of the norm were too large
                self.fail(trainer, pl_module, optimizer, what)

    def fail(self, trainer: L.Trainer, module: L.LightningModule, optimizer: Optimizer, what: str) -> None:
        """Save the batch and stop."""
        number = int(trainer.fit_loop.total_batch_idx)
        rank = trainer.global_rank
        path = self.folder / FOLDER / f"batch_{number:07d}_rank{rank}.pt"
        seed = getattr(module, "seed", os.environ.get("PL_GLOBAL_SEED", "unknown"))
        where = f"batch {number} (epoch {trainer.current_epoch}, process {rank}), seed {seed}"
        try:
            _write(path, self._content(trainer, module, optimizer, what))
            saved = f"look at it with: faceanon doctor --replay {path}"
        except (UserError, OSError) as error:
            saved = f"the batch could not be saved ({error})"
        last = last_checkpoint(trainer)
        good = "no checkpoint yet"
        if last:
            good = f"last good checkpoint {last}"
        raise RunError(f"{where}: {what}; no step was taken on it; {good}; {saved}")

    def _content(
        self, trainer: L.Trainer, module: L.LightningModule, optimizer: Optimizer, what: str
    ) -> dict[str, Any]:
        # Terms draw random numbers: a replay has to start where the batch did.
        restore_random_state(self.random)
        # A stage seeds here; the state it leaves is the one.
        module.on_train_batch_start(self.batch, self.batch_idx)
        config = self.config
        extra = dict[str, Any]()
        module.on_save_checkpoint(extra)
        progress = {
            "number": int(trainer.fit_loop.total_batch_idx),
            "epoch": trainer.current_epoch,
            "batch_idx": self.batch_idx,
            "batches_an_epoch": float(trainer.num_training_batches),
            "rank": trainer.global_rank,
            "place": getattr(getattr(module, "parallel", None), "placed", None),
        }
        terms = {}
        for name, value in current_terms(module).items():
            terms[name] = float(value)
        state = {}
        for k, v in module.state_dict().items():
            # A step reads no averaged weights, so a replay does without them.
            if not k.startswith("ema."):
                state[k] = v.cpu()
        return {
            "format": FORMAT,
            "version": __version__,
            "what": what,
            "optimizer": trainer.optimizers.index(_plain_optimizer(optimizer)),
            "progress": progress,
            "seed": getattr(module, "seed", None),
            "terms": terms,
            "batch": plain(self.batch),
            "random": random_state(),
            "state": state,
            "extra": extra,
            # Relative: the two still find each other when the folder of the run is moved as a whole.
            "config": os.path.relpath(config, self.folder / FOLDER) if config.is_file() else None,
            "config_sha256": sha256(config) if config.is_file() else None,
        }


def blame(module: nn.Module, loss: Tensor, optimizer: Optimizer) -> str:
    """What is not finite, in words: terms of the loss by name, else the loss, else gradients; "" where all is."""
    terms = []
    for name, value in current_terms(module).items():
        if not math.isfinite(value):
            terms.append(f"{name} is {float(value)}")
    if terms:
        return f"the loss is not finite: {_first(terms)}"
    if not math.isfinite(float(loss)):
        return f"the loss is {float(loss)}, though each of its terms is finite"
    names = {}
    for name, parameter in module.named_parameters():
        names[id(parameter)] = name
    bad = []
    for item in _parameters(optimizer):
        if item.grad is not None and not bool(item.grad.isfinite().all()):
            bad.append(names.get(id(item), "a parameter"))
    if bad:
        return f"gradients are not finite, though this process's loss is {float(loss):.4g}: {_first(bad)}"
    return ""


def plain(batch: Any) -> Any:  # noqa: ANN401 - whatever a loader yields
    """A batch as dicts, lists and CPU tensors, which `torch.load(weights_only=True)` takes; anything else is None."""
    if isinstance(batch, Tensor):
        return batch.detach().cpu().clone()
    if is_dataclass(batch):
        by_name = {}
        for field in fields(batch):
            by_name[field.name] = plain(getattr(batch, field.name))
        return by_name
    if isinstance(batch, dict):
        return {str(key): plain(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return list(map(plain, batch))
    if isinstance(batch, int | float | str | bool):
        return batch
    return None


def current_terms(module: nn.Module) -> dict[str, Tensor]:
    """The terms of the loss at hand, where the stage says them."""
    return getattr(module, "current_terms", None) or {}


def _parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    parameters: list[nn.Parameter] = []
    for group in optimizer.param_groups:
        parameters += group["params"]
    return parameters


def _plain_optimizer(optimizer: Any) -> Optimizer:  # noqa: ANN401 - Lightning's wrapper or the real one
    plain: Optimizer = getattr(optimizer, "optimizer", optimizer)
    return plain


def _first(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    text = ", ".join(names[:_MOST_NAMED])
    if more > 0:
        text += f" and {more} more"
    return text


def _write(path: Path, content: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    # The file shows faces of the training set: for the owner alone.
    write_atomic(path, buffer.getvalue(), mode=0o600)
