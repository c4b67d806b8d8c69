"""Train one network of a bundle: a recogniser, a parser, a landmark net, a perceptual net."""

from __future__ import annotations

import math
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer

from faceanon.errors import UserError
from faceanon.files import load_strictly, load_tensors, save_tensors
from faceanon.losses.auxiliary import Objective
from faceanon.metrics.auxiliary import Examination, examination_of
from faceanon.report.page import write_report
from faceanon.report.table import format_table
from faceanon.stages.base import averaged, built, plain_sum
from faceanon.stages.parallel import Parallel, StepShards
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle


class AuxiliaryStage(L.LightningModule):
    """Train a network on its objective; automatic optimization, cosine schedule.

    Args:
        network: The network.
        objective: What it learns.
        optimizer: Builds the optimizer from parameters.
        export: Safetensors file written when the training ends, ready for a bundle.
        init_from: Safetensors file to start from or to test, or a bundle's folder, whose network for `role` is taken.
        role: What the network is in a bundle, and its name in the report.
        labels: Names of the classes or landmarks in the report, in their order; numbers by default.
        report: Folder of `faceanon test`'s reports; the one on this network goes into `<role>` in it.
        accumulate: Equal parts of every batch that are worked on in turn before one step. Pictures are told apart from
            those of their own part; as many processes with such batches learn the same.
        seed: Seed of the draws in training.

    Raises:
        UserError: `init_from` is missing, corrupt, does not fit the network, or is a bundle and `role` is not in it;
            `accumulate` is below 1, or the trainer accumulates too, or scales losses (fp16).
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        optimizer: OptimizerCallable = torch.optim.AdamW,
        export: Path | None = None,
        init_from: Path | None = None,
        role: str = "critic",
        labels: list[str] | None = None,
        report: Path = Path("runs/critics"),
        accumulate: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.parallel = Parallel(self, accumulate, seed)
        self.save_hyperparameters(ignore=["network", "objective"])
        self.network = network.to(memory_format=torch.channels_last)
        self.objective = objective
        self.optimizer = optimizer
        self.export = export
        self.role = role
        self.labels = labels or []
        self.report = report / role
        self.init_from = init_from
        if init_from is not None:
            load_strictly(self.network, *_trained(init_from, role))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """One optimizer over network and heads; the rate rises for 50 steps and falls to 0 along a cosine."""
        if self.parallel.accumulate > 1 and self.trainer.accumulate_grad_batches > 1:
            raise UserError("accumulate and trainer.accumulate_grad_batches are both set; leave the trainer's at 1")
        if self.parallel.accumulate > 1 and getattr(self.trainer.precision_plugin, "scaler", None) is not None:
            raise UserError("accumulate does not scale the losses of all parts, as fp16 needs: train in bf16-mixed")
        optimizer = built(self.optimizer, self.parameters())
        total = max(1, int(self.trainer.estimated_stepping_batches))

        def rate(step: int) -> float:
            return min(1.0, (step + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, step / total)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_batch_start(self, batch: FaceBatch, batch_idx: int) -> None:
        """Random draws depend on seed, batch number and shard alone, so a resumed run repeats them."""
        self.parallel.seed_batch()

    def training_step(self, batch: FaceBatch, batch_idx: int) -> Tensor:
        """The sum of the objective's terms; of several shards all but the last leave their gradients behind."""
        if self.parallel.accumulate > 1:
            # Not in optimizer_zero_grad: Lightning calls that after this method, when gradients have gathered.
            self.trainer.optimizers[0].zero_grad()
        self.step: StepShards = self.parallel.step(batch)
        measured: list[tuple[float, dict[str, Tensor]]] = []
        loss = torch.zeros(())
        for shard in self.step:
            terms = self.objective.terms(self.network, shard.batch)
            detached = {}
            for name, term in terms.items():
                detached[name] = term.detach()
            measured.append((shard.weight, detached))
            loss = shard.weight * plain_sum(terms)
            # Lightning runs the backward pass of the loss that is returned, the last shard's.
            if not shard.last:
                loss.backward()  # type: ignore[no-untyped-call]
        # Kept for training.guard, to blame where one is not finite.
        self.current_terms = means = averaged(measured)
        named = {}
        for name, term in means.items():
            named[f"train/{name}"] = term
        self.log_dict(named, batch_size=len(batch), prog_bar=True)
        return loss

    def on_after_backward(self) -> None:
        """The step's batch statistics are those of all shards."""
        self.step.average_norms()

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Several shards' gradients gather before Lightning would set them to nothing."""
        if self.parallel.accumulate == 1:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def validation_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Log the objective's figures of one batch, each as `val_<name>`."""
        figures = self.objective.figures(self.network, batch)
        validated = {}
        for name, value in figures.items():
            validated[f"val_{name}"] = value
        figures = validated
        self.log_dict(figures, batch_size=len(batch), prog_bar=True, sync_dist=True)

    def on_test_start(self) -> None:
        """Forget the examination of an earlier test; the first batch builds a new one."""
        self.exam: Examination | None = None

    def test_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Add a batch of held-out faces to the examination."""
        # Built here and not at the start of the test: the side of the pictures is known from the first batch.
        self.exam = self.exam or examination_of(self.objective, self.role, self.labels, batch.image.shape[-1])
        # An exam measures in full precision.
        with torch.autocast(self.device.type, enabled=False):
            self.exam.update(self.network, batch)

    def on_test_epoch_end(self) -> None:
        """Log, print and write the figures."""
        assert self.exam is not None
        figures = self.exam.compute()
        self.log_dict(figures, logger=bool(self.trainer.loggers))
        if not self.trainer.is_global_zero:
            return
        network = f"{type(self.network).__module__}.{type(self.network).__qualname__}"
        meta = {"role": self.role, "network": network, "weights": self.init_from}
        page = write_report(self.report, figures, {}, meta)
        print(format_table(figures))
        print(f"report: {page.resolve()}")

    def on_fit_end(self) -> None:
        """Write the network where `export` says."""
        if self.export is not None and self.trainer.is_global_zero:
            save_tensors(self.export, self.network.state_dict(), {"class": type(self.network).__name__})


def _trained(source: Path, role: str) -> tuple[dict[str, Tensor], str]:
    """Tensors of a file, or of a bundle's network for `role`, and where they lay."""
    if source.is_dir():
        entry = Bundle(source).entry(role)
        path = source / entry["file"]
        return load_tensors(path, entry.get("sha256")), str(path)
    return load_tensors(source), str(source)
