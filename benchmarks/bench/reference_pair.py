"""One step of a stage twice: as our training makes it, and as `reference_step` does; both without Lightning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.reference_step import Terms, reference_of, run_reference, update
from faceanon.backbones.base import Backbone
from faceanon.compat import swap_trainer
from faceanon.stages.backbone_stage import BackboneStage
from faceanon.stages.base import trainable_parameters, weighted_sum
from faceanon.types import FaceBatch

Made = Callable[[list[nn.Parameter]], Optimizer]
PARTS = {"s1": ["cid", "maar"], "s2": ["cid", "maar", "kria"]}
"""What the paper's preset `dbaf` trains in each stage."""


class Pair:
    """A stage with its optimizers, for steps of either kind.

    Args:
        stage: With a discriminator.
        trainable: Prefixes of the backbone's parameters that train.
        optimizer_g: Makes the backbone's optimizer.
        optimizer_d: Makes the discriminator's.
    """

    def __init__(self, stage: BackboneStage[Any], trainable: list[str], optimizer_g: Made, optimizer_d: Made) -> None:
        assert stage.discriminator is not None
        self.stage = stage
        self.discriminator = stage.discriminator
        self.optimizers = (
            optimizer_g(trainable_parameters(stage.backbone, trainable)),
            optimizer_d(list(stage.discriminator.parameters())),
        )

    def ours(self, batch: FaceBatch, seed: int, number: int = 0) -> Terms:
        """The step of batch `number` with what `seed` draws; the calls of its `training_step`."""
        stage = self.stage
        optimizer_g, optimizer_d = self.optimizers
        # The reference starts from the same seed, so both draw the same keys.
        torch.manual_seed(seed)
        with _at(stage, number):
            drawn = stage.draw_shard(batch)
            # Both phases share these pictures; the reference draws them in each.
            adversarial = stage.discriminator_terms(self.discriminator, batch.image, drawn.pictures)
            update(optimizer_d, torch.stack(list(adversarial.values())).sum())
            # The generator's loss goes through the discriminator and must leave no gradients in it.
            self.discriminator.requires_grad_(False)
            terms = stage.shard_terms(batch, drawn)
            update(optimizer_g, weighted_sum(terms, stage.weights))
            self.discriminator.requires_grad_(True)
        return {"d": _plain(adversarial), "g": _plain(terms)}

    def reference(self, batch: FaceBatch, seed: int, number: int = 0) -> Terms:
        """As the released trainer calls the same networks, with the same keys."""
        torch.manual_seed(seed)
        backbone: Backbone = self.stage.backbone
        # As the stage draws them: two right and two wrong keys a face.
        keys = backbone.sample_key(4 * len(batch)).to(batch.image)
        return run_reference(reference_of(self.stage, number), batch, keys, self.optimizers)


def _plain(terms: dict[str, Tensor]) -> dict[str, Tensor]:
    plain = {}
    for name, value in terms.items():
        plain[name] = value.detach()
    return plain


@contextmanager
def _at(stage: BackboneStage[Any], number: int) -> Iterator[None]:
    """The stage believes to be in the training of batch `number`."""
    # The number decides on pairings and branches, and a stage asks its trainer for it.
    trainer = SimpleNamespace(fit_loop=SimpleNamespace(total_batch_idx=number), world_size=1)
    before = swap_trainer(stage, trainer)
    try:
        yield
    finally:
        swap_trainer(stage, before)
