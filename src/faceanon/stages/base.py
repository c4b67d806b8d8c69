"""What every GAN stage calls in its `training_step`: an optimizer's step, lazy R1, average, logs, learning rates."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from typing import Literal, TypeVar

import lightning as L
import torch
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from faceanon.compat import forget_logged, move_all, writes_logs
from faceanon.errors import UserError
from faceanon.losses.adversarial import discriminator_share, r1_penalty
from faceanon.losses.early import total
from faceanon.stages.chunks import discriminator_chunks
from faceanon.stages.draft import components
from faceanon.stages.parallel import Parallel, Shard
from faceanon.types import FaceBatch

Schedule = Literal["constant", "cosine"]
M = TypeVar("M", bound=nn.Module)


class Stage(L.LightningModule, ABC):
    """Base of the stages that train by hand with one or two optimizers; each has a `training_step` of its own.

    An optimizer's step is `begin_step`, `add_gradients` for every shard, and `take_step`.

    Args:
        r1_gamma: Weight of R1; 0 leaves it out.
        r1_interval: R1 is computed every so many batches, and weighs that much more.
        ema_half_life: Half-life of the averaged weights, in images. They are exported and tested; the papers name none.
        gradient_clip: Largest gradient norm; 0 does not clip.
        schedule: `cosine` lets the learning rate fall to 1% over the planned batches.
        warmup: Batches over which each optimizer's learning rate rises from 0.
        accumulate: Equal parts of every batch that are worked on in turn before one optimizer step; a part needs the
            memory of a batch of its size. As many processes with such batches learn the same.
        seed: Seed of all draws in training.
    """

    def __init__(
        self,
        r1_gamma: float = 10.0,
        r1_interval: int = 16,
        ema_half_life: int = 10_000,
        gradient_clip: float = 0.0,
        schedule: Schedule = "constant",
        warmup: int = 0,
        accumulate: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.parallel = Parallel(self, accumulate, seed)
        # Two optimizers take turns within a batch, each with a loss of its own.
        self.automatic_optimization = False
        self.r1_gamma = r1_gamma
        self.r1_interval = r1_interval
        self.ema_half_life = ema_half_life
        self.gradient_clip = gradient_clip
        self.schedule = schedule
        self.warmup = warmup

    @property
    def batches_seen(self) -> int:
        """Batches trained on; Lightning's `global_step` counts optimizer steps, two a batch in a GAN."""
        return int(self.trainer.fit_loop.total_batch_idx) + 1

    @property
    def progress(self) -> float:
        """Part of the planned batches that is done, in [0, 1]; 0 where no end is planned."""
        trainer = self.trainer
        optimizers = 1
        if isinstance(self.optimizers(), list):
            optimizers = len(self.optimizers())
        ends = []
        # Lightning's steps are those of optimizers, of which each makes one a batch.
        if trainer.max_steps > 0:
            ends.append(trainer.max_steps / optimizers)
        # -1 stands for no limit, of epochs as of steps.
        if trainer.max_epochs and trainer.max_epochs > 0:
            ends.append(float(trainer.max_epochs * trainer.num_training_batches))
        planned = min(ends, default=math.inf)
        return min(1.0, self.batches_seen / planned)

    def optimizer_list(self) -> list[LightningOptimizer]:
        """The optimizers in the order of `configure_optimizers`."""
        optimizers = self.optimizers()
        if isinstance(optimizers, list):
            return list(optimizers)
        return [optimizers]

    def on_train_batch_start(self, batch: FaceBatch, batch_idx: int) -> None:
        """Random draws depend on seed, batch number and shard alone, so a resumed run repeats them."""
        self.parallel.seed_batch()

    def begin_step(self, optimizer: LightningOptimizer) -> None:
        """Set the scheduled learning rate, and forget the gradients and terms of the step before."""
        self._set_rate(optimizer)
        optimizer.zero_grad()
        self._measured: list[tuple[float, dict[str, Tensor]]] = []

    def add_gradients(self, shard: Shard, terms: Mapping[str, Tensor], loss: Tensor) -> None:
        """Add the gradients of a shard's loss, such that those of all shards of all processes are of the mean.

        Args:
            shard: Which is being worked on.
            terms: What the loss is made of, by name; `current_terms` holds them, to blame where one is not finite.
            loss: A scalar.
        """
        # Terms are kept for logs and messages, and must not keep the shard's graph alive.
        self.current_terms = {name: term.detach() for name, term in terms.items()}
        self._measured.append((shard.weight, self.current_terms))
        self.manual_backward(shard.weight * loss)

    def take_step(self, optimizer: LightningOptimizer) -> dict[str, Tensor]:
        """Move the optimizer's parameters; gives back the terms, averaged over this process's rows."""
        self.current_terms = averaged(self._measured)
        optimizer.step()
        return self.current_terms

    def batches_learnt(self, optimizer: LightningOptimizer) -> int:
        """Batches in which an optimizer has stepped, the current one included."""
        return self.batches_seen

    def _set_rate(self, optimizer: LightningOptimizer) -> None:
        rate = 1.0
        if self.warmup:
            rate = min(1.0, self.batches_learnt(optimizer) / self.warmup)
        if self.schedule == "cosine":
            # Half a cosine from 1 to 0.01.
            rate *= 0.505 + 0.495 * math.cos(math.pi * self.progress)
        for group in optimizer.optimizer.param_groups:
            # Kept in the group, so that a checkpoint of the optimizer holds it and a resumed run finds it.
            group.setdefault("base_lr", group["lr"])
            group["lr"] = group["base_lr"] * rate

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Clip here, where gradients are unscaled under every precision."""
        if self.gradient_clip:
            self.clip_gradients(optimizer, self.gradient_clip, "norm")

    def discriminator_terms(self, discriminator: nn.Module, real: Tensor, fake: Tensor) -> dict[str, Tensor]:
        """The logistic loss, and R1 when it is due; `fake` is detached."""
        pictures = torch.cat([real, fake.detach().to(real.dtype)])
        count = len(real)
        chunks = discriminator_chunks(discriminator, pictures)
        weights = list(discriminator.parameters())
        # partial binds each chunk's rows now; a bare lambda would look them up later and find the last chunk's.
        parts = [
            partial(lambda rows: discriminator_share(discriminator(pictures[rows]), rows, count, len(pictures)), rows)
            for rows in chunks
        ]
        terms = {"adversarial": total(parts, weights)}
        if self.r1_gamma and (self.batches_seen - 1) % self.r1_interval == 0:
            # Lazy regularisation (StyleGAN2): computed rarely, it weighs as much more. R1's own factor is gamma / 2.
            factor = self.r1_interval * self.r1_gamma / 2
            terms["r1"] = total([lambda: factor * r1_penalty(discriminator, real)], weights)
        return terms

    @torch.no_grad()
    def update_ema(self, average: nn.Module, current: nn.Module, images: int) -> None:
        """Move `average` towards `current`; the half-life counts `images`, all that the step saw on all processes."""
        # A half-life of 0 is no average: the weight is 1.
        weight = 1 - 0.5 ** (images / max(self.ema_half_life, 1e-9))
        # Early on, an average of what little there is.
        weight = max(weight, 1 / (self.batches_seen + 1))
        move_all(list(average.parameters()), list(current.parameters()), weight)
        # Copied: some buffers are whole numbers, which have no weighted mean.
        for mine, theirs in zip(average.buffers(), current.buffers(), strict=True):
            mine.copy_(theirs)

    def log_terms(self, prefix: str, terms: Mapping[str, Tensor], batch_size: int) -> None:
        """Log every term by name, unweighted, in batches whose lines the loggers write, and in an epoch's last.

        That one is for callbacks that watch a term: an epoch may be shorter than the logging interval.
        """
        # Lightning's own test; 14 terms cost 4 ms a batch.
        if not (writes_logs(self.trainer) or self.trainer.is_last_batch):
            return
        named = {}
        for name, value in terms.items():
            named[f"{prefix}/{name}"] = value.detach()
        self.log_dict(named, batch_size=batch_size, on_step=True, on_epoch=False)
        # Lightning writes what was logged last into every later row.
        forget_logged(self.trainer, prefix, named)


def averaged(measured: Sequence[tuple[float, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    """Weighted mean of terms of the same names; `measured` holds a weight and terms each."""
    if len(measured) == 1:
        return dict(measured[0][1])
    whole = sum(weight for weight, _ in measured)
    means = {}
    for name in measured[0][1]:
        means[name] = torch.stack([weight / whole * terms[name] for weight, terms in measured]).sum()
    return means


def plain_sum(terms: Mapping[str, Tensor]) -> Tensor:
    """Sum of scalar terms, none weighted."""
    return torch.stack(list(terms.values())).sum()


def weighted_sum(terms: Mapping[str, Tensor], weights: object, extra: Mapping[str, float] | None = None) -> Tensor:
    """Sum of terms times the fields of a dataclass of weights with the same names, or times those in `extra`."""
    table: dict[str, float] = {**asdict(weights), **(extra or {})}  # type: ignore[call-overload]
    return torch.stack([table[name] * value for name, value in terms.items()]).sum()


def built(make: OptimizerCallable, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """An optimizer of parameters.

    Raises:
        UserError: It does not take its arguments, for instance a learning rate below 0.
    """
    try:
        return make(parameters)
    # What torch's optimizers raise for an argument that they do not take.
    except ValueError as error:
        raise UserError(f"the optimizer cannot be built: {error}; change its init_args") from error


def average_copy(module: M) -> M:
    """A copy for the moving average, in eval mode, without gradients."""
    return deepcopy(module).eval().requires_grad_(False)


def trainable_parameters(module: nn.Module, prefixes: Iterable[str]) -> list[nn.Parameter]:
    """Parameters whose names start with one of the prefixes; the others stop requiring gradients.

    The components of a prior of latents stay as they are, whatever the prefixes: see `stages.draft.components`.

    Raises:
        UserError: A prefix fits no parameter, or there are none.
    """
    prefixes = list(prefixes)
    named: list[tuple[str, nn.Parameter]] = list(module.named_parameters())
    if not named:
        raise UserError(f"{type(module).__name__} has nothing to train; use it as it is: faceanon backbones --save")
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name, _ in named):
            parts = sorted({name.split(".")[0] for name, _ in named})
            raise UserError(f"trainable: no parameter starts with {prefix!r}; the parts are {', '.join(parts)}")
    fixed = {id(parameter) for parameter in components(module)}
    chosen = []
    for name, parameter in named:
        parameter.requires_grad_(any(map(name.startswith, prefixes)) and id(parameter) not in fixed)
        if parameter.requires_grad:
            chosen.append(parameter)
    return chosen
