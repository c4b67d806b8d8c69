"""A training step with the calls that DBAF's released trainer makes, on the networks of a stage of ours.

One generator call a picture, and all of them again in the discriminator phase; both sides of every pair embedded
anew; perceptual maps and parser logits of the original computed for every picture; R1 in every step; one convolution
weight a sample (`reference_layers`); everything held until the one backward pass of the phase. Objective, keys and
networks are those of the stage, so losses and gradients are its own (tests/bench/test_reference_step.py). Where
the trainer's habit is not known the cheaper one is taken: the discriminator phase draws without a graph, and its
parameters are frozen while the generator's loss is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.reference_layers import reference_synthesis
from faceanon.backbones.dbaf import DBAF
from faceanon.data.pairs import identity_sources
from faceanon.losses.adversarial import discriminator_loss, generator_loss, r1_penalty
from faceanon.losses.identity import attract, contrastive, repel
from faceanon.losses.latent import latent_regulariser
from faceanon.losses.parsing import parse_loss
from faceanon.losses.reconstruction import pixel_loss, round_to_8_bit
from faceanon.stages.anonymize import AnonymizeStage
from faceanon.stages.backbone_stage import BackboneStage
from faceanon.stages.base import weighted_sum
from faceanon.stages.disentangle import DisentangleStage
from faceanon.types import Codes, FaceBatch

Terms = dict[str, dict[str, Tensor]]
"""By phase, `d` and `g`, then by name."""


class ReferenceStep(ABC):
    """What the steps of both stages share.

    Args:
        stage: Gives networks, weights and settings; a discriminator among them.
        number: Number of the batch, from 0; pairings depend on it.
    """

    def __init__(self, stage: BackboneStage[Any], number: int = 0) -> None:
        assert isinstance(stage.backbone, DBAF)
        assert stage.discriminator is not None
        self.backbone = stage.backbone
        self.bundle = stage.bundle
        self.discriminator = stage.discriminator
        self.gamma = stage.r1_gamma
        self.number = number

    @abstractmethod
    def draw(self, batch: FaceBatch, keys: Tensor) -> list[tuple[Tensor, Codes]]:
        """Every picture of the step `(B, 3, S, S)` with the codes it was drawn from."""

    @abstractmethod
    def generator_terms(self, batch: FaceBatch, keys: Tensor) -> dict[str, Tensor]:
        """Named terms of the backbone, unweighted; draws the pictures."""

    def discriminator_terms(self, batch: FaceBatch, keys: Tensor) -> dict[str, Tensor]:
        """The logistic loss and R1; draws the pictures."""
        with torch.no_grad():
            fake = []
            for picture, _ in self.draw(batch, keys):
                fake.append(picture)
        # All at once, as the stage does it: the deviation over the minibatch depends on what is in one call.
        logits = self.discriminator(torch.cat([batch.image, *fake]))
        count = len(batch)
        terms = {"adversarial": discriminator_loss(logits[:count], logits[count:])}
        return terms | {"r1": self.gamma / 2 * r1_penalty(self.discriminator, batch.image)}

    def decode(self, codes: Codes) -> Tensor:
        """One picture a face, `(B, 3, S, S)`."""
        return reference_synthesis(self.backbone.generator, self.backbone.w_plus(codes), codes.features)

    def picture_terms(
        self, image: Tensor, pictures: Iterable[Tensor], weights: Mapping[str, float]
    ) -> dict[str, list[Tensor]]:
        """Perceptual and parse terms picture by picture, where they are weighed."""
        terms: dict[str, list[Tensor]] = {}
        for name in ("perceptual", "parsing"):
            if weights[name]:
                terms[name] = []
        for picture in pictures:
            if "perceptual" in terms:
                terms["perceptual"].append(self.bundle.perceptual(picture, image).mean())
            if "parsing" in terms:
                parser = self.bundle.parser
                classes = self.bundle.part_classes
                terms["parsing"].append(parse_loss(parser(picture), parser(image), classes))
        return terms

    def embed(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings `(B, E)` of a pair, both anew."""
        return self.bundle.recogniser(first), self.bundle.recogniser(second)


