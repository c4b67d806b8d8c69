"""What stage 2 wants of its five pictures: the terms that frozen networks and ground truth measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.losses.identity import attract, dbaf_identity, hford_identity, one_stranger, repel
from faceanon.losses.reconstruction import PixelNorm, gradient_loss, part_weight, pixel_loss
from faceanon.networks.upfirdn import fast_layout
from faceanon.stages.chunks import landmark_rows, parsing_rows, perceptual_rows
from faceanon.types import Branches, FaceBatch
from faceanon.weights.bundle import Bundle

Objective = Literal["dbaf", "hford", "released", "means"]


@dataclass(frozen=True)
class AnonymizeWeights:
    """Weights of stage 2's terms; 0 leaves a term out. The defaults are those of DBAF's eq. (39), and HFORD's.

    Args:
        adversarial: Non-saturating GAN loss on all five pictures.
        identity: Away from the original and from each other, and back with the right key: DBAF eqs. (29)-(32), HFORD
            (10)-(13).
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
        wrong_anchor: Pixel distance of pictures opened with wrong keys to what it drew before this stage for the
            originals with those identities: what no key opens must not travel in the picture either.
        landmarks: Distance of the landmarks of all pictures to the original, in sides of the picture. It is not in the
            paper: it holds pose and expression where a bundle has landmarks and no parser.
        adversary: By how many nats a recogniser that learns along (`stages.adversary`) finds the people behind
            anonymized pictures better than by a guess; faces that mislead it count as not found.
        pseudonym: Under one key the photos of a person become one stranger, and those of two people two: all faces of
            a batch have the same second key then. It asks for several photos of a person in a batch.
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
    wrong_anchor: float = 0.0
    landmarks: float = 0.0
    adversary: float = 0.0
    pseudonym: float = 0.0


PAPER_WEIGHTS = AnonymizeWeights()
ON_THE_WAY_BACK = ("recovered_identity", "recovery", "recovery_perceptual", "code", "target")


