"""Train one network of a bundle: a recogniser, a parser, a landmark net, a perceptual net."""

from __future__ import annotations

import math
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from faceanon.losses.critics import Objective
from faceanon.types import FaceBatch
from faceanon.weights.files import save_tensors


class CriticStage(L.LightningModule):
    """Train a network on its objective; automatic optimization, cosine schedule.

    Args:
        network: The network.
        objective: What it learns.
        optimizer: Builds the optimizer from parameters.
        export: Safetensors file written when the training ends, ready for a bundle.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        optimizer: OptimizerCallable = torch.optim.AdamW,
        export: Path | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["network", "objective"])
        self.network, self.objective = network.to(memory_format=torch.channels_last), objective
        self.optimizer, self.export = optimizer, export

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """One optimizer over network and heads; the rate rises for 50 steps and falls to 0 along a cosine."""
        optimizer = self.optimizer(self.parameters())
        total = max(1, int(self.trainer.estimated_stepping_batches))

        def rate(step: int) -> float:
            return min(1.0, (step + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, step / total)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch: FaceBatch, batch_idx: int) -> Tensor:
        """The sum of the objective's terms."""
        terms = self.objective.terms(self.network, batch)
        self.log_dict(
            {f"train/{name}": term.detach() for name, term in terms.items()}, batch_size=len(batch), prog_bar=True
        )
        return torch.stack(list(terms.values())).sum()

    def validation_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Log the objective's figures."""
        figures = self.objective.figures(self.network, batch)
        self.log_dict({f"val_{name}": value for name, value in figures.items()}, batch_size=len(batch), prog_bar=True)

    def on_fit_end(self) -> None:
        """Write the network where `export` says."""
        if self.export is not None and self.trainer.is_global_zero:
            save_tensors(self.export, self.network.state_dict(), {"class": type(self.network).__name__})
