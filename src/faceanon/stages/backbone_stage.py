"""The step of the two stages that train a backbone, and what surrounds it: hand-over, sample sheets, export."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from faceanon.backbones.base import Backbone
from faceanon.backbones.frame_options import AS_DRAWN, FrameOptions
from faceanon.errors import UserError
from faceanon.losses.latent import LatentNorm, latent_regulariser
from faceanon.models import (
    check_fit,
    description,
    load_discriminator,
    load_into,
    save_backbone,
    save_discriminator,
)
from faceanon.networks.latents import CodecUser
from faceanon.networks.layout import channels_last
from faceanon.optim import Ranger
from faceanon.stages.base import Stage, average_copy, built, plain_sum, trainable_parameters, weighted_sum
from faceanon.stages.samples import sample_faces, save_samples
from faceanon.types import Codes, FaceBatch


class HasPictures(Protocol):
    """What a stage drew of a shard."""

    @property
    def pictures(self) -> Tensor:
        """All that was drawn, as the backbone's `drawn_view` gives it."""
        ...

    @property
    def latents(self) -> Tensor | None:
        """The latents behind the pictures, where the method draws a codec's latents."""
        ...


Drawn = TypeVar("Drawn", bound=HasPictures)


class BackboneStage(Stage, Generic[Drawn]):
    """Base of `DisentangleStage` and `AnonymizeStage`: their step; what is drawn and which terms it has is their own.

    Args:
        backbone: The method.
        adversarial: Whether a discriminator trains too.
        trainable: Prefixes of the backbone's parameters that train; None trains all.
        optimizer_g: Builds the backbone's optimizer; Ranger when None. Its arguments are given with its class.
        optimizer_d: Builds the one of the discriminator and of whatever else learns against the backbone; likewise.
        init_from: Checkpoint (`.ckpt`) or exported folder whose backbone is loaded first: stage 1's for stage 2; for
            `faceanon test`, the model to test.
        export: Folder written when the training ends: weights and configuration, ready for the next stage and for use.
        extra_weights: Weights of the backbone's own terms (its `disentangle_terms` or `anonymize_terms`), by name.
        samples_every: Batches between two sample sheets in the log folder and W&B; 0 draws none.
        hand_on: Whether a discriminator that trains goes with the backbone: `export` holds it, `init_from` brings it.
            That stage 2 goes on with stage 1's is DBAF's released code, and our reading of the papers.
        frame: How faces are put back into pictures, for a method that draws in the frame of a mesh. The model that is
            exported has it too; an earlier stage may have had another one.
        head_start: Batches at the beginning in which only the discriminator and the adversary learn. A backbone
            that comes trained would otherwise follow untrained networks and lose what it can do.
        seed: Seed of keys, pairings and dropout, beside batch number and place in the global batch.
        kwargs: Settings of `Stage`.
    """

    weights: object
    latent_norm: LatentNorm

    def __init__(
        self,
        backbone: Backbone,
        adversarial: bool,
        trainable: list[str] | None = None,
        optimizer_g: OptimizerCallable | None = None,
        optimizer_d: OptimizerCallable | None = None,
        init_from: Path | None = None,
        export: Path | None = None,
        extra_weights: dict[str, float] | None = None,
        samples_every: int = 500,
        hand_on: bool = False,
        frame: FrameOptions = AS_DRAWN,
        head_start: int = 0,
        seed: int = 0,
        **kwargs: Any,  # noqa: ANN401 - jsonargparse reads names and types off the base class
    ) -> None:
        super().__init__(seed=seed, **kwargs)
        self.backbone = backbone
        self.bundle = backbone.bundle
        self.initialised = init_from is not None
        if init_from is not None:
            load_into(backbone, init_from)
        backbone.frame_options = frame
        channels_last(backbone)
        self.prefixes = trainable
        self.ema = average_copy(backbone)
        self.discriminator = backbone.new_discriminator() if adversarial else None
        self.hand_on = hand_on
        if hand_on and init_from is not None and self.discriminator is not None:
            load_discriminator(self.discriminator, init_from)
        self.optimizer_g: OptimizerCallable = optimizer_g or Ranger
        self.optimizer_d: OptimizerCallable = optimizer_d or Ranger
        self.export = export
        self.samples_every = samples_every
        self.head_start = head_start
        self.extra_weights = extra_weights or {}

    def check_weights(self, weights: object) -> None:
        """Refuse terms on pictures for a method that trains on latents.

        Args:
            weights: The stage's dataclass of weights.

        Raises:
            UserError: A weight but `adversarial` and `anchor` is not 0 though the method draws no pictures in training.
        """
        asked = [name for name in weighed(weights) if name not in ("adversarial", "anchor")]
        if asked and not self.backbone.trains_on_pictures:
            kind = type(self.backbone).__name__
            raise UserError(f"{kind} trains on latents: set the weights of {', '.join(asked)} to 0, use extra_weights")

    def regularised(self, w_plus: Tensor) -> Tensor:
        """The regulariser of W+ codes `(B, L, D)`, in the stage's form."""
        mean = self.bundle.latent_avg if self.latent_norm == "mean_code" else None
        return latent_regulariser(w_plus, self.latent_norm, mean)

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the backbone's own terms whose weight is not 0."""
        names = []
        for name, weight in self.extra_weights.items():
            if weight:
                names.append(name)
        return frozenset(names)

    @property
    def further_weights(self) -> dict[str, float]:
        """Weights of terms that `weights` has not, by name."""
        return self.extra_weights

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

    def setup(self, stage: str) -> None:
        """Freeze what does not train before DDP looks, or it would exchange gradients that nobody computes."""
        if stage == "fit":
            # Called for its effect on requires_grad; the optimizers ask for the list again.
            trainable_parameters(self.backbone, self.prefixes or [""])

    @property
    def adversaries(self) -> list[nn.Module]:
        """What the second optimizer trains: discriminator and adversary, where there are any."""
        networks: list[nn.Module] = []
        if self.discriminator is not None:
            networks.append(self.discriminator)
        return networks

    def configure_optimizers(self) -> list[Optimizer]:
        """The backbone's optimizer, then that of the adversaries where there are any."""
        prefixes = self.prefixes or [""]
        optimizers = [built(self.optimizer_g, trainable_parameters(self.backbone, prefixes))]
        if adversaries := self.adversaries:
            weights: list[nn.Parameter] = []
            for network in adversaries:
                weights.extend(network.parameters())
            optimizers.append(built(self.optimizer_d, weights))
        return optimizers

    def on_fit_start(self) -> None:
        """Move the frozen networks; on a fresh start measure the backbone's statistics once, the same on every rank."""
        self.bundle.to(self.device)
        # Asked for on every process: log_dir waits for all of them, and a sheet is drawn by rank 0 alone.
        self.sample_folder = Path(self.trainer.log_dir or self.trainer.default_root_dir) / "samples"
        if self.trainer.ckpt_path is None and not self.initialised:
            batches = islice(self.training_batches(), self.backbone.calibration_batches)
            self.measure(self.backbone.calibrate, batches)

    def training_batches(self) -> Iterator[FaceBatch]:
        """One epoch of training batches, on the stage's device."""
        loader = self.trainer.datamodule.train_dataloader()  # type: ignore[attr-defined]
        return (batch.to(self.device) for batch in loader)

    def measure(self, function: Callable[[Iterator[FaceBatch]], None], batches: Iterator[FaceBatch]) -> None:
        """Set the backbone's buffers from training faces, the same on every process.

        Args:
            function: Takes the batches and sets buffers.
            batches: Of this process; the function gets those of all, as one process would see them.
        """
        self.parallel.on_rank_zero(function, batches)
        # On the CPU: a tensor that is broadcast as an object comes back on the device that it was pickled on.
        buffers = {}
        for name, item in self.backbone.named_buffers():
            buffers[name] = item.cpu()
        measured = self.trainer.strategy.broadcast(buffers)
        # The averaged copy was taken before these statistics were measured, and needs them too.
        for module in (self.backbone, self.ema):
            for name, buffer in module.named_buffers():
                buffer.copy_(measured[name])

    @property
    def backbone_waits(self) -> bool:
        """Whether only the adversaries learn from the current batch."""
        return bool(self.adversaries) and self.batches_seen <= self.head_start

    def batches_learnt(self, optimizer: LightningOptimizer) -> int:
        """Batches in which an optimizer has stepped, the current one included; the backbone's starts later."""
        # Without adversaries the backbone never waits, so it has no head start to subtract.
        if self.adversaries and optimizer is self.optimizer_list()[0]:
            return self.batches_seen - self.head_start
        return self.batches_seen

    def training_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Draw the faces; discriminator and adversary learn from them, then the backbone, then its average."""
        optimizers = self.optimizer_list()
        step = self.parallel.step(batch)
        # A lone shard is drawn once, for both losses. The graphs of several would all wait in memory: each is drawn
        # without one for the discriminator's loss, and again for the backbone's.
        once = step.lone and not self.backbone_waits
        drawn: Drawn | None = None

        if self.adversaries:
            self.begin_step(optimizers[1])
            for shard in step:
                with step.drawing(keep_graph=once):
                    drawn = self._draw(shard.batch)
                with self.toggled_optimizer(optimizers[1]):
                    terms = self.adversary_terms(shard.batch, drawn)
                    self.add_gradients(shard, terms, plain_sum(terms))
                # Makes room for the next shard.
                if not once:
                    drawn = None
            self.log_terms("train/d", self.take_step(optimizers[1]), len(batch))

        means: dict[str, Tensor] = {}
        if not self.backbone_waits:
            self.begin_step(optimizers[0])
            for shard in step:
                if drawn is None:
                    drawn = self._draw(shard.batch)
                # The same random numbers for the terms, whether the shard was drawn once or twice.
                step.seed_terms()
                with self.toggled_optimizer(optimizers[0]):
                    terms = self.shard_terms(shard.batch, drawn)
                    self.add_gradients(shard, terms, weighted_sum(terms, self.weights, self.further_weights))
                # Makes room for the next shard, with its graph.
                drawn = None
            means = self.take_step(optimizers[0])

        step.average_norms()
        self.update_ema(self.ema, self.backbone, step.images)
        self.log_terms("train/g", means, len(batch))

    def _draw(self, batch: FaceBatch) -> Drawn:
        # Prepared photographs bring their latents: whoever encodes them in this step need not compute them.
        if batch.latents is not None and self.bundle.has("codec"):
            self.bundle.codec.know(batch.image, batch.latents)
        return self.draw_shard(batch)

    def decoded(self, codes: Codes) -> tuple[Tensor, Tensor | None]:
        """What `drawn_view` gives of codes, with the latents behind it where the method draws latents."""
        latents = self.backbone.drawn_latents(codes)
        if latents is None:
            return self.backbone.drawn_view(codes), None
        return self.bundle.codec.decode(latents), latents

    def adversary_terms(self, batch: FaceBatch, drawn: Drawn) -> dict[str, Tensor]:
        """What the adversaries learn from, by name; no gradient flows into what was drawn."""
        if self.discriminator is None:
            return {}
        real = self.real(batch, self.originals(drawn), drawn)
        return self.discriminator_terms(self.discriminator, real, self.judged(batch, drawn))

    def real(self, batch: FaceBatch, originals: Codes, drawn: HasPictures) -> Tensor:
        """What the discriminator compares with what was drawn: the originals, as `judged` gives that."""
        if self.discriminates_latents(batch, drawn):
            assert batch.latents is not None
            return batch.latents
        return self.backbone.original_view(batch, originals)

    def discriminates_latents(self, batch: FaceBatch, drawn: HasPictures) -> bool:
        """Whether the discriminator compares latents that both sides have; pictures would have to be encoded."""
        known = batch.latents is not None and drawn.latents is not None
        return known and isinstance(self.discriminator, CodecUser)

    def judged(self, batch: FaceBatch, drawn: HasPictures) -> Tensor:
        """What the discriminator looks at of all that was drawn."""
        if self.discriminates_latents(batch, drawn):
            assert drawn.latents is not None
            return drawn.latents
        return drawn.pictures

    @abstractmethod
    def originals(self, drawn: Drawn) -> Codes:
        """Codes of the batch's own pictures, `(B, ...)`; their identities may be those of others."""

    @abstractmethod
    def draw_shard(self, batch: FaceBatch) -> Drawn:
        """Draw the faces of a shard's rows, and what the stage's terms need beside them."""

    @abstractmethod
    def shard_terms(self, batch: FaceBatch, drawn: Drawn) -> dict[str, Tensor]:
        """All terms of what was drawn, by name and unweighted."""

    @abstractmethod
    def sample_rows(self, batch: FaceBatch) -> dict[str, Tensor]:
        """Rows of a sample sheet, each `(N, 3, S, S)` in [-1, 1], by name."""

    def sheet_rows(self) -> dict[str, Tensor]:
        """The rows of a sheet that is looked at during training: those of the first validation faces."""
        return self.sample_rows(sample_faces(self))

    def on_train_batch_end(self, outputs: object, batch: FaceBatch, batch_idx: int) -> None:
        """Draw the fixed sample sheet when it is due."""
        if self.samples_every and self.batches_seen % self.samples_every == 0 and self.trainer.is_global_zero:
            save_samples(self, self.sheet_rows(), self.sample_folder)

    def on_fit_end(self) -> None:
        """Write the averaged backbone where `export` says, and the discriminator where it is handed on."""
        if self.export is not None and self.trainer.is_global_zero:
            save_backbone(self.ema, self.export)
            if self.hand_on and self.discriminator is not None:
                save_discriminator(self.discriminator, self.export)

    def on_validation_start(self) -> None:
        """Frozen networks follow the stage to its device, whichever command runs."""
        self.bundle.to(self.device)

    def on_test_start(self) -> None:
        """Frozen networks follow the stage to its device, as before a validation."""
        self.bundle.to(self.device)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Say in the checkpoint what rebuilds the backbone."""
        checkpoint["faceanon"] = description(self.backbone)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another backbone or bundle before its tensors are compared one by one."""
        check_fit(checkpoint.get("faceanon"), self.backbone, "the checkpoint")


def weighed(weights: object) -> list[str]:
    """Names of the terms whose weight is not 0, in the order of a stage's dataclass of weights."""
    names = []
    for name, weight in asdict(weights).items():  # type: ignore[call-overload]
        if weight:
            names.append(name)
    return names
