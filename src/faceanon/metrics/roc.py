"""Verification as a curve: ROC, its area, equal error rate, true accept rates, and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.metrics.interval import wilson

Array = NDArray[np.float64]
MOST_PAIRS = 200_000  # in the bootstrap; the figures themselves use all
PERCENTILES = (0.025, 0.975)


@dataclass(frozen=True)
class Roc:
    """Rates at every distinct threshold, from none accepted to all.

    Args:
        threshold: `(T,)` descending, the first infinite; a pair is accepted at or above it.
        far: `(T,)` share of impostor pairs accepted.
        tar: `(T,)` share of genuine pairs accepted.
    """

    threshold: Array
    far: Array
    tar: Array

    def tar_at(self, far: float) -> float:
        """Greatest true accept rate whose false accept rate does not exceed `far`.

        Raises:
            ValueError: `far` is not in (0, 1).
        """
        if not 0 < far < 1:
            raise ValueError(f"far must lie between 0 and 1, got {far}")
        # Rates are sums of weights: by rounding, a point at `far` itself may lie a hair above it.
        return float(self.tar[np.searchsorted(self.far, far + 1e-12, side="right") - 1])

    @property
    def eer(self) -> float:
        """Equal error rate: where false accepts equal false rejects, on the straight lines between the points."""
        # False accepts minus false rejects. It rises from -1 to 1, so they are equal at or just before the first >= 0.
        excess = self.far + self.tar - 1
        right = int(np.argmax(excess >= 0))
        left = max(right - 1, 0)
        rise = excess[right] - excess[left]
        share = -excess[left] / rise if rise > 0 else 0.0
        return float(self.far[left] + share * (self.far[right] - self.far[left]))

    @property
    def auc(self) -> float:
        """Area under the curve: the probability that a genuine pair scores higher; ties count half."""
        return float((np.diff(self.far) * (self.tar[1:] + self.tar[:-1]) / 2).sum())


def roc(genuine: Tensor | Array, impostor: Tensor | Array) -> Roc:
    """The curve from scores of genuine `(P,)` and impostor `(Q,)` pairs; higher means more alike.

    Raises:
        ValueError: Either is empty, or holds NaN.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.roc import roc
        >>> curve = roc(genuine=torch.tensor([0.9, 0.8, 0.3]), impostor=torch.tensor([0.4, 0.1]))
        >>> curve.tar.tolist(), curve.far.tolist()
        ([0.0, 0.333..., 0.666..., 0.666..., 1.0, 1.0], [0.0, 0.0, 0.0, 0.5, 0.5, 1.0])
    """
    scores = []
    for item in (genuine, impostor):
        scores.append(np.asarray(item, dtype=np.float64).reshape(-1))
    for name, item in zip(("genuine", "impostor"), scores, strict=True):
        if not item.size:
            raise ValueError(f"no {name} pairs: a ROC needs two people, with two pictures each")
        if not np.isfinite(item).all():
            raise ValueError(f"{name} scores hold NaN or infinite values; a figure made from them would mean nothing")
    order = _Order(*scores)
    return order.curve(np.ones(len(scores[0])), np.ones(len(scores[1])))


class _Order:
    """Scores sorted once, so that the curve under many weights costs two sums each.

    Args:
        genuine: `(P,)`.
        impostor: `(Q,)`.
    """

    def __init__(self, genuine: Array, impostor: Array) -> None:
        scores = np.concatenate([genuine, impostor])
        self.order = np.argsort(-scores, kind="stable")
        ranked = scores[self.order]
        # Last of every group of ties.
        self.ends = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
        self.threshold = np.concatenate([[math.inf], ranked[self.ends]])
        self.genuine = self.order < len(genuine)

    def curve(self, genuine: Array, impostor: Array) -> Roc:
        """The curve with every pair counted by its weight."""
        weight = np.concatenate([genuine, impostor])[self.order]
        rates = []
        for mask in (~self.genuine, self.genuine):
            total = np.cumsum(np.where(mask, weight, 0.0))
            rates.append(np.concatenate([[0.0], total[self.ends] / total[-1]]))
        return Roc(self.threshold, *rates)


@dataclass(frozen=True)
class ScoredPairs:
    """Scores of pairs and who is in them; people by number, pictures of one person share it.

    Args:
        genuine: `(P,)` scores.
        genuine_people: `(P,)`.
        impostor: `(Q,)` scores.
        impostor_people: `(Q, 2)`.
    """

    genuine: Array
    genuine_people: NDArray[np.int64]
    impostor: Array
    impostor_people: NDArray[np.int64]

    @property
    def usable(self) -> bool:
        """Whether there is a pair of either kind."""
        return bool(self.genuine.size and self.impostor.size)

    def thinned(self, most: int, seed: int) -> ScoredPairs:
        """At most `most` pairs of either kind, drawn at random."""
        rng = np.random.default_rng(seed)
        parts: list[NDArray[np.int64]] = []
        for scores in (self.genuine, self.impostor):
            rows = np.arange(len(scores))
            if len(rows) <= most:
                parts.append(rows)
            else:
                parts.append(np.sort(rng.choice(rows, most, replace=False)))
        own, other = parts
        return ScoredPairs(
            self.genuine[own], self.genuine_people[own], self.impostor[other], self.impostor_people[other]
        )


def curve_intervals(
    pairs: ScoredPairs, fars: Sequence[float], draws: int = 200, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95% intervals of `eer`, `auc` and `tar/<far>`, by the bootstrap over people.

    A person drawn m times brings each pair within m times, and each pair with somebody drawn n times m n times.

    Args:
        pairs: All pairs; very many are thinned.
        fars: False accept rates.
        draws: Number of bootstrap samples; those without a pair of either kind do not count.
        seed: Of the draw.

    Returns:
        Interval by name; NaN with fewer than two people, or no usable sample.
    """
    pairs = pairs.thinned(MOST_PAIRS, seed)
    people, numbers = np.unique(
        np.concatenate([pairs.genuine_people, pairs.impostor_people.reshape(-1)]), return_inverse=True
    )
    own = numbers[: len(pairs.genuine)]
    other = numbers[len(pairs.genuine) :].reshape(-1, 2)
    order = _Order(pairs.genuine, pairs.impostor)
    rng = np.random.default_rng(seed)
    resampled_figures: dict[str, list[float]] = {"eer": [], "auc": []}
    for far in fars:
        resampled_figures[f"tar/{far:g}"] = []
    for _ in range(draws):
        times = np.bincount(rng.integers(len(people), size=len(people)), minlength=len(people)).astype(np.float64)
        # A pair counts as often as its persons were drawn, one of two persons as often as both together.
        genuine = times[own]
        impostor = times[other].prod(1)
        # A sample without a pair of one kind has no curve.
        if not (genuine.any() and impostor.any()):
            continue
        curve = order.curve(genuine, impostor)
        values = [curve.eer, curve.auc, *(curve.tar_at(far) for far in fars)]
        for name, value in zip(resampled_figures, values, strict=True):
            resampled_figures[name].append(value)
    intervals = {}
    for name, resampled in resampled_figures.items():
        intervals[name] = _interval(resampled, len(np.unique(own)))
    return intervals


