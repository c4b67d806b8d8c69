"""Was this person among the training faces? What a released model betrays of those it was trained on.

The attacker has the model, the bundle with all its networks, keys of its own, and the very picture of a suspect. Each
signal is a number that training drives up on the faces it sees; on people it never saw it is as high only where nothing
was learnt by heart (Shokri et al., 2017; LOGAN, Hayes et al., 2019). What counts beside the area under the curve is the
share of members that are named with hardly a false accusation (Carlini et al., 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from faceanon.metrics.quality import psnr
from faceanon.metrics.recognition import threshold_at_far
from faceanon.metrics.saved import saved
from faceanon.studies.security.base import FAR, DoesNotApplyError, Finding, Outcome, SecurityRow, Verdict, graded, worst
from faceanon.studies.security.training import LogisticDetector

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target
    from faceanon.types import FaceBatch

AUC_HOLDS = 0.6
AUC_PARTLY = 0.75
# Of members, named at a false accusation in a hundred.
TAIL_HOLDS = 0.05
TAIL_PARTLY = 0.2
ROUNDS = 4000
TOGETHER = "all of these together"
Interval = tuple[float, float]


@dataclass(frozen=True)
class Signal:
    """One number by which members may be told.

    Args:
        name: What it is; higher speaks for a member.
        auc: Probability that a member's is higher than an outsider's; .5 is chance.
        interval: Its 95% interval over people, widened so that those of all signals hold together.
        named: Share of members above all but a hundredth of the outsiders.
        named_interval: Its interval, as `interval`.
    """

    name: str
    auc: float
    interval: Interval
    named: float
    named_interval: Interval


@dataclass(frozen=True)
class Membership(Finding):
    """Training people against outsiders.

    Args:
        signals: The figures by signal.
        members: Number of training people.
        outsiders: Number of people whom no training saw.
    """

    signals: tuple[Signal, ...]
    members: int
    outsiders: int

    def verdicts(self) -> list[Verdict]:
        """Whether membership shows; what chance explains is not held against the model."""
        # By the lower end: among several signals of few people the highest figure may be chance.
        best = max(self.signals, key=lambda signal: signal.interval[0])
        text = (
            f"of {self.members} training people and {self.outsiders} outsiders the best signal ({best.name}) tells "
            f"them apart with AUC {best.auc:.2f} ({best.interval[0]:.2f} to {best.interval[1]:.2f}) and names "
            f"{best.named:.1%} of the training people at one false accusation in a hundred"
        )
        outcome = worst(*map(_outcome, self.signals))
        high = max(signal.interval[1] for signal in self.signals)
        # A figure above the bound is not called safe, even where chance explains it.
        suspect = max(signal.auc for signal in self.signals) > AUC_HOLDS
        if outcome == "holds" and (suspect or high > AUC_PARTLY):
            return [Verdict("open", f"{text}; the intervals reach up to {high:.2f}: take more people")]
        bounds = f"an AUC of {AUC_HOLDS} or {TAIL_HOLDS:.0%} named shows it, {AUC_PARTLY} or {TAIL_PARTLY:.0%} plainly"
        return [Verdict(outcome, f"{text} ({bounds}, where chance does not explain it)")]

    def rows(self) -> list[SecurityRow]:
        """AUC, its interval and the share named by signal."""
        rows = []
        for signal in self.signals:
            rows += [
                SecurityRow(f"{signal.name}: AUC", signal.auc),
                SecurityRow(f"{signal.name}: AUC at least", signal.interval[0]),
                SecurityRow(f"{signal.name}: AUC at most", signal.interval[1]),
                SecurityRow(f"{signal.name}: named at 1% falsely accused", signal.named, "%"),
            ]
        return rows


def _outcome(signal: Signal) -> Outcome:
    """By the figure itself where its interval leaves out chance; else nothing was shown."""
    area: Outcome = "holds"
    if signal.interval[0] > 0.5:
        area = graded(signal.auc, AUC_HOLDS, AUC_PARTLY)
    tail: Outcome = "holds"
    if signal.named_interval[0] > FAR:
        tail = graded(signal.named, TAIL_HOLDS, TAIL_PARTLY)
    return worst(area, tail)


def membership(target: Target, source: str = "") -> Membership:
    """Compare training people with outsiders from the same source, by all that the model says of their pictures.

    Args:
        target: With `training`.
        source: Which faces those are; only kept with the results, which depend on it.

    Raises:
        DoesNotApplyError: Nobody said which faces the model was trained on.
    """
    if target.training is None:
        raise DoesNotApplyError("nobody said which faces the model was trained on (--trained-on)")
    members, outsiders = target.training()
    inside = _signals(target, members)
    outside = _signals(target, outsiders)
    together = _together(torch.stack(list(inside.values()), 1), torch.stack(list(outside.values()), 1))
    pairs = {}
    for name, scores in inside.items():
        pairs[name] = (scores, outside[name])
    pairs[TOGETHER] = together
    signals = []
    for name, (own, others) in pairs.items():
        signals.append(measure(name, own, others, tests=len(pairs)))
    return Membership(tuple(signals), *map(len, together))


def _signals(target: Target, batch: FaceBatch) -> dict[str, Tensor]:
    """Every signal, `(people,)`: the mean over a person's pictures."""
    image = batch.image
    key = target.keys("membership", batch)
    hidden = target.anonymize(image, key, "faces of training and others")
    signals: dict[str, Tensor] = {}
    try:
        redrawn = target.batched(lambda x: saved(target.backbone.decode(target.codes(x))), image, title="redrawing")
        signals |= _likeness(target, image, redrawn, "redrawn without a key")
    except DoesNotApplyError:
        # A method without codes.
        pass
    if target.backbone.recovers_from_pictures:
        signals |= _likeness(target, image, target.recover(hidden, key), "recovered")
    if target.recogniser is not None:
        own = _unit(target, target.recogniser, image)
        changed = _unit(target, target.recogniser, hidden)
        # The training pushes the two apart, so a small cosine speaks for a member, and higher has to speak for one.
        signals["the training recogniser's distance of the anonymized face"] = -(own * changed).sum(1)
        signals["the training recogniser's likeness of a person's pictures"] = _agreement(own, batch.identity)
    if (discriminator := _discriminator(target)) is not None:
        signals["the bundle's discriminator"] = target.batched(discriminator, image).flatten().float()
    by_name = {}
    for name, scores in signals.items():
        by_name[name] = _by_person(scores, batch.identity)
    return by_name


