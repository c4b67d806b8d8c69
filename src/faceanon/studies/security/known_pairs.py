"""Codes that are known before and after the key: how many of them betray it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.studies.security.base import Finding, Outcome, SecurityRow, Verdict
from faceanon.studies.security.training import fit, least_squares

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

FALLS = 0.9  # cosine of predicted with true codes, on new people, from which the key counts as revealed
LEANS = 0.5  # from which it counts as revealed in part
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
SMALLEST_MLP = 50
HIDDEN = 256
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class KnownPairs(Finding):
    """Prediction of codes from keyed codes, without the key, from known pairs under that key.

    Args:
        length: Entries of a code.
        pairs: Numbers of known pairs.
        linear: Mean cosine of predicted with true codes (both centred), by least squares, for each number.
        linear_found: Share of predicted codes nearest to the true one of all new pictures.
        mlp_pairs: Numbers of pairs on which the network was trained.
        mlp: Its mean cosine.
        mlp_found: Its share found.
        nothing: Cosine with no attack at all: keyed codes taken as they are.
        new: Pictures of new people.
    """

    length: int
    pairs: tuple[int, ...]
    linear: tuple[float, ...]
    linear_found: tuple[float, ...]
    mlp_pairs: tuple[int, ...]
    mlp: tuple[float, ...]
    mlp_found: tuple[float, ...]
    nothing: float
    new: int

    def verdicts(self) -> list[Verdict]:
        """The number of pairs at which the key falls."""
        falls = []
        for n, cosine in self._all():
            if cosine >= FALLS:
                falls.append(n)
        best = max(cosine for _, cosine in self._all())
        most = max(self.pairs)
        if falls:
            text = f"{min(falls)} known pairs of codes under one key reveal it (a code has {self.length} entries)"
            return [Verdict("fails", f"{text}: use a key for a few pictures only (cosine {FALLS} counts as revealed)")]
        text = f"{most} known pairs of codes under one key predict new ones with a cosine of {best:.2f} at best"
        outcome: Outcome = "partly" if best >= LEANS else "holds"
        bounds = f"from {LEANS} counts as revealed in part, from {FALLS} as revealed"
        if most < 2 * self.length and outcome == "holds":
            short = f"too few to conclude: a code has {self.length} entries"
            return [Verdict("open", f"{text}; {short} ({bounds})")]
        return [Verdict(outcome, f"{text} ({bounds})")]

    def _all(self) -> list[tuple[int, float]]:
        return [*zip(self.pairs, self.linear, strict=True), *zip(self.mlp_pairs, self.mlp, strict=True)]

    def rows(self) -> list[SecurityRow]:
        """Cosine and share found by number of pairs."""
        rows = [
            SecurityRow("entries of a code", float(self.length)),
            SecurityRow("keyed codes as they are, cosine", self.nothing),
        ]
        for kind, pairs, cosines, shares in (
            ("least squares", self.pairs, self.linear, self.linear_found),
            ("network", self.mlp_pairs, self.mlp, self.mlp_found),
        ):
            for number, cosine, share in zip(pairs, cosines, shares, strict=True):
                rows.append(SecurityRow(f"{kind}, {number} pairs: cosine", cosine))
                rows.append(SecurityRow(f"{kind}, {number} pairs: found among all", share, "%"))
        return rows


def known_pairs(target: Target) -> KnownPairs:
    """Learn one key's inverse from more and more pairs of the attacker's, and apply it to new people's keyed codes.

    Raises:
        DoesNotApplyError: The method takes no key, or has no codes.
    """
    target.need_key()

    def encode(image: Tensor) -> Tensor:
        return target.codes(image).identity

    known = target.batched(encode, target.known.image, title="codes of the attacker's pictures")
    new = target.batched(encode, target.probes.image, title="codes of the probes")
    keyed = []
    for code in (known, new):
        # One key for both: it is this key that is to be found out.
        keyed.append(target.batched(target.backbone.transform, code, target.one_key("pairs", len(code))))
    x = keyed[0].flatten(1).float()
    goal = known.flatten(1).float()
    x_new = keyed[1].flatten(1).float()
    goal_new = new.flatten(1).float()
    x, x_new = _standardised(x, x_new)
    goal, goal_new = _standardised(goal, goal_new)
    # Pictures come person by person, and the first few would show one or two people only.
    order = torch.randperm(len(x))
    x = x[order]
    goal = goal[order]
    counts = []
    # Besides the usual numbers those at which least squares have as many equations as unknowns, and twice as many.
    for n in sorted({*COUNTS, x.shape[1] + 1, 2 * x.shape[1], len(x)}):
        if n <= len(x):
            counts.append(n)
    linear = []
    for n in counts:
        linear.append(_compared(least_squares(x[:n], goal[:n])(x_new), goal_new))
    enough = []
    for n in counts:
        # With fewer pairs in all than that, the network still learns from all of them.
        if n >= min(SMALLEST_MLP, len(x)):
            enough.append(n)
    # Each of these takes a training, so the largest numbers alone.
    large = enough[-3:]
    mlp = []
    for n in large:
        mlp.append(_compared(_network(x[:n], goal[:n], target.budget.steps)(x_new), goal_new))
    return KnownPairs(
        x.shape[1], tuple(counts), *_columns(linear), tuple(large), *_columns(mlp),
        _compared(x_new, goal_new)[0], len(x_new),
    )  # fmt: skip


def _columns(found: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    cosines = []
    shares = []
    for cosine, share in found:
        cosines.append(cosine)
        shares.append(share)
    return tuple(cosines), tuple(shares)


def _standardised(known: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Both by mean and spread of what the attacker knows; entries that never vary stay near nothing."""
    mean = known.mean(0)
    spread = known.std(0)
    # The floor is relative to the largest spread; the last summand is for codes in which nothing varies.
    spread = spread.clamp(min=1e-3 * float(spread.max()) + 1e-12)
    return (known - mean) / spread, (new - mean) / spread


def _compared(found: Tensor, truth: Tensor) -> tuple[float, float]:
    """Mean cosine of rows `(N, D)`, and the share of rows nearest to their own truth."""
    similarity = F.normalize(found) @ F.normalize(truth).T
    hits = similarity.argmax(1) == torch.arange(len(found))
    return float(similarity.diagonal().mean()), float(hits.float().mean())


def _network(x: Tensor, goal: Tensor, steps: int) -> Callable[[Tensor], Tensor]:
    """An MLP with two hidden layers beside a linear path."""
    deep = nn.Sequential(
        nn.Linear(x.shape[1], HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, goal.shape[1])
    )
    straight = nn.Linear(x.shape[1], goal.shape[1])

    def predict(rows: Tensor) -> Tensor:
        made: Tensor = deep(rows) + straight(rows)
        return made

    def loss(rows: Tensor) -> Tensor:
        return F.mse_loss(predict(x[rows]), goal[rows])

    parameters = [*deep.parameters(), *straight.parameters()]
    fit(parameters, loss, len(x), 2 * steps, 64, LEARNING_RATE, f"a network on {len(x)} pairs")

    def apply(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return predict(rows)

    return apply