@dataclass(frozen=True)
class AnonymizeTerms:
    """The terms on pictures and codes that need no trained network beside the backbone.

    Args:
        bundle: The frozen networks.
        weights: Which terms are wanted.
        objective: How terms are put together. `dbaf`: eqs. (29)-(38), sums over pictures and pairs. `hford`: eqs.
            (8)-(17), identity terms as means; what eqs. (8), (9) and (14) print of any drawn picture is summed over
            the five, which is our reading. `released`: sums over pictures, and the identity terms of DBAF's released
            code. `means`: as `released`, with the mean over pictures in perceptual and parse terms, which is ours.
        margin: Cosine below which two faces count as different enough; 0 in the papers, 0.1 in the released code.
        clamp_recovery: Stop pulling the recovered identity when 1 - cos falls below the margin.
        reconstruction_norm: Distance of `reconstruction`.
        part_emphasis: Brows, eyes, nose and mouth count 1 + this in `recovery`, where parsing is known.
    """

    bundle: Bundle
    weights: AnonymizeWeights
    objective: Objective
    margin: float
    clamp_recovery: bool
    reconstruction_norm: PixelNorm
    part_emphasis: float

    def __call__(self, batch: FaceBatch, branches: Branches) -> dict[str, Tensor]:
        """Unweighted terms by name; those whose weight is 0 are left out."""
        return {
            **self._pictures(batch.image, branches),
            **self._perceptual(batch, branches),
            **self._identity(batch, branches),
            **self._recovery(batch, branches),
            **self._codes(branches),
        }

    def _pictures(self, image: Tensor, branches: Branches) -> dict[str, Tensor]:
        """All that was drawn against the original."""
        terms: dict[str, Tensor] = {}
        pictures = branches.pictures
        nets = self.bundle
        count = branches.versions
        if self.weights.reconstruction:
            # The term is a sum over the pictures drawn, and pixel_loss gives their mean.
            terms["reconstruction"] = count * pixel_loss(pictures, repeat(image, count), self.reconstruction_norm)
        if self.weights.parsing:
            rows = parsing_rows(nets.parser, pictures, image, nets.part_classes)
            terms["parsing"] = self._over_pictures(rows, count)
        if self.weights.landmarks:
            terms["landmarks"] = landmark_rows(nets.landmarks, pictures, image).mean()
        return terms

    def _over_pictures(self, rows: Tensor, versions: int) -> Tensor:
        """A term of every picture `(versions B,)` as one: the mean over the batch of the sum over its versions."""
        if self.objective == "means":
            return rows.mean()
        return versions * rows.mean()

    def _perceptual(self, batch: FaceBatch, branches: Branches) -> dict[str, Tensor]:
        """All pictures and the recovered alone share the maps of both."""
        weights = self.weights
        drawn = branches.pictures
        original = batch.image
        # A distance between latents needs no codec where both sides have theirs.
        if self.bundle.compares_latents and branches.latents is not None and batch.latents is not None:
            drawn = branches.latents
            original = batch.latents
        if weights.perceptual:
            distances = perceptual_rows(self.bundle.perceptual, drawn, original)
            terms = {"perceptual": self._over_pictures(distances, branches.versions)}
            return terms | self._recovered_alone(distances[branches.recovered_rows])
        if weights.recovery_perceptual:
            return self._recovered_alone(self.bundle.perceptual(drawn[branches.recovered_rows], original))
        return {}

    def _recovered_alone(self, distance: Tensor) -> dict[str, Tensor]:
        if self.weights.recovery_perceptual:
            return {"recovery_perceptual": distance.mean()}
        return {}

    def _identity(self, batch: FaceBatch, branches: Branches) -> dict[str, Tensor]:
        """What the recogniser says of all that was drawn."""
        apart = self.weights.identity or self.weights.recovered_identity
        two_keys = len(branches.anonymized) > branches.size
        if not (apart or (self.weights.pseudonym and two_keys)):
            return {}
        drawn = self.bundle.recogniser(fast_layout(branches.pictures)).chunk(branches.versions)
        terms = {}
        if apart:
            terms = self._different(batch.image, drawn, branches)
        if self.weights.pseudonym and two_keys:
            terms["pseudonym"] = one_stranger(drawn[1], batch.identity, self.margin)
        return terms

    def _different(self, image: Tensor, drawn: Sequence[Tensor], branches: Branches) -> dict[str, Tensor]:
        """The identity term, and `recovered_identity`, which is a part of it."""
        with torch.no_grad():
            original = self.bundle.recogniser(fast_layout(image))
        if self.objective in ("released", "means"):
            return self._as_released(original, drawn, branches)
        strangers = list(drawn)
        recovered = None
        if branches.recovered is not None:
            # Two versions have one key, five have two: the recovered faces follow.
            recovered = strangers.pop(branches.recovered_rows.start // branches.size)
        identity = dbaf_identity if self.objective == "dbaf" else hford_identity
        terms = {"identity": identity(original, strangers, recovered, self.margin)}
        if self.weights.recovered_identity and recovered is not None:
            terms["recovered_identity"] = attract(original, recovered)
        return terms

    def _as_released(self, original: Tensor, drawn: Sequence[Tensor], branches: Branches) -> dict[str, Tensor]:
        """As DBAF's released code: the mean of three pairs, that of five, and one pull."""
        first, *others = drawn
        # Without a way back there is no recovered face and no wrong key: only anonymized faces can be compared.
        if branches.recovered is None:
            pairs = [(first, original)]
            for second in others:
                pairs.append((second, original))
            for second in others:
                pairs.append((first, second))
            return {"identity": self._apart(pairs)}
        # Between two complete batches only one key was drawn, which leaves one pair of each kind.
        if len(others) == 1:
            (recovered,) = others
            different = [(first, original)]
            wrong = [(first, recovered)]
        else:
            second, recovered, wrong1, wrong2 = others
            different = [(first, original), (second, original), (first, second)]
            wrong = [(wrong1, recovered), (wrong2, recovered), (wrong1, wrong2), (wrong1, original), (wrong2, original)]
        back = attract(recovered, original)
        if self.clamp_recovery:
            back = back.clamp(min=self.margin)
        terms = {"identity": self._apart(different) + self._apart(wrong) + back}
        if self.weights.recovered_identity:
            terms["recovered_identity"] = back
        return terms

    def _apart(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Mean over pairs of embeddings `(B, E)` of what pushes their persons apart."""
        pushes = []
        for one, other in pairs:
            pushes.append(repel(one, other, self.margin))
        return torch.stack(pushes).mean()

    def _recovery(self, batch: FaceBatch, branches: Branches) -> dict[str, Tensor]:
        """What the paper lacks: pixels and edges of the recovered picture alone."""
        if not self.weights.recovery:
            return {}
        emphasis = None
        if self.part_emphasis and batch.parsing is not None:
            emphasis = part_weight(batch.parsing, self.bundle.part_classes, self.part_emphasis)
        recovered = branches.pictures[branches.recovered_rows]
        pixels = pixel_loss(recovered, batch.image, "l1", emphasis)
        return {"recovery": pixels + gradient_loss(recovered, batch.image, emphasis)}

    def _codes(self, branches: Branches) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        if self.weights.code and branches.recovered is not None:
            terms["code"] = relative_error(branches.recovered.identity, branches.original.identity)
        if self.weights.target and branches.found is not None:
            # Only the pictures under the first key are read back, and these are the first B rows.
            wanted = branches.edited.identity[: branches.size]
            terms["target"] = relative_error(branches.found.identity, wanted)
        return terms


def repeat(item: Tensor, times: int) -> Tensor:
    """`(B, ...)` -> `(times B, ...)`, whole batches behind each other."""
    return item.repeat(times, *[1] * (item.ndim - 1))


def relative_error(found: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared difference of codes over the wanted codes' variance; no gradient flows into `wanted`."""
    wanted = wanted.detach()
    # Codes without any variance would divide by 0.
    return F.mse_loss(found, wanted) / wanted.var().clamp(min=1e-8)
