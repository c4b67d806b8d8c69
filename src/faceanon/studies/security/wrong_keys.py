"""What does a wrong key show, and can somebody who tries keys see when one fits?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.metrics.roc import area_under_roc
from faceanon.studies.security.base import RIGHT_NEEDED, Finding, SecurityRow, Verdict, graded
from faceanon.studies.security.training import LogisticDetector

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

# Share of faces that a wrong key brings back.
OPEN_HOLDS = 0.05
OPEN_PARTLY = 0.2
# AUC of the detector.
TELL_HOLDS = 0.65
TELL_PARTLY = 0.9
GRID = 8


@dataclass(frozen=True)
class WrongKeys(Finding):
    """Right keys against wrong ones.

    Args:
        right: Cosines with the original, opened with the right key.
        wrong: Likewise with a wrong key.
        right_rate: Share of `right` above the judge's threshold.
        wrong_rate: Share of `wrong` above it.
        threshold: The judge's.
        detector_auc: How well a classifier that never sees the original tells right from wrong keys, on new people.
        detector_faces: Pictures that it learnt from.
    """

    right: tuple[float, ...]
    wrong: tuple[float, ...]
    right_rate: float
    wrong_rate: float
    threshold: float
    detector_auc: float
    detector_faces: int

    def verdicts(self) -> list[Verdict]:
        """Whether wrong keys open, and whether trying keys shows which one fits."""
        auc = self.detector_auc
        bounds = f"AUC {auc:.2f}; up to {TELL_HOLDS} counts as blind, from {TELL_PARTLY} as seeing"
        tell = {
            "holds": "a classifier that is to tell whether a key fits cannot",
            "partly": "whoever tries keys can tell to some degree by program when one fits",
            "fails": "whoever tries keys can tell by program when one fits: only the cost of guessing protects",
        }
        outcome = graded(auc, TELL_HOLDS, TELL_PARTLY)
        # A detector that is blind because no key opens says nothing good of the lock.
        if outcome == "holds" and self.right_rate < RIGHT_NEEDED:
            return [
                self._lock(),
                Verdict("open", f"no key fits well enough to be told from wrong ones (AUC {auc:.2f})"),
            ]
        return [self._lock(), Verdict(outcome, f"{tell[outcome]} ({bounds})")]

    def _lock(self) -> Verdict:
        outcome = graded(self.wrong_rate, OPEN_HOLDS, OPEN_PARTLY)
        if outcome == "holds" and self.right_rate < RIGHT_NEEDED:
            text = f"the right key itself brings back only {self.right_rate:.0%}, so wrong keys prove nothing"
            return Verdict("open", text)
        text = f"a wrong key brings back {self.wrong_rate:.1%} of the faces, the right one {self.right_rate:.1%}"
        bounds = f"up to {OPEN_HOLDS:.0%} counts as locked, above {OPEN_PARTLY:.0%} as open"
        return Verdict(outcome, f"{text} ({bounds})")

    def rows(self) -> list[SecurityRow]:
        """Recovery rates and mean cosines with right and wrong keys, and the AUC of the detector."""
        return [
            SecurityRow("recognised with the right key", self.right_rate, "%"),
            SecurityRow("recognised with a wrong key", self.wrong_rate, "%"),
            SecurityRow("mean cosine, right key", sum(self.right) / len(self.right)),
            SecurityRow("mean cosine, wrong key", sum(self.wrong) / len(self.wrong)),
            SecurityRow("detector of the right key, AUC on new people", self.detector_auc),
        ]


def wrong_keys(target: Target) -> WrongKeys:
    """Open every probe with its key and with another, and train a detector on the attacker's own pictures.

    Raises:
        DoesNotApplyError: The method takes no key, or has no way back.
    """
    target.need_key()
    target.need_way_back()
    shut = target.recover(target.hidden, target.keys("wrong", target.probes), title="wrong keys")
    cosines = []
    for face in (target.opened, shut):
        cosines.append((target.embed(face) * target.gallery).sum(1))
    known = target.known.map(lambda tensor: tensor[: target.budget.detected])
    hidden = target.known_hidden[: len(known)]
    # A key follows from the role and the picture, so these are the keys that `known_hidden` was made with.
    right = target.recover(hidden, target.keys("known", known), title="right keys to learn from")
    wrong = target.recover(hidden, target.keys("known wrong", known), title="wrong keys to learn from")
    seen = []
    for face in (right, wrong):
        seen.append(traces(target, face, hidden))
    labels = torch.cat([torch.ones(len(hidden)), torch.zeros(len(hidden))])
    detector = LogisticDetector(torch.cat(seen), labels)
    right_score = detector.score(traces(target, target.opened, target.hidden))
    wrong_score = detector.score(traces(target, shut, target.hidden))
    right_cosine, wrong_cosine = cosines
    return WrongKeys(
        tuple(right_cosine.tolist()),
        tuple(wrong_cosine.tolist()),
        float((right_cosine > target.threshold).float().mean()),
        float((wrong_cosine > target.threshold).float().mean()),
        target.threshold,
        area_under_roc(right_score, wrong_score),
        len(hidden),
    )


def traces(target: Target, face: Tensor, hidden: Tensor) -> Tensor:
    """What the detector looks at: the opened face, and how it differs from the anonymized one; `(B, D)`."""
    recogniser = target.recogniser
    perceptual = target.network("perceptual")
    change = (face - hidden).abs()
    fine = (face - F.avg_pool2d(face, 3, 1, 1)).abs()
    features = []
    for item in (face, change, fine):
        features.append(F.adaptive_avg_pool2d(item, GRID).flatten(1))
    if recogniser is not None:
        one = target.batched(recogniser, face)
        other = target.batched(recogniser, hidden)
        features += [one, (one * other).sum(1, keepdim=True)]
    if perceptual is not None:
        features.append(target.batched(perceptual.features, face))
    return torch.cat(features, 1)