def _likeness(target: Target, image: Tensor, drawn: Tensor, what: str) -> dict[str, Tensor]:
    """How near a drawn picture is to its original, in pixels and for the judge."""
    error = ((drawn - image) / 2).square().mean((1, 2, 3))
    cosine = (target.embed(drawn) * target.embed(image)).sum(1)
    return {f"{what}: PSNR": psnr(error), f"{what}: the judge's cosine": cosine}


def _unit(target: Target, network: Callable[[Tensor], Tensor], image: Tensor) -> Tensor:
    return F.normalize(target.batched(network, image).float())


def _agreement(embedding: Tensor, identity: Tensor) -> Tensor:
    """Mean cosine of each picture with the person's other ones; 0 where there are none."""
    same = (identity[:, None] == identity) & ~torch.eye(len(identity), dtype=torch.bool)
    return (embedding @ embedding.T * same).sum(1) / same.sum(1).clamp(min=1)


def _discriminator(target: Target) -> Callable[[Tensor], Tensor] | None:
    """The bundle's trained discriminator, if it ships one."""
    bundle = target.backbone.bundle
    has = getattr(bundle, "has", None)
    make = getattr(bundle, "discriminator", None)
    # A discriminator without weights in the bundle would be a new, random one.
    if has is None or make is None or not has("discriminator") or "file" not in bundle.entry("discriminator"):
        return None
    network = make().eval().requires_grad_(False).to(target.device)
    return lambda image: network(image)


def _by_person(scores: Tensor, identity: Tensor) -> Tensor:
    people, row = torch.unique(identity, return_inverse=True)
    total = torch.zeros(len(people)).index_add_(0, row, scores)
    return total / torch.bincount(row)


def _together(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of an attacker who knows of half of the people and learns from them, on the other half; both ways."""
    scores = torch.zeros(len(inside)), torch.zeros(len(outside))
    for fold in (0, 1):
        learnt = [rows[fold::2] for rows in (inside, outside)]
        labels = torch.cat([torch.ones(len(learnt[0])), torch.zeros(len(learnt[1]))])
        detector = LogisticDetector(torch.cat(learnt), labels)
        for kept, rows in zip(scores, (inside, outside), strict=True):
            kept[1 - fold :: 2] = detector.score(rows[1 - fold :: 2])
    return scores


def measure(name: str, inside: Tensor, outside: Tensor, tests: int = 1) -> Signal:
    """AUC and share named of scores `(M,)` of members and `(N,)` of outsiders, with bootstrap intervals over people.

    Args:
        name: Of the signal.
        inside: Members' scores; higher speaks for a member.
        outside: Outsiders' scores.
        tests: Signals that are looked at together; intervals are widened by Bonferroni.
    """
    one = inside.double().numpy()
    other = outside.double().numpy()
    # A tie is half a win, as in the area under the curve.
    wins = (one[:, None] > other) + 0.5 * (one[:, None] == other)
    draw = np.random.default_rng(0)
    rows = draw.integers(0, len(one), (ROUNDS, len(one)))
    columns = draw.integers(0, len(other), (ROUNDS, len(other)))
    # Drawing people again is weighing them by how often they came: the wins are compared once only.
    areas = ((_shares(rows, len(one)) @ wins) * _shares(columns, len(other))).sum(1)
    # Outsiders that may lie above.
    allowed = int(FAR * len(other))
    threshold = np.sort(other[columns], 1)[:, len(other) - 1 - allowed]
    named = (one[rows] > threshold[:, None]).mean(1)
    tail = [0.025 / tests, 1 - 0.025 / tests]
    limits = []
    for values in (areas, named):
        limits.append(tuple(map(float, np.quantile(values, tail))))
    share = float((inside > threshold_at_far(outside, FAR)).double().mean())
    return Signal(name, float(wins.mean()), (limits[0][0], limits[0][1]), share, (limits[1][0], limits[1][1]))


def _shares(drawn: NDArray[np.int64], people: int) -> NDArray[np.float64]:
    """How often each person stands in each row of drawn numbers `(R, N)`, over all in the row: `(R, people)`."""
    counts = []
    for row in drawn:
        counts.append(np.bincount(row, minlength=people))
    return np.stack(counts) / people
