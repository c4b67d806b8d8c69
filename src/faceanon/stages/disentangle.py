"""Stage 1: learn to separate identity from attributes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.data.pairs import Pairing, identity_sources
from faceanon.errors import UserError
from faceanon.losses import identity as identity_losses
from faceanon.losses.latent import LatentNorm
from faceanon.losses.reconstruction import PixelNorm, gradient_loss, part_weight, pixel_loss
from faceanon.metrics.quality import psnr
from faceanon.networks.upfirdn import fast_layout
from faceanon.stages.backbone_stage import BackboneStage
from faceanon.stages.chunks import fooling_rows, landmark_rows, parsing_rows, perceptual_rows
from faceanon.types import Codes, FaceBatch, Mixed
from faceanon.weights.bundle import Bundle


@dataclass(frozen=True)
class DisentangleWeights:
    """Weights of stage 1's terms; 0 leaves a term out. The defaults are the DBAF paper's.

    Args:
        adversarial: Non-saturating GAN loss.
        contrastive: CID's contrastive loss, eq. (10).
        identity: Pull towards the identity source, 1 - cos (only in the released code, 0.5 there).
        reconstruction: Pixel distance to the attribute source, eq. (13).
        edges: L1 between gradients of the two.
        perceptual: Perceptual distance of the two, eq. (12).
        parsing: Parse loss of the two, eq. (14).
        landmarks: Distance of the landmarks of the two, in sides of the picture. It is not in the paper: it holds pose
            and expression where a bundle has landmarks and no parser.
        latent: Regulariser of the W+ code, eq. (15).
    """

    adversarial: float = 1.0
    contrastive: float = 1.0
    identity: float = 0.0
    reconstruction: float = 3.5
    edges: float = 0.0
    perceptual: float = 1.0
    parsing: float = 0.1
    landmarks: float = 0.0
    latent: float = 0.1


@dataclass(frozen=True)
class DisentangleTerms:
    """The terms on a mixture that need no trained network beside the backbone.

    Args:
        bundle: The frozen networks.
        weights: Which terms are wanted.
        reconstruction_norm: Distance of `reconstruction`.
        part_emphasis: Brows, eyes, nose and mouth count 1 + this in the pixel terms, where parsing is known.
    """

    bundle: Bundle
    weights: DisentangleWeights
    reconstruction_norm: PixelNorm
    part_emphasis: float

    def __call__(self, batch: FaceBatch, drawn: Mixed) -> dict[str, Tensor]:
        """Unweighted terms by name; those whose weight is 0 are left out."""
        weights = self.weights
        fake = drawn.pictures
        nets = self.bundle
        # Whoever is drawn, all but the person is to be the attribute source's.
        target = batch.image
        emphasis = None
        if self.part_emphasis and batch.parsing is not None:
            emphasis = part_weight(batch.parsing, nets.part_classes, self.part_emphasis)
        terms: dict[str, Tensor] = {}
        if weights.reconstruction:
            terms["reconstruction"] = pixel_loss(fake, target, self.reconstruction_norm, emphasis)
        if weights.edges:
            terms["edges"] = gradient_loss(fake, target, emphasis)
        if weights.perceptual:
            terms["perceptual"] = perceptual_rows(nets.perceptual, *self._comparable(batch, drawn)).mean()
        if weights.parsing:
            terms["parsing"] = parsing_rows(nets.parser, fake, target, nets.part_classes).mean()
        if weights.landmarks:
            terms["landmarks"] = landmark_rows(nets.landmarks, fake, target).mean()
        return terms | self._identity(batch, fake, drawn.source)

    def _comparable(self, batch: FaceBatch, drawn: Mixed) -> tuple[Tensor, Tensor]:
        """What the perceptual distance compares: pictures, or latents if both have them.

        A distance between latents then needs no codec.
        """
        if self.bundle.compares_latents and drawn.latents is not None and batch.latents is not None:
            return drawn.latents, batch.latents
        return drawn.pictures, batch.image

    def _identity(self, batch: FaceBatch, fake: Tensor, source: Tensor) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        if not (self.weights.contrastive or self.weights.identity):
            return terms
        with torch.no_grad():
            originals = self.bundle.recogniser(fast_layout(batch.image))
        drawn = self.bundle.recogniser(fast_layout(fake))
        if self.weights.contrastive:
            terms["contrastive"] = identity_losses.contrastive(drawn, originals, _own_person(batch, source))
        if self.weights.identity:
            terms["identity"] = identity_losses.attract(drawn, originals[source])
        return terms


class DisentangleStage(BackboneStage[Mixed]):
    """Draw the face of one picture's identity and another's attributes, and compare it with both.

    Args:
        backbone: The method.
        weights: Weights of the terms.
        pairing: How identity sources are chosen (`data.pairs.identity_sources`).
        keyed_share: Share of the rows with somebody else's identity whose code a random key edits as well. What
            draws them then meets the codes that stage 2 makes. For methods whose own terms ask for the code that was
            drawn: no picture shows such a person.
        reconstruction_norm: `l1` (paper) or `smooth_l1` (released code).
        latent_norm: Form of the regulariser (`losses.latent`): `mean_code` (DBAF), `delta` (HFORD), `square` (released
            code), or `spread`, which is ours.
        part_emphasis: Brows, eyes, nose and mouth count 1 + this in the pixel terms, where parsing is known.
        kwargs: Settings of `BackboneStage` and `Stage`.
    """

    weights: DisentangleWeights

    def __init__(
        self,
        backbone: Backbone,
        weights: DisentangleWeights = DisentangleWeights(),
        pairing: Pairing = "roll",
        keyed_share: float = 0.0,
        reconstruction_norm: PixelNorm = "l1",
        latent_norm: LatentNorm = "spread",
        part_emphasis: float = 0.0,
        **kwargs: Any,  # noqa: ANN401 - jsonargparse reads names and types off the base class
    ) -> None:
        super().__init__(backbone, adversarial=bool(weights.adversarial), **kwargs)
        self.save_hyperparameters(ignore=["backbone"])
        self.check_weights(weights)
        wanted = {"perceptual": weights.perceptual, "parser": weights.parsing, "landmarks": weights.landmarks}
        needed = []
        for role, weight in wanted.items():
            if weight:
                needed.append(role)
        self.bundle.require("recogniser", *needed)
        if not 0 <= keyed_share <= 1:
            raise UserError(f"keyed_share is {keyed_share}; it must lie in 0 to 1")
        self.weights = weights
        self.pairing = pairing
        self.keyed_share = keyed_share
        self.reconstruction_norm = reconstruction_norm
        self.latent_norm = latent_norm
        self.part_emphasis = part_emphasis
        self.terms = DisentangleTerms(self.bundle, weights, reconstruction_norm, part_emphasis)

    def draw_shard(self, batch: FaceBatch) -> Mixed:
        """Every row with the identity of another."""
        source = identity_sources(batch, self.batches_seen - 1, self.pairing)
        codes = self.backbone.encode_batch(batch)
        identity = self.backbone.mixed_identity(codes, source)
        if self.keyed_share:
            identity = self._some_edited(identity, source)
        mixed = codes.with_identity(identity)
        pictures, latents = self.decoded(mixed)
        return Mixed(source, mixed, pictures, latents)

    @torch.no_grad()
    def _some_edited(self, identity: Tensor, source: Tensor) -> Tensor:
        """Identity codes `(B, ...)`, some of those that are another row's edited under a key each."""
        count = len(identity)
        if self.parallel.streams is None:
            chance = torch.rand(count)
            keys = self.backbone.sample_key(count)
        else:
            chance = self.parallel.streams.draw(partial(torch.rand, ()))
            keys = self.parallel.streams.draw(partial(self.backbone.sample_key, 1))[:, 0]
        others = source != torch.arange(count, device=source.device)
        chosen = (chance.to(source.device) < self.keyed_share) & others
        edited = self.backbone.transform(identity, keys.to(identity))
        return torch.where(chosen.view(-1, *[1] * (identity.ndim - 1)), edited, identity)

    def originals(self, drawn: Mixed) -> Codes:
        """The codes of the mixed faces, which differ from the pictures' own by the identities alone."""
        return drawn.codes

    def shard_terms(self, batch: FaceBatch, drawn: Mixed) -> dict[str, Tensor]:
        """Terms on pictures and codes, and the backbone's own."""
        terms = self.generator_terms(batch, drawn)
        latent = self.backbone.w_plus(drawn.codes)
        if self.weights.latent and latent is not None:
            terms["latent"] = self.regularised(latent)
        own = self.backbone.disentangle_terms(batch, drawn.codes, drawn.pictures, drawn.source, self.wanted)
        return terms | self.own_terms(own)

    def generator_terms(self, batch: FaceBatch, drawn: Mixed) -> dict[str, Tensor]:
        """Named terms of what was drawn of a batch."""
        terms = self.terms(batch, drawn)
        if self.weights.adversarial and self.discriminator is not None:
            terms["adversarial"] = fooling_rows(self.discriminator, self.judged(batch, drawn)).mean()
        return terms

    @torch.no_grad()
    def sample_rows(self, batch: FaceBatch) -> dict[str, Tensor]:
        """Identity source, attribute source, their mixture, plain reconstruction."""
        codes = self.ema.encode(batch.image)
        mixed = self.ema.decode(codes.with_identity(codes.identity.roll(1, 0)))
        rows = {"identity source": batch.image.roll(1, 0), "attribute source": batch.image, "mixture": mixed}
        return rows | {"reconstruction": self.ema.decode(codes)}

    def validation_step(self, batch: FaceBatch, batch_idx: int) -> None:
        """PSNR of plain reconstructions; how near mixtures are to either source, by the recogniser that trains."""
        codes = self.ema.encode(batch.image)
        plain = self.ema.decode(codes).clamp(-1, 1)
        # Held-out batches go person by person: half a batch away there is mostly somebody else.
        turn = len(batch) // 2
        mixed = self.ema.decode(codes.with_identity(codes.identity.roll(turn, 0))).clamp(-1, 1)
        embedding = self.bundle.recogniser(batch.image)
        drawn = self.bundle.recogniser(mixed)
        error = ((plain - batch.image) / 2).square().mean((1, 2, 3))
        figures = {
            "val_psnr": psnr(error).mean(),
            "val_cos_identity": (drawn * embedding.roll(turn, 0)).sum(1).mean(),
            "val_cos_attribute": (drawn * embedding).sum(1).mean(),
        }
        self.log_dict(figures, batch_size=len(batch), prog_bar=True, sync_dist=True)


def _own_person(batch: FaceBatch, source: Tensor) -> Tensor:
    """`(B,)` bool: the identity source is the row itself, or known to show the same person."""
    rows = torch.arange(len(batch), device=source.device)
    return (source == rows) | ((batch.identity == batch.identity[source]) & (batch.identity >= 0))
