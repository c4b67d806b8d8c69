"""What attribute codes and feature maps alone say about the person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.metrics.recognition import chance
from faceanon.metrics.saved import saved
from faceanon.studies.security.base import Finding, Outcome, SecurityRow, Verdict, graded, worst
from faceanon.studies.security.recognised import Recognised, recognised
from faceanon.types import Codes, FaceBatch

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

LIFT_HOLDS = 0.05
LIFT_PARTLY = 0.2
AUC_HOLDS = 0.65
AUC_PARTLY = 0.8
GRID = 4  # cells a side of pooled maps
MOST = 256  # principal components that the probe sees
CONTROL = "identity code"
CONTROL_NEEDED = 0.8  # AUC that a probe must reach on the control, or it is too weak to conclude from
RIDGE = 1e-2  # relative to the mean variance of the coordinates


@dataclass(frozen=True)
class Leak(Finding):
    """Identity without the identity code.

    Args:
        plain: Drawn from all codes of the original, without a key.
        zeroed: Drawn with the mean identity of many people in place of the person's.
        replaced: Drawn with the identity of somebody else.
        sources: What linear probes read the person from.
        probes: Their results; the first, the identity code itself, is the control.
        chance: Rank-1 rate of a guess.
        learnt_from: Pictures that the probes learnt from.
    """

    plain: Recognised
    zeroed: Recognised
    replaced: Recognised
    sources: tuple[str, ...]
    probes: tuple[Recognised, ...]
    chance: float
    learnt_from: int

    def verdicts(self) -> list[Verdict]:
        """A verdict on drawings, then one for every source that probes read."""
        drawn = (self.zeroed, self.replaced)
        most = max(drawn, key=lambda one: one.lift)
        auc = max(one.auc for one in drawn)
        text = (
            f"drawn without the person's identity code {most.same:.1%} are recognised (strangers {most.strangers:.1%}, "
            f"with it {self.plain.same:.1%}); other pictures of the person stand out with AUC {auc:.2f}"
        )
        verdicts = [Verdict(self._graded(most.lift, auc), f"{text} ({self._bounds()})")]
        control = dict(zip(self.sources, self.probes, strict=True))[CONTROL]
        for source, probe in zip(self.sources, self.probes, strict=True):
            if source != CONTROL:
                text = (
                    f"a linear probe on {source} finds {probe.rank1:.1%} of new people "
                    f"(chance {self.chance:.1%}), AUC {probe.auc:.2f}"
                )
                outcome = self._graded(max(0.0, probe.rank1 - self.chance), probe.auc)
                # A probe that does not find the person even in the identity code is too weak to clear the other parts.
                if outcome == "holds" and control.auc < CONTROL_NEEDED:
                    outcome = "open"
                    text = f"{text}; too weak to conclude: on the {CONTROL} AUC {control.auc:.2f}"
                verdicts.append(Verdict(outcome, text))
        return verdicts

    @staticmethod
    def _graded(lift: float, auc: float) -> Outcome:
        return worst(graded(lift, LIFT_HOLDS, LIFT_PARTLY), graded(auc, AUC_HOLDS, AUC_PARTLY))

    @staticmethod
    def _bounds() -> str:
        safe = f"up to {LIFT_HOLDS:.0%} beyond chance and AUC {AUC_HOLDS} counts as clean"
        return f"{safe}, above {LIFT_PARTLY:.0%} or {AUC_PARTLY} as leaking"

    def rows(self) -> list[SecurityRow]:
        """First how people are recognised in drawings, then what linear probes read from codes, as lines of a table."""
        parts = {"all codes": self.plain, "mean identity": self.zeroed, "another's identity": self.replaced}
        rows = []
        for what, figures in parts.items():
            rows += [
                SecurityRow(f"{what}: recognised", figures.same, "%"),
                SecurityRow(f"{what}: mean cosine with the original", figures.cosine),
                SecurityRow(f"{what}: AUC of other pictures", figures.auc),
            ]
        for source, probe in zip(self.sources, self.probes, strict=True):
            rows += [
                SecurityRow(f"probe on {source}: rank 1", probe.rank1, "%"),
                SecurityRow(f"probe on {source}: AUC", probe.auc),
            ]
        return [*rows, SecurityRow("rank 1 by chance", self.chance, "%")]


def leak(target: Target) -> Leak:
    """Draw without the identity, and probe every other part of the codes.

    Raises:
        DoesNotApplyError: The method has no codes.
    """
    identity = target.probes.identity
    known = parts(target, target.known, "codes of the attacker's pictures")
    mean = known["raw identity"].mean(0)
    own = parts(target, target.probes, "codes of the probes")
    # Pictures of a person are neighbours, so half a turn away is somebody else.
    other = own["raw identity"].roll(len(identity) // 2, 0)
    # Embeddings, not labels: the probes are tried on people of whom they have learnt nothing.
    goal = target.embed(target.known.image)
    sources = []
    for name in known:
        # What is drawn from needs its full shape; the probe reads the same code pooled.
        if name != "raw identity":
            sources.append(name)

    def judged(embedding: Tensor) -> Recognised:
        return recognised(embedding, target.gallery, identity, target.threshold)

    probes = []
    for name in sources:
        probes.append(judged(F.normalize(read(known[name], goal, own[name]))))
    return Leak(
        judged(_drawn(target, own["raw identity"])),
        judged(_drawn(target, mean.expand_as(other))),
        judged(_drawn(target, other)),
        tuple(sources),
        tuple(probes),
        chance(identity),
        len(goal),
    )


def _drawn(target: Target, identity: Tensor) -> Tensor:
    """Embeddings of the probes drawn with these identity codes."""

    def draw(image: Tensor, code: Tensor) -> Tensor:
        return saved(target.backbone.decode(target.codes(image).with_identity(code)))

    return target.embed(target.batched(draw, target.probes.image, identity, title="drawing"))


def parts(target: Target, batch: FaceBatch, title: str) -> dict[str, Tensor]:
    """The codes' parts `(B, D)` by name, maps pooled; and `raw identity` as it is."""
    rows: dict[str, list[Tensor]] = {}

    def collect(image: Tensor) -> Tensor:
        for name, part in _views(target.codes(image)).items():
            rows.setdefault(name, []).append(part.cpu())
        # The parts differ in shape and are collected on the side; `batched` only needs rows to join.
        return image[:, 0, 0, 0]

    target.batched(collect, batch.image, title=title)
    joined = {}
    for name, chunks in rows.items():
        joined[name] = torch.cat(chunks)
    return joined