def _interval(values: list[float], people: int) -> tuple[float, float]:
    """Wilson's interval over the people stands in where every sample gave 0 or every one gave 1."""
    if not values:
        return math.nan, math.nan
    # Rounded, since sums of weights may miss 0 and 1 in the last digits.
    if min(values) == max(values) and round(values[0], 12) in (0, 1):
        return wilson(round(values[0]) * people, people)
    low, high = np.quantile(values, PERCENTILES)
    return float(low), float(high)


def area_under_roc(genuine: Tensor, impostor: Tensor) -> float:
    """Probability that a genuine score `(P,)` exceeds an impostor score `(Q,)`; ties count half.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.roc import area_under_roc
        >>> genuine = torch.tensor([0.9, 0.6])
        >>> area_under_roc(genuine, impostor=torch.tensor([0.6, 0.1]))  # three of four pairs are right, one is a tie
        0.875
    """
    impostor = impostor.sort().values
    # The Mann-Whitney statistic: sorting is N log N where comparing every pair is N times M in memory.
    below = torch.searchsorted(impostor, genuine.contiguous())
    not_above = torch.searchsorted(impostor, genuine.contiguous(), right=True)
    # `below` leaves ties out and `not_above` counts them, so that their mean counts each tie as half.
    return float((below + not_above).double().mean() / 2 / len(impostor))
