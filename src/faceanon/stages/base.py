"""What every GAN stage shares: alternating steps, EMA, lazy R1, learning-rate schedule, hand-over between stages."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from typing import Literal, TypeVar

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from faceanon.errors import UserError
from faceanon.losses.adversarial import discriminator_share, r1_penalty
from faceanon.losses.early import total
from faceanon.stages.chunks import discriminator_chunks
from faceanon.stages.shards import Shard, ShardedModule

Schedule = Literal["constant", "cosine"]
M = TypeVar("M", bound=nn.Module)


class Stage(ShardedModule, ABC):
    """Base of the stages that train by hand with one or two optimizers.

    Args:
        r1_gamma: Weight of R1; 0 leaves it out.
        r1_interval: R1 is computed every so many batches, and weighs that much more.
        ema_half_life: Half-life of the averaged weights, in images.
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
        super().__init__(accumulate, seed)
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
        if trainer.max_steps > 0:
            ends.append(trainer.max_steps / optimizers)
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

    def step_over(
        self,
        optimizer: LightningOptimizer,
        shards: Sequence[Shard],
        measure: Callable[[Shard], tuple[dict[str, Tensor], Tensor]],
        opened: bool = False,
    ) -> dict[str, Tensor]:
        """One optimizer step at the scheduled learning rate, on the mean loss over all shards of all processes.

        Args:
            optimizer: Whose parameters move.
            shards: This process's.
            measure: Gives a shard's terms by name, and the loss made of them.
            opened: The only shard is being worked on already.

        Returns:
            The terms, averaged over this process's rows; while it steps `current_terms` holds them, to blame where one
            is not finite.
        """
        self._set_rate(optimizer)
        optimizer.zero_grad()
        found: list[dict[str, Tensor]] = []
        for shard in shards:
            with nullcontext() if opened else self.open(shard):
                terms, loss = measure(shard)
                found.append({name: term.detach() for name, term in terms.items()})
                self.current_terms = found[-1]
                self.manual_backward(shard.weight * loss)
        self.current_terms = averaged(found, [shard.weight for shard in shards])
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
        parts = [
            partial(lambda rows: discriminator_share(discriminator(pictures[rows]), rows, count, len(pictures)), rows)
            for rows in chunks
        ]
        terms = {"adversarial": total(parts, weights)}
        if self.r1_gamma and (self.batches_seen - 1) % self.r1_interval == 0:
            factor = self.r1_interval * self.r1_gamma / 2
            terms["r1"] = total([lambda: factor * r1_penalty(discriminator, real)], weights)
        return terms

    @torch.no_grad()
    def update_ema(self, average: nn.Module, current: nn.Module, images: int) -> None:
        """Move `average` towards `current`; the half-life counts `images`, all that the step saw on all processes."""
        weight = 1 - 0.5 ** (images / max(self.ema_half_life, 1e-9))
        # Early on, an average of what little there is.
        weight = max(weight, 1 / (self.batches_seen + 1))
        torch._foreach_lerp_(list(average.parameters()), list(current.parameters()), weight)
        for mine, theirs in zip(average.buffers(), current.buffers(), strict=True):
            mine.copy_(theirs)

    def log_terms(self, prefix: str, terms: Mapping[str, Tensor], batch_size: int) -> None:
        """Log every term by name, unweighted, in batches whose lines the loggers write, and in an epoch's last.

        That one is for callbacks that watch a term: an epoch may be shorter than the logging interval.
        """
        # Lightning's own test; 14 terms cost 4 ms a batch.
        writes = self.trainer._logger_connector.should_update_logs
        if not (writes or self.trainer.is_last_batch):
            return
        named = {f"{prefix}/{name}": value.detach() for name, value in terms.items()}
        self.log_dict(named, batch_size=batch_size, on_step=True, on_epoch=False)
        # Lightning writes what was logged last into every later row.
        for item in (self.trainer._results or {}).values():
            if item.meta.name.startswith(f"{prefix}/") and item.meta.name not in named:
                item._forward_cache = None


def averaged(terms: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    """Weighted mean of terms of the same names."""
    if len(terms) == 1:
        return dict(terms[0])
    whole = sum(weights)
    pairs = list(zip(terms, weights, strict=True))
    means = {}
    for name in terms[0]:
        means[name] = torch.stack([weight / whole * item[name] for item, weight in pairs]).sum()
    return means


def weighted_sum(terms: Mapping[str, Tensor], weights: object, extra: Mapping[str, float] | None = None) -> Tensor:
    """Sum of terms times the fields of a dataclass of weights with the same names, or times those in `extra`."""
    table: dict[str, float] = {**asdict(weights), **(extra or {})}  # type: ignore[call-overload]
    return torch.stack([table[name] * value for name, value in terms.items()]).sum()


def average_copy(module: M) -> M:
    """A copy for the moving average, in eval mode, without gradients."""
    return deepcopy(module).eval().requires_grad_(False)


def trainable_parameters(module: nn.Module, prefixes: Iterable[str]) -> list[nn.Parameter]:
    """Parameters whose names start with one of the prefixes; the others stop requiring gradients.

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
    chosen = []
    for name, parameter in named:
        parameter.requires_grad_(any(name.startswith(prefix) for prefix in prefixes))
        if parameter.requires_grad:
            chosen.append(parameter)
    return chosen
