"""Do two anonymized pictures betray that they show one person, under one key and under two?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from faceanon.metrics.interval import rate_interval
from faceanon.metrics.recognition import genuine_pairs, impostor_pairs, pair_scores
from faceanon.metrics.roc import area_under_roc
from faceanon.studies.security.base import Finding, SecurityRow, Verdict, graded, worst

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

GROUP = 20  # people that share a key
LINK_HOLDS = 0.05
LINK_PARTLY = 0.2
AUC_HOLDS = 0.65
AUC_PARTLY = 0.8
MERGED = 0.2


@dataclass(frozen=True)
class Linkability(Finding):
    """Rates at the judge's threshold of pairs of anonymized pictures taken for one person.

    Args:
        same_key_one: One key, two photos of one person.
        same_key_two: One key, two people.
        other_key_one: Two keys, two photos of one person.
        other_key_one_interval: Its 95% interval, over people.
        other_key_two: Two keys, two people.
        other_key_auc: How well pairs of one person stand out from pairs of two, under different keys.
        originals_one: Two photos of one person, not anonymized.
        group: People that share a key.
        keyed: Whether the method takes a key at all.
    """

    same_key_one: float
    same_key_two: float
    other_key_one: float
    other_key_one_interval: tuple[float, float]
    other_key_two: float
    other_key_auc: float
    originals_one: float
    group: int
    keyed: bool = True

    def verdicts(self) -> list[Verdict]:
        """On different keys, on one key, and on two people under one key."""
        rate = self.other_key_one
        auc = self.other_key_auc
        outcomes = graded(rate, LINK_HOLDS, LINK_PARTLY), graded(auc, AUC_HOLDS, AUC_PARTLY)
        under = "without a key"
        if self.keyed:
            under = "under different keys"
        text = (
            f"{under} {rate:.1%} of the pairs of one person are linked, AUC {auc:.2f} "
            f"(up to {LINK_HOLDS:.0%} and {AUC_HOLDS} counts as unlinkable, "
            f"above {LINK_PARTLY:.0%} or {AUC_PARTLY} as linkable)"
        )
        verdicts = [Verdict(worst(*outcomes), text)]
        if not self.keyed:
            return verdicts
        text = (
            f"under one key {self.same_key_one:.1%} of the pairs of one person become one stranger "
            f"(originals: {self.originals_one:.1%}): who shares a password for many photos can be linked across them"
        )
        verdicts.append(Verdict(graded(self.same_key_one, LINK_HOLDS, LINK_PARTLY), text))
        text = f"under one key {self.same_key_two:.1%} of the pairs of two people become one stranger"
        merged = f"(above {MERGED:.0%} the key alone decides who is seen)"
        return [*verdicts, Verdict("holds" if self.same_key_two <= MERGED else "partly", f"{text} {merged}")]

    def rows(self) -> list[SecurityRow]:
        """The four rates, and the originals'."""
        return [
            SecurityRow("originals, one person", self.originals_one, "%"),
            SecurityRow("one key, one person", self.same_key_one, "%"),
            SecurityRow("one key, two people", self.same_key_two, "%"),
            SecurityRow("different keys, one person", self.other_key_one, "%"),
            SecurityRow("different keys, two people", self.other_key_two, "%"),
            SecurityRow("different keys, AUC of one person against two", self.other_key_auc),
        ]


def linkability(target: Target) -> Linkability:
    """Anonymize groups of people under one key each, and everybody under keys of their own.

    A method without a key has one key for everybody.
    """
    identity = target.probes.identity
    # By the person's place among all, so that all pictures of a person share a key.
    group = torch.unique(identity, return_inverse=True)[1] // GROUP
    keys = []
    for number in range(int(group.max()) + 1):
        keys.append(target.one_key(f"group {number}", 1)[0])
    each = torch.stack(keys)
    shared = target.embed(target.anonymize(target.probes.image, each[group], title="one key for many"))
    apart = target.embed(target.hidden)
    one = genuine_pairs(identity)
    two = impostor_pairs(identity)
    # Of two people, the pairs that happen to share a key.
    together = two[:, group[two[0]] == group[two[1]]]

    def rate(embedding: Tensor, pairs: Tensor) -> float:
        return float((pair_scores(embedding, pairs) > target.threshold).float().mean())

    scores = pair_scores(apart, one)
    linked = (scores > target.threshold).float()
    return Linkability(
        rate(shared, one),
        rate(shared, together),
        float(linked.mean()),
        rate_interval(linked.numpy(), identity[one[0]].numpy()),
        rate(apart, two),
        area_under_roc(scores, pair_scores(apart, two)),
        rate(target.gallery, one),
        GROUP,
        target.backbone.key_bits is not None,
    )
