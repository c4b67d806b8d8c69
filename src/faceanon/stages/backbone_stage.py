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
from faceanon.errors import UserError
from faceanon.optim import Ranger
from faceanon.stages.base import Stage, average_copy, channels_last, trainable_parameters
from faceanon.types import FaceBatch
from faceanon.weights.store import check_fit, description, load_into, save_backbone

CALIBRATION_BATCHES = 100


class BackboneStage(Stage):
    """Base of `DisentangleStage` and `AnonymizeStage`.

    Args:
        backbone: The method.
        adversarial: Whether a discriminator trains too.
        trainable: Prefixes of the backbone's parameters that train; None trains all.
        optimizer_g: Builds the backbone's optimizer.
        optimizer_d: Builds the discriminator's.
        init_from: Checkpoint (`.ckpt`) or exported folder whose backbone is loaded first: stage 1's for stage 2; for
            `faceanon test`, the model to test.
        export: Folder written when the training ends: weights and configuration, ready for the next stage and for use.
        extra_weights: Weights of the backbone's own terms (its `disentangle_terms` or `anonymize_terms`), by name.
        samples_every: Batches between two sample sheets in the log folder and W&B; 0 draws none.
        seed: Seed of keys, pairings and dropout, beside rank and batch number.
        kwargs: Settings of `Stage`.
    """

    def __init__(
        self,
        backbone: Backbone,
        adversarial: bool,
        trainable: list[str] | None = None,
        optimizer_g: OptimizerCallable = Ranger,
        optimizer_d: OptimizerCallable = Ranger,
        init_from: Path | None = None,
        export: Path | None = None,
        extra_weights: dict[str, float] | None = None,
        samples_every: int = 500,
        seed: int = 0,
        **kwargs: Any,  # noqa: ANN401 - jsonargparse reads names and types off the base class
    ) -> None:
        super().__init__(**kwargs)
        self.backbone, self.bundle = backbone, backbone.bundle
        self.initialised = init_from is not None
        if init_from is not None:
            load_into(backbone, init_from)
        channels_last(backbone)
        self.prefixes = trainable
        self.ema = average_copy(backbone)
        self.discriminator = self.bundle.discriminator() if adversarial else None
        self.optimizer_g, self.optimizer_d = optimizer_g, optimizer_d
        self.export, self.samples_every, self.seed = export, samples_every, seed
        self.extra_weights = extra_weights or {}

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the backbone's own terms whose weight is not 0."""
        return frozenset(name for name, weight in self.extra_weights.items() if weight)

    def own_terms(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """The backbone's own terms, once it is clear that it knows all that are weighed.

        Raises:
            UserError: `extra_weights` names a term that the backbone does not have.
        """
        unknown = sorted(self.wanted - set(terms))
        if unknown:
            kind = type(self.backbone).__name__
            raise UserError(f"extra_weights: {kind} has no {', '.join(unknown)} in this stage; see its documentation")
        return terms

    def configure_optimizers(self) -> list[Optimizer]:
        """The backbone's first, the discriminator's second."""
        prefixes = self.prefixes or [""]
        optimizers = [self.optimizer_g(trainable_parameters(self.backbone, prefixes))]
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
