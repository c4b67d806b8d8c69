"""Stage 2: learn the key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.losses.adversarial import generator_loss
from faceanon.losses.identity import attract, repel
from faceanon.losses.latent import LatentNorm, latent_regulariser
from faceanon.losses.parsing import parse_loss
from faceanon.losses.reconstruction import PixelNorm, gradient_loss, part_weight, pixel_loss, round_to_8_bit
from faceanon.metrics.evaluation import Evaluation
from faceanon.optim import Ranger
from faceanon.report.page import write_report
from faceanon.report.table import format_table
from faceanon.stages.backbone_stage import BackboneStage
from faceanon.stages.base import Schedule, average_copy, weighted_sum
from faceanon.types import Codes, FaceBatch
from faceanon.weights.store import shipped_figures

Loop = Literal["file", "image", "latent"]


@dataclass(frozen=True)
class AnonymizeWeights:
    """Weights of stage 2's terms; 0 leaves a term out. The defaults are the DBAF paper's.

    Args:
        adversarial: Non-saturating GAN loss on all five pictures.
        identity: Eqs. (29)-(32): away from the original and from each other, and back with the right key.
        recovered_identity: Further weight on bringing the identity back.
        reconstruction: Pixel distance of all five pictures to the original.
        perceptual: Perceptual distance, likewise.
        parsing: Parse loss, likewise.
        latent: Regulariser of the W+ codes.
        recovery: Pixel distance and edges of the recovered picture alone.
        recovery_perceptual: Perceptual distance of the recovered picture alone.
        code: Distance between the identity code recovered and the original's, in its own variance.
        target: Distance between the code found in an anonymized picture and the one it was drawn from, likewise.
        anchor: Pixel distance of anonymized pictures to what the backbone drew for them before this stage.
    """

    adversarial: float = 1.0
    identity: float = 2.0
    recovered_identity: float = 0.0
    reconstruction: float = 0.05
    perceptual: float = 1.0
    parsing: float = 0.1
    latent: float = 0.1
    recovery: float = 0.0
    recovery_perceptual: float = 0.0
    code: float = 0.0
    target: float = 0.0
    anchor: float = 0.0


@dataclass(frozen=True)
class Branches:
    """The five pictures of a batch and the codes behind them.

    Args:
        anonymized: `(2 B, 3, S, S)`, first key then second.
        returned: `(3 B, 3, S, S)`: recovered, then two wrong keys.
        original: Codes of the originals.
        edited: Codes the anonymized pictures were drawn from, `(2 B, ...)`.
        found: Codes found in the first anonymized picture; None in a `latent` loop.
        recovered: Codes the recovered picture was drawn from.
    """

    anonymized: Tensor
    returned: Tensor
    original: Codes
    edited: Codes
    found: Codes | None
    recovered: Codes


class AnonymizeStage(BackboneStage):
    """Anonymize under two keys, recover one of them, try two wrong keys; two batched generator calls.

    Args:
        backbone: The method, as in stage 1.
        weights: Weights of the terms.
        trainable: Prefixes of the backbone's parameters that train.
        loop: What recovery starts from in training: the anonymized picture after an 8-bit step (`file`), the float
            picture (`image`, the papers' equations 20-28), or its codes (`latent`, the released code).
        margin: Cosine below which two faces count as different enough.
        clamp_recovery: Stop pulling the recovered identity when 1 - cos falls below the margin (released code).
        reconstruction_norm: `l1` (paper) or `smooth_l1` (released code).
        latent_norm: `spread` (DBAF), `delta` (HFORD) or `square` (released code).
        part_emphasis: Brows, eyes, nose and mouth count 1 + this in the recovery term, where parsing is known.
        optimizer_g: Builds the backbone's optimizer.
        optimizer_d: Builds the discriminator's.
        init_from: Stage 1's exported folder or `.ckpt`; for `faceanon test`, the model to test.
        export: Folder written when the training ends: weights and configuration, ready for use.
        report: Folder of `faceanon test`'s report.
        samples_every: Batches between two sample sheets in the log folder and W&B; 0 draws none.
        seed: Seed of keys and dropout, beside rank and batch number.
        r1_gamma: See `Stage`.
        r1_interval: See `Stage`.
        ema_half_life: See `Stage`.
        gradient_clip: See `Stage`.
        schedule: See `Stage`.
        warmup: See `Stage`.
    """

    def __init__(
        self,
        backbone: Backbone,
        weights: AnonymizeWeights = AnonymizeWeights(),
        trainable: list[str] | None = None,
        loop: Loop = "file",
        margin: float = 0.1,
        clamp_recovery: bool = False,
        reconstruction_norm: PixelNorm = "l1",
        latent_norm: LatentNorm = "spread",
        part_emphasis: float = 0.0,
        optimizer_g: OptimizerCallable = Ranger,
        optimizer_d: OptimizerCallable = Ranger,
        init_from: Path | None = None,
        export: Path | None = None,
        report: Path = Path("runs/report"),
        samples_every: int = 500,
        seed: int = 0,
        r1_gamma: float = 10.0,
        r1_interval: int = 16,
        ema_half_life: int = 10_000,
        gradient_clip: float = 0.0,
        schedule: Schedule = "constant",
        warmup: int = 0,
    ) -> None:
        super().__init__(
            backbone,
            trainable,
            bool(weights.adversarial),
            optimizer_g,
            optimizer_d,
            init_from,
            export,
            samples_every,
            seed,
            r1_gamma,
            r1_interval,
            ema_half_life,
            gradient_clip,
            schedule,
            warmup,
        )
        self.save_hyperparameters(ignore=["backbone"])
        self.weights, self.loop, self.margin, self.clamp_recovery = weights, loop, margin, clamp_recovery
        self.reconstruction_norm, self.latent_norm, self.part_emphasis = reconstruction_norm, latent_norm, part_emphasis
        self.report = report
        # A list, so that it is no submodule; taken now, since a resumed run loads its checkpoint before the fit starts.
        self.teacher = [average_copy(backbone)] if weights.anchor and init_from is not None else []
        self.evaluation: Evaluation | None = None

    def on_fit_start(self) -> None:
        """Keep the backbone as stage 1 left it where the anchor term asks for it."""
        super().on_fit_start()
        if self.weights.anchor and not self.teacher:
            self.teacher = [average_copy(self.backbone)]
        self.teacher = [teacher.to(self.device) for teacher in self.teacher]

    def training_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Discriminator, then backbone."""
        branches = self.draw(batch.image)
        pictures = torch.cat([branches.anonymized, branches.returned])
        self.train_discriminator(batch.image, pictures)
        with self.toggled_optimizer(self.optimizer_list()[0]):
            terms = self.generator_terms(batch, branches, pictures)
            self.step(self.optimizer_list()[0], weighted_sum(terms, self.weights))
        self.finish_batch(terms, batch)

    def draw(self, image: Tensor) -> Branches:
        """The five branches for originals `(B, 3, S, S)`."""
        backbone, size = self.backbone, len(image)
        keys = backbone.sample_key(4 * size).to(image)
        first, second, wrong = keys[:size], keys[size : 2 * size], keys[2 * size :]
        original = backbone.encode(image)
        edited = backbone.edit(original.map(lambda item: _repeat(item, 2)), torch.cat([first, second]))
        anonymized = backbone.decode(edited)
        if self.loop == "latent":
            found, start = None, edited.map(lambda item: item[:size])
        else:
            saved = anonymized[:size] if self.loop == "image" else round_to_8_bit(anonymized[:size])
            found = start = backbone.encode(saved)
        opened = backbone.edit(start.map(lambda item: _repeat(item, 3)), torch.cat([first, wrong]), inverse=True)
        recovered = opened.map(lambda item: item[:size])
        return Branches(anonymized, backbone.decode(opened), original, edited, found, recovered)

    def generator_terms(self, batch: FaceBatch, branches: Branches, pictures: Tensor) -> dict[str, Tensor]:
        """Named terms; `pictures` `(5 B, 3, S, S)` are all that was drawn."""
        weights, nets, image = self.weights, self.bundle, batch.image
        five = _repeat(image, 5)
        terms: dict[str, Tensor] = {}
        if weights.adversarial and self.discriminator is not None:
            terms["adversarial"] = generator_loss(self.discriminator(pictures))
        if weights.reconstruction:
            terms["reconstruction"] = 5 * pixel_loss(pictures, five, self.reconstruction_norm)
        if weights.perceptual:
            maps = [_repeat(item.detach(), 5) for item in nets.perceptual.maps(image)]
            terms["perceptual"] = nets.perceptual(pictures, maps).mean()
        if weights.parsing:
            logits = _repeat(nets.parser(image).detach(), 5)
            terms["parsing"] = parse_loss(nets.parser(pictures), logits, nets.part_classes)
        terms |= self._identity_terms(image, pictures)
        terms |= self._recovery_terms(batch, branches)
        return terms | self._code_terms(branches, image)

    def _identity_terms(self, image: Tensor, pictures: Tensor) -> dict[str, Tensor]:
        """DBAF eqs. (29)-(32), averaged as the released code does: three pairs, one pull, five pairs."""
        if not (self.weights.identity or self.weights.recovered_identity):
            return {}
        with torch.no_grad():
            original = self.bundle.recogniser(image)
        first, second, recovered, wrong1, wrong2 = self.bundle.recogniser(pictures).chunk(5)
        different = [(first, original), (second, original), (first, second)]
        wrong = [(wrong1, recovered), (wrong2, recovered), (wrong1, wrong2), (wrong1, original), (wrong2, original)]
        back = attract(recovered, original)
        if self.clamp_recovery:
            back = back.clamp(min=self.margin)
        terms = {
            "identity": torch.stack([repel(a, b, self.margin) for a, b in different]).mean()
            + torch.stack([repel(a, b, self.margin) for a, b in wrong]).mean()
            + back
        }
        return terms | ({"recovered_identity": back} if self.weights.recovered_identity else {})

    def _recovery_terms(self, batch: FaceBatch, branches: Branches) -> dict[str, Tensor]:
        """What the paper lacks: terms on the recovered picture alone."""
        terms: dict[str, Tensor] = {}
        recovered = branches.returned[: len(batch)]
        if self.weights.recovery:
            emphasis = None
            if self.part_emphasis and batch.parsing is not None:
                emphasis = part_weight(batch.parsing, self.bundle.part_classes, self.part_emphasis)
            terms["recovery"] = pixel_loss(recovered, batch.image, "l1", emphasis) + gradient_loss(
                recovered, batch.image, emphasis
            )
        if self.weights.recovery_perceptual:
            terms["recovery_perceptual"] = self.bundle.perceptual(recovered, batch.image).mean()
        return terms

    def _code_terms(self, branches: Branches, image: Tensor) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        if self.weights.latent:
            codes = [self.backbone.w_plus(branches.edited), self.backbone.w_plus(branches.recovered)]
            terms["latent"] = torch.stack(
                [latent_regulariser(c, self.latent_norm) for c in codes if c is not None]
            ).mean()
        if self.weights.code:
            terms["code"] = _relative(branches.recovered.identity, branches.original.identity)
        if self.weights.target and branches.found is not None:
            terms["target"] = _relative(branches.found.identity, branches.edited.identity[: len(image)])
        if self.weights.anchor:
            with torch.no_grad():
                before = self.teacher[0].decode(self._as_before(branches, image))
            terms["anchor"] = pixel_loss(branches.anonymized, before)
        return terms

    def _as_before(self, branches: Branches, image: Tensor) -> Codes:
        """The teacher's codes of the originals, with the identities that were drawn."""
        codes = self.teacher[0].encode(image).map(lambda item: _repeat(item, 2))
        return codes.with_identity(branches.edited.identity.detach())

    @torch.no_grad()
    def sample_rows(self, batch: FaceBatch) -> dict[str, Tensor]:
        """Original, two anonymized, recovered, two wrong keys; always the same faces and keys."""
        size, ema = len(batch), self.ema
        keys = ema.sample_key(4 * size, torch.Generator().manual_seed(self.seed)).to(batch.image)
        first, second, wrong1, wrong2 = keys.chunk(4)
        saved = round_to_8_bit(ema.anonymize(batch.image, first))
        return {
            "original": batch.image,
            "anonymized, key 1": saved,
            "anonymized, key 2": ema.anonymize(batch.image, second),
            "recovered": ema.recover(saved, first),
            "wrong key 1": ema.recover(saved, wrong1),
            "wrong key 2": ema.recover(saved, wrong2),
        }

    def validation_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Cosines by the judge and PSNR, from 8-bit pictures."""
        rows = {name: row.clamp(-1, 1) for name, row in self.sample_rows(batch).items()}
        judge = self.bundle.judge
        embedded = {name: judge(row) for name, row in rows.items()}
        original = embedded["original"]
        error = ((rows["recovered"] - batch.image) / 2).square().mean((1, 2, 3)).clamp(min=1e-10)
        figures = {
            "val_psnr_recovered": (-10 * error.log10()).mean(),
            "val_cos_anonymized": (embedded["anonymized, key 1"] * original).sum(1).mean(),
            "val_cos_recovered": (embedded["recovered"] * original).sum(1).mean(),
            "val_cos_wrong": (embedded["wrong key 1"] * original).sum(1).mean(),
            "val_cos_keys": (embedded["anonymized, key 1"] * embedded["anonymized, key 2"]).sum(1).mean(),
        }
        self.log_dict(figures, batch_size=len(batch), prog_bar=True, sync_dist=True)

    def on_test_start(self) -> None:
        """Begin a fresh evaluation."""
        super().on_test_start()
        self.evaluation = Evaluation(self.bundle, seed=self.seed)

    def test_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """Add held-out faces."""
        assert self.evaluation is not None
        self.evaluation.update(batch, self.ema)

    def on_test_epoch_end(self) -> None:
        """Print the table, write JSON and page."""
        evaluation = self.evaluation
        assert evaluation is not None
        figures = evaluation.compute()
        finite = {name: value for name, value in figures.items() if value == value}
        self.log_dict(finite, logger=bool(self.trainer.loggers))
        if not self.trainer.is_global_zero:
            return
        shipped = shipped_figures()
        page = write_report(
            self.report,
            figures,
            evaluation.samples,
            evaluation.meta,
            reference=shipped,
            warnings=evaluation.warnings,
            ci=evaluation.ci,
            scores=evaluation.scores,
            skipped=evaluation.skipped,
        )
        print(format_table(figures, shipped, evaluation.ci))
        print(f"report: {page.resolve()}")


def _repeat(item: Tensor, times: int) -> Tensor:
    """`(B, ...)` -> `(times B, ...)`, whole batches behind each other."""
    return item.repeat(times, *[1] * (item.ndim - 1))


def _relative(found: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared difference over the wanted codes' variance."""
    wanted = wanted.detach()
    return F.mse_loss(found, wanted) / wanted.var().clamp(min=1e-8)