def _views(codes: Codes) -> dict[str, Tensor]:
    views = {"raw identity": codes.identity, CONTROL: _pooled(codes.identity)}
    if codes.attributes is not None:
        views["attribute codes"] = codes.attributes.flatten(1)
    for side, maps in (codes.features or {}).items():
        views[f"feature maps of {side} pixels"] = _pooled(maps)
    if codes.image is not None and codes.mask is not None:
        views["pixels that are kept"] = _pooled(codes.image * (1 - codes.mask))
    return views


def _pooled(part: Tensor) -> Tensor:
    if part.ndim == 4:
        return F.adaptive_avg_pool2d(part, GRID).flatten(1)
    return part.flatten(1)


def read(points: Tensor, goal: Tensor, new: Tensor) -> Tensor:
    """Embeddings `(M, E)` that a ridge regression, learnt from `(N, D)` to `(N, E)`, reads off `(M, D)`."""
    mean = points.mean(0)
    # Parts of a code that never vary would be divided by 0.
    spread = points.std(0).clamp(min=1e-6)
    points = (points - mean) / spread
    new = (new - mean) / spread
    # The regression solves a system with a row for each column, and feature maps have thousands of them.
    if points.shape[1] > MOST:
        # The points are centred already.
        _, _, axes = torch.pca_lowrank(points, min(MOST, len(points)), center=False)
        points = points @ axes
        new = new @ axes
    # What all faces share tells nobody apart.
    middle = goal.mean(0)
    # In float64, since the normal equations square the condition of the points.
    return apply_ridge(ridge(points.double(), (goal - middle).double()), new.double()).float()


def ridge(points: Tensor, factors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights `(D, F)` and the means of both sides, from `(N, D)` to `(N, F)`."""
    centre = points.mean(0)
    mean = factors.mean(0)
    x = points - centre
    # There may be more coordinates than pictures: without a penalty they would fit anything.
    # The factor is the mean eigenvalue of x.T @ x, so RIDGE means the same for any N and any scale of the points.
    penalty = RIDGE * x.square().sum() / x.shape[1]
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(x.T @ x + penalty.clamp(min=1e-12) * eye, x.T @ (factors - mean))
    return weights, centre, mean


def apply_ridge(fitted: tuple[Tensor, Tensor, Tensor], points: Tensor) -> Tensor:
    """Factors `(N, F)` read off `(N, D)`."""
    weights, centre, mean = fitted
    return (points - centre) @ weights + mean
