"""What every GAN stage shares: alternating steps, EMA, lazy R1, learning-rate schedule, hand-over between stages."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Literal, TypeVar

import lightning as L
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from faceanon.errors import UserError
from faceanon.losses.adversarial import discriminator_loss, r1_penalty

Schedule = Literal["constant", "cosine"]
M = TypeVar("M", bound=nn.Module)


class Stage(L.LightningModule, ABC):
    """Base of the stages that train by hand with one or two optimizers.

    Args:
        r1_gamma: Weight of R1; 0 leaves it out.
        r1_interval: R1 is computed every so many batches, and weighs that much more.
        ema_half_life: Half-life of the averaged weights, in images.
        gradient_clip: Largest gradient norm; 0 does not clip.
        schedule: `cosine` lets the learning rate fall to 1% over the planned batches.
        warmup: Batches over which the learning rate rises from 0.
    """

    def __init__(
        self,
        r1_gamma: float = 10.0,
        r1_interval: int = 16,
        ema_half_life: int = 10_000,
        gradient_clip: float = 0.0,
        schedule: Schedule = "constant",
        warmup: int = 0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.r1_gamma, self.r1_interval = r1_gamma, r1_interval
        self.ema_half_life, self.gradient_clip = ema_half_life, gradient_clip
        self.schedule, self.warmup = schedule, warmup

    @property
    def batches_seen(self) -> int:
        """Batches trained on; Lightning's `global_step` counts optimizer steps, two a batch in a GAN."""
        return int(self.trainer.fit_loop.total_batch_idx) + 1

    @property
    def progress(self) -> float:
        """Part of the planned batches that is done, in [0, 1]; 0 where no end is planned."""
        trainer = self.trainer
        optimizers = len(self.optimizers()) if isinstance(self.optimizers(), list) else 1
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
        return list(optimizers) if isinstance(optimizers, list) else [optimizers]

    def step(self, optimizer: LightningOptimizer, loss: Tensor) -> None:
        """One optimizer step at the scheduled learning rate."""
        rate = min(1.0, self.batches_seen / self.warmup) if self.warmup else 1.0
        if self.schedule == "cosine":
            rate *= 0.505 + 0.495 * math.cos(math.pi * self.progress)
        for group in optimizer.optimizer.param_groups:
            group.setdefault("base_lr", group["lr"])
            group["lr"] = group["base_lr"] * rate
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Clip here, where gradients are unscaled under every precision."""
        if self.gradient_clip:
            self.clip_gradients(optimizer, self.gradient_clip, "norm")

    def discriminator_terms(self, discriminator: nn.Module, real: Tensor, fake: Tensor) -> dict[str, Tensor]:
        """The logistic loss, and R1 when it is due; `fake` is detached."""
        both = discriminator(torch.cat([real, fake.detach().to(real.dtype)]))
        terms = {"adversarial": discriminator_loss(both[: len(real)], both[len(real) :])}
        if self.r1_gamma and (self.batches_seen - 1) % self.r1_interval == 0:
            terms["r1"] = self.r1_interval * self.r1_gamma / 2 * r1_penalty(discriminator, real)
        return terms

    @torch.no_grad()
    def update_ema(self, average: nn.Module, current: nn.Module, images: int) -> None:
        """Move `average` towards `current`; the half-life counts images, so batch size and devices do not change it."""
        weight = 1 - 0.5 ** (images * self.trainer.world_size / max(self.ema_half_life, 1e-9))
        weight = max(weight, 1 / (self.batches_seen + 1))  # early on, an average of what little there is
        torch._foreach_lerp_(list(average.parameters()), list(current.parameters()), weight)
        for mine, theirs in zip(average.buffers(), current.buffers(), strict=True):
            mine.copy_(theirs)

    def log_terms(self, prefix: str, terms: Mapping[str, Tensor], batch_size: int) -> None:
        """Log every term by name, unweighted."""
        named = {f"{prefix}/{name}": value.detach() for name, value in terms.items()}
        self.log_dict(named, batch_size=batch_size, on_step=True, on_epoch=False)


def weighted_sum(terms: Mapping[str, Tensor], weights: object, extra: Mapping[str, float] | None = None) -> Tensor:
    """Sum of terms times the fields of a dataclass of weights with the same names, or times those in `extra`."""
    table: dict[str, float] = {**asdict(weights), **(extra or {})}  # type: ignore[call-overload]
    return torch.stack([table[name] * value for name, value in terms.items()]).sum()


def channels_last(module: nn.Module) -> None:
    """Lay 4-D weights out for channels-last convolutions, 1.6 times faster on CPUs; StyleGAN2's are 5-D and stay."""
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


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