class ReferenceAnonymize(ReferenceStep):
    """Stage 2 as released: five pictures are drawn of every original."""

    def __init__(self, stage: AnonymizeStage, number: int = 0) -> None:
        super().__init__(stage, number)
        self.stage = stage

    def draw(self, batch: FaceBatch, keys: Tensor) -> list[tuple[Tensor, Codes]]:
        """Two anonymized, the recovered, two opened with wrong keys."""
        backbone = self.backbone
        # In the order in which the stage draws them: two to anonymize with, two wrong ones.
        first, second, *wrong = keys.chunk(4)
        original = backbone.encode(batch.image)
        drawn = []
        for codes in (backbone.edit(original, key) for key in (first, second)):
            drawn.append((self.decode(codes), codes))
        # In the latent loop recovery opens the codes that were edited, otherwise those that are found in the picture.
        saved, start = drawn[0]
        if self.stage.loop != "latent":
            start = backbone.encode_anonymized(round_to_8_bit(saved) if self.stage.loop == "file" else saved)
        opened = []
        for key in (first, *wrong):
            opened.append(backbone.edit(start, key, inverse=True))
        return drawn + [(self.decode(codes), codes) for codes in opened]

    def generator_terms(self, batch: FaceBatch, keys: Tensor) -> dict[str, Tensor]:
        """The terms that the paper's stage 2 adds up for the generator, by name, not yet weighted."""
        drawn = self.draw(batch, keys)
        settings = self.stage
        pictures = [picture for picture, _ in drawn]
        by_picture = self.picture_terms(batch.image, pictures, vars(settings.weights))
        terms = {}
        for name, items in by_picture.items():
            terms[name] = torch.stack(items).mean()
        terms["adversarial"] = generator_loss(self.discriminator(torch.cat(pictures)))
        norm = settings.terms.reconstruction_norm
        losses = []
        for item in pictures:
            losses.append(pixel_loss(item, batch.image, norm))
        # A sum over the pictures, where the other terms are means: so does the stage.
        terms["reconstruction"] = torch.stack(losses).sum()
        terms["identity"] = self._identity(batch.image, pictures, settings.terms.margin, settings.terms.clamp_recovery)
        latents = []
        for _, codes in drawn:
            latents.append(self.backbone.w_plus(codes))
        # Pictures that wrong keys open have no part in it.
        edited = latent_regulariser(torch.cat(latents[:2]), settings.latent_norm)
        terms["latent"] = (edited + latent_regulariser(latents[2], settings.latent_norm)) / 2
        return terms

    def _identity(self, original: Tensor, pictures: list[Tensor], margin: float, clamp: bool) -> Tensor:
        first, second, recovered, wrong1, wrong2 = pictures
        # DBAF eqs. (29)-(32), averaged as the released code does: three pairs, one pull, five pairs.
        different = [(first, original), (second, original), (first, second)]
        wrong = [(wrong1, recovered), (wrong2, recovered), (wrong1, wrong2), (wrong1, original), (wrong2, original)]
        apart = []
        for pairs in (different, wrong):
            terms_of_pairs = []
            for a, b in pairs:
                terms_of_pairs.append(repel(*self.embed(a, b), margin=margin))
            apart.append(torch.stack(terms_of_pairs).mean())
        back = attract(*self.embed(recovered, original))
        return apart[0] + apart[1] + (back.clamp(min=margin) if clamp else back)


class ReferenceDisentangle(ReferenceStep):
    """Stage 1's: one picture of one person's identity and another's attributes."""

    def __init__(self, stage: DisentangleStage, number: int = 0) -> None:
        super().__init__(stage, number)
        self.stage = stage

    def source(self, batch: FaceBatch) -> Tensor:
        """`(B,)` row of every identity source."""
        return identity_sources(batch, self.number, self.stage.pairing)

    def draw(self, batch: FaceBatch, keys: Tensor) -> list[tuple[Tensor, Codes]]:
        """The mixture; both pictures are encoded."""
        attributes = self.backbone.encode(batch.image)
        mixed = attributes.with_identity(self.backbone.encode(batch.image[self.source(batch)]).identity)
        return [(self.decode(mixed), mixed)]

    def generator_terms(self, batch: FaceBatch, keys: Tensor) -> dict[str, Tensor]:
        """The terms that the paper's stage 1 adds up for the generator, by name, not yet weighted."""
        ((picture, mixed),) = self.draw(batch, keys)
        settings = self.stage
        by_picture = self.picture_terms(batch.image, [picture], vars(settings.weights))
        terms = {}
        for name, items in by_picture.items():
            terms[name] = items[0]
        terms["adversarial"] = generator_loss(self.discriminator(picture))
        terms["reconstruction"] = pixel_loss(picture, batch.image, settings.reconstruction_norm)
        source = self.source(batch)
        # A label below 0 names nobody: such a row shows the same person as itself alone.
        known = (batch.identity == batch.identity[source]) & (batch.identity >= 0)
        same = (source == torch.arange(len(batch), device=source.device)) | known
        drawn, original = self.embed(picture, batch.image)
        terms["contrastive"] = contrastive(drawn, original, same)
        terms["latent"] = latent_regulariser(self.backbone.w_plus(mixed), settings.latent_norm)
        return terms


def reference_of(stage: BackboneStage[Any], number: int = 0) -> ReferenceStep:
    """The reference of a stage; its terms are those of weight above 0 in the paper."""
    if isinstance(stage, AnonymizeStage):
        return ReferenceAnonymize(stage, number)
    assert isinstance(stage, DisentangleStage)
    return ReferenceDisentangle(stage, number)


def run_reference(
    step: ReferenceStep, batch: FaceBatch, keys: Tensor, optimizers: tuple[Optimizer, Optimizer]
) -> Terms:
    """Both phases: discriminator, then backbone; returns the terms of each under `d` and `g`."""
    optimizer_g, optimizer_d = optimizers
    adversarial = step.discriminator_terms(batch, keys)
    update(optimizer_d, torch.stack(list(adversarial.values())).sum())
    plain = {}
    for name, value in adversarial.items():
        plain[name] = value.detach()
    adversarial = plain
    # Gradients flow through the discriminator and none into its weights.
    frozen: nn.Module = step.discriminator.requires_grad_(False)
    terms = step.generator_terms(batch, keys)
    update(optimizer_g, weighted_sum(terms, step.stage.weights))  # type: ignore[attr-defined]
    frozen.requires_grad_(True)
    generator_terms = {}
    for name, value in terms.items():
        generator_terms[name] = value.detach()
    return {"d": adversarial, "g": generator_terms}


def update(optimizer: Optimizer, loss: Tensor) -> None:
    """One step down the gradient of a loss."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
