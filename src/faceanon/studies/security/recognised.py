"""How far changed pictures still lead to their people; one set of figures for all attacks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from faceanon.metrics.interval import rate_interval
from faceanon.metrics.recognition import Lookup, compare_rows
from faceanon.metrics.roc import area_under_roc
from faceanon.studies.security.base import SecurityRow

Interval = tuple[float, float]


@dataclass(frozen=True)
class Recognised:
    """Changed pictures against originals.

    Args:
        same: Share accepted as the very picture they were made from.
        same_interval: Its 95% interval, over people.
        strangers: Share of pairs with other people that are accepted all the same.
        rank1: Share whose nearest picture, their own left out, shows their person.
        rank1_interval: Its 95% interval, over people.
        auc: Probability that another picture of the person scores above one of somebody else; .5 is chance.
        cosine: Mean cosine with the original.
    """

    same: float
    same_interval: Interval
    strangers: float
    rank1: float
    rank1_interval: Interval
    auc: float
    cosine: float

    @property
    def lift(self) -> float:
        """Accepted with the right original beyond what is accepted with anybody's."""
        return max(0.0, self.same - self.strangers)

    def rows(self, what: str) -> list[SecurityRow]:
        """The figures as lines of a table; `what` says whose faces they are of."""
        return [
            SecurityRow(f"{what}: accepted as the original", self.same, "%"),
            SecurityRow(f"{what}: accepted as somebody else", self.strangers, "%"),
            SecurityRow(f"{what}: leads to another picture of the person (rank 1)", self.rank1, "%"),
            SecurityRow(f"{what}: other pictures of the person against other people, AUC", self.auc),
        ]


def recognised(probe: Tensor, gallery: Tensor, identity: Tensor, threshold: float) -> Recognised:
    """Compare changed pictures with originals, row by row and all with all.

    Args:
        probe: `(N, E)` unit embeddings of changed pictures.
        gallery: `(N, E)` of the originals, in the same order.
        identity: `(N,)` labels; at least one person with two pictures, and two people.
        threshold: Cosine above which a pair is accepted.
    """
    lookup = Lookup(probe, gallery, identity)
    cosine = compare_rows(probe, gallery)
    accepted = (cosine > threshold).float()
    hits = lookup.hits()
    pairs = lookup.pairs()
    people = identity.numpy()
    return Recognised(
        float(accepted.mean()),
        rate_interval(accepted.numpy(), people),
        float((pairs["impostor"] > threshold).float().mean()),
        float(hits.nanmean()),
        rate_interval(hits.numpy(), people),
        area_under_roc(pairs["genuine"], pairs["impostor"]),
        float(cosine.mean()),
    )
