"""What the two stages that train a backbone share: discriminator, EMA, hand-over, sample sheets, export."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor
from torch.optim import Optimizer

from faceanon.backbones.base import Backbone
from faceanon.callbacks.samples import save_samples
from faceanon.stages.base import Schedule, Stage, average_copy, channels_last, trainable
from faceanon.types import FaceBatch
from faceanon.weights.store import check_fit, description, load_into, save_backbone

CALIBRATION_BATCHES = 100


class BackboneStage(Stage):
    """Base of `DisentangleStage` and `AnonymizeStage`; see there for the arguments."""

    def __init__(
        self,
        backbone: Backbone,
        trainable_prefixes: list[str] | None,
        adversarial: bool,
        optimizer_g: OptimizerCallable,
        optimizer_d: OptimizerCallable,
        init_from: Path | None,
        export: Path | None,
        samples_every: int,
        seed: int,
        r1_gamma: float,
        r1_interval: int,
        ema_half_life: int,
        gradient_clip: float,
        schedule: Schedule,
        warmup: int,
    ) -> None:
        super().__init__(r1_gamma, r1_interval, ema_half_life, gradient_clip, schedule, warmup)
        self.backbone, self.bundle = backbone, backbone.bundle
        self.initialised = init_from is not None
        if init_from is not None:
            load_into(backbone, init_from)
        channels_last(backbone)
        self.prefixes = trainable_prefixes
        self.ema = average_copy(backbone)
        self.discriminator = self.bundle.discriminator() if adversarial else None
        self.optimizer_g, self.optimizer_d = optimizer_g, optimizer_d
        self.export, self.samples_every, self.seed = export, samples_every, seed

    def configure_optimizers(self) -> list[Optimizer]:
        """The backbone's first, the discriminator's second."""
        prefixes = self.prefixes or [""]
        optimizers = [self.optimizer_g(trainable(self.backbone, prefixes))]
        if self.discriminator is not None:
            optimizers.append(self.optimizer_d(self.discriminator.parameters()))
        return optimizers

    def on_fit_start(self) -> None:
        """Move the frozen networks; on a fresh start measure the backbone's statistics once, the same on every rank."""
        self.bundle.to(self.device)
        self.sample_folder = Path(self.trainer.log_dir or self.trainer.default_root_dir) / "samples"
        if self.trainer.ckpt_path is None and not self.initialised:
            loader = self.trainer.datamodule.train_dataloader()  # type: ignore[attr-defined]
            batches: Iterator[FaceBatch] = (
                batch.to(self.device) for batch in islice(iter(loader), CALIBRATION_BATCHES)
            )
            self.backbone.calibrate(batches)
            measured = self.trainer.strategy.broadcast(
                {name: item.cpu() for name, item in self.backbone.named_buffers()}
            )
            for module in (self.backbone, self.ema):
                for name, buffer in module.named_buffers():
                    buffer.copy_(measured[name])

    def on_train_batch_start(self, batch: FaceBatch, batch_idx: int) -> None:
        """Random draws depend on seed, rank and batch number alone, so a resumed run repeats them."""
        number = int(self.trainer.fit_loop.total_batch_idx)
        torch.manual_seed((self.seed * 1_000_003 + number) * 4_099 + self.global_rank)

    def train_discriminator(self, real: Tensor, fake: Tensor) -> None:
        """One step of the discriminator, where there is one."""
        if self.discriminator is None:
            return
        optimizer = self.optimizer_list()[1]
        with self.toggled_optimizer(optimizer):
            terms = self.discriminator_terms(self.discriminator, real, fake)
            self.step(optimizer, torch.stack(list(terms.values())).sum())
        self.log_terms("train/d", terms, len(real))

    def finish_batch(self, terms: dict[str, Tensor], batch: FaceBatch) -> None:
        """Average and log."""
        self.update_ema(self.ema, self.backbone, len(batch))
        self.log_terms("train/g", terms, len(batch))

    @abstractmethod
    def sample_rows(self, batch: FaceBatch) -> dict[str, Tensor]:
        """Rows of a sample sheet, each `(N, 3, S, S)` in [-1, 1], by name."""

    def on_train_batch_end(self, outputs: object, batch: FaceBatch, batch_idx: int) -> None:
        """Draw the fixed sample sheet when it is due."""
        if self.samples_every and self.batches_seen % self.samples_every == 0 and self.trainer.is_global_zero:
            save_samples(self, self.sample_rows(self._sample_batch()), self.sample_folder)

    def _sample_batch(self) -> FaceBatch:
        """The first eight validation faces, always the same."""
        loader = self.trainer.datamodule.val_dataloader()  # type: ignore[attr-defined]
        first: FaceBatch = next(iter(loader))
        return first.map(lambda tensor: tensor[:8]).to(self.device)

    def on_fit_end(self) -> None:
        """Write the averaged backbone where `export` says."""
        if self.export is not None and self.trainer.is_global_zero:
            save_backbone(self.ema, self.export)

    def on_validation_start(self) -> None:
        """Frozen networks follow the stage to its device, whichever command runs."""
        self.bundle.to(self.device)

    def on_test_start(self) -> None:
        """As `on_validation_start`."""
        self.bundle.to(self.device)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Say in the checkpoint what rebuilds the backbone."""
        checkpoint["faceanon"] = description(self.backbone)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another backbone or bundle before its tensors are compared one by one."""
        check_fit(checkpoint.get("faceanon"), self.backbone, "the checkpoint")
