"""A recogniser that has seen anonymized faces: does it find the people behind new ones?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.metrics.recognition import chance, genuine_pairs, impostor_pairs, pair_scores, threshold_at_far
from faceanon.networks.critics import ConvRecogniser
from faceanon.studies.security.base import FAR, DoesNotApplyError, Finding, SecurityRow, Verdict, graded, worst
from faceanon.studies.security.recognised import Recognised, recognised
from faceanon.studies.security.training import fit

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

# Share of the originals' rank-1 rate, beyond chance.
RANK_HOLDS = 0.05
RANK_PARTLY = 0.25
AUC_HOLDS = 0.65
AUC_PARTLY = 0.8
BEST_NEEDED = 0.25  # rank 1 of the originals beyond chance, or their recogniser is too weak to conclude from
LEARNING_RATE = 5e-4
TEMPERATURE = 0.1


@dataclass(frozen=True)
class Reidentified(Finding):
    """Anonymized pictures looked up among other pictures of everybody.

    Args:
        untrained: By the recogniser as it is.
        trained: By its copy that was fine-tuned on anonymized faces.
        originals: The originals themselves, by the recogniser as it is: what can be reached at most.
        chance: Rank-1 rate of a guess.
        steps: Training batches.
        pairs: Training pictures.
    """

    untrained: Recognised
    trained: Recognised
    originals: Recognised
    chance: float
    steps: int
    pairs: int

    def verdicts(self) -> list[Verdict]:
        """Whether people are found in spite of the method."""
        best = self.originals.rank1 - self.chance
        # The better of the two attackers counts: fine-tuning may also make a recogniser worse.
        share = max(0.0, max(self.trained.rank1, self.untrained.rank1) - self.chance) / max(best, 1e-6)
        auc = max(self.trained.auc, self.untrained.auc)
        outcomes = graded(share, RANK_HOLDS, RANK_PARTLY), graded(auc, AUC_HOLDS, AUC_PARTLY)
        text = (
            f"a recogniser fine-tuned on {self.pairs} anonymized faces finds {self.trained.rank1:.1%} of new people "
            f"(untrained {self.untrained.rank1:.1%}, chance {self.chance:.1%}, originals {self.originals.rank1:.1%}), "
            f"AUC {auc:.2f}"
        )
        bounds = (
            f"up to {RANK_HOLDS:.0%} of what the originals give beyond chance, and AUC {AUC_HOLDS}, counts as safe, "
            f"above {RANK_PARTLY:.0%} or {AUC_PARTLY} as found"
        )
        outcome = worst(*outcomes)
        if outcome == "holds" and best < BEST_NEEDED:
            return [Verdict("open", f"{text}; the recogniser hardly finds the originals, so that proves nothing")]
        return [Verdict(outcome, f"{text} ({bounds})")]

    def rows(self) -> list[SecurityRow]:
        """Rank 1 and AUC by recogniser."""
        parts = {"originals": self.originals, "not fine-tuned": self.untrained, "fine-tuned": self.trained}
        rows = []
        for what, figures in parts.items():
            rows += [SecurityRow(f"{what}: rank 1", figures.rank1, "%"), SecurityRow(f"{what}: AUC", figures.auc)]
        return [*rows, SecurityRow("rank 1 by chance", self.chance, "%")]


def reidentify(target: Target) -> Reidentified:
    """Fine-tune the training recogniser so that an anonymized picture meets another original of its person.

    Raises:
        DoesNotApplyError: The bundle has no training recogniser, or the attacker knows nobody twice.
    """
    teacher = target.recogniser
    if teacher is None:
        raise DoesNotApplyError("the bundle has no training recogniser to fine-tune")
    known = target.known
    pairs = genuine_pairs(known.identity)
    if not pairs.numel():
        raise DoesNotApplyError("the attacker's pictures show nobody twice")
    wanted = F.normalize(target.batched(teacher, known.image, title="the attacker's originals").float())
    # Both ways round: either picture of a pair may be the anonymized one.
    student = _tuned(target, wanted, torch.cat([pairs, pairs.flip(0)], 1))
    probes = target.probes
    gallery = F.normalize(target.batched(teacher, probes.image).float())
    # The teacher's: no judge's fits it.
    threshold = threshold_at_far(pair_scores(gallery, impostor_pairs(probes.identity)), FAR)

    def judged(network: nn.Module | object, face: Tensor) -> Recognised:
        embedding = F.normalize(target.batched(network, face).float())  # type: ignore[arg-type]
        return recognised(embedding, gallery, probes.identity, threshold)

    return Reidentified(
        judged(teacher, target.hidden),
        judged(student, target.hidden),
        judged(teacher, probes.image),
        chance(probes.identity),
        target.budget.steps,
        len(known),
    )


def _tuned(target: Target, wanted: Tensor, pairs: Tensor) -> nn.Module:
    """The student: its embedding of the first picture of a pair, anonymized, meets the teacher's of the second."""
    hidden = target.known_hidden
    identity = target.known.identity
    make = getattr(target.backbone.bundle, "trainable_recogniser", None)
    size = hidden.shape[-1]
    # Batch statistics of a trained recogniser stay; one that starts anew has none yet.
    student: nn.Module
    if make:
        student = make().eval()
    else:
        student = ConvRecogniser(size, (16, 32), wanted.shape[1]).train()
    student = student.to(target.device).requires_grad_(True)

    def loss(rows: Tensor) -> Tensor:
        first, second = pairs[:, rows]
        # Row i is the anonymized first picture of pair i. The right answer is column i, the second picture of the pair.
        logits = F.normalize(student(hidden[first].to(target.device))).cpu() @ wanted[second].T / TEMPERATURE
        same = identity[first][:, None] == identity[second]
        # Another picture of the same person in the batch is no wrong answer.
        others = same & ~torch.eye(len(rows), dtype=torch.bool)
        return F.cross_entropy(logits.masked_fill(others, -1e4), torch.arange(len(rows)))

    budget = target.budget
    title = "fine-tuning a recogniser"
    fit(student.parameters(), loss, pairs.shape[1], budget.steps, budget.batch, LEARNING_RATE, title)
    return student.eval()
