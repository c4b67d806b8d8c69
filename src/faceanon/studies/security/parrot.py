"""Undo the method without any key: a network parrots what it learnt from pairs of anonymized and original pictures.

After McPherson, Shokri and Shmatikov, "Defeating Image Obfuscation with Deep Learning", arXiv:1609.00408, who showed
how little blur and pixelation hide from a network that was trained on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms.functional import gaussian_blur

from faceanon.metrics.recognition import chance
from faceanon.metrics.saved import saved
from faceanon.studies.security.base import Finding, SecurityRow, Verdict, graded
from faceanon.studies.security.recognised import Recognised, recognised
from faceanon.studies.security.restorer import Restorer
from faceanon.studies.security.training import fit

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

# Share recognised beyond what strangers are.
LIFT_HOLDS = 0.05
LIFT_PARTLY = 0.3
CONTROL_NEEDED = 0.3  # lift that the attacker must reach on a plain blur, or it is too weak to conclude from
CONTROL_GAIN = 0.1  # and how much of it must be the attack's doing
WIDTH = 128
DEPTH = 4
LEARNING_RATE = 3e-3
EFFORT = 2  # its batches cost little, so it gets twice the budget's
IDENTITY_WEIGHT = 0.5


@dataclass(frozen=True)
class Parrot(Finding):
    """What the inversion network restores, on people it has never seen.

    Args:
        before: The anonymized pictures themselves.
        after: What the network makes of them.
        control_before: The same people, blurred.
        control_after: What the same network, trained on blurred pictures, makes of them.
        chance: Rank-1 rate of a guess.
        steps: Training batches.
        pairs: Training pairs.
    """

    before: Recognised
    after: Recognised
    control_before: Recognised
    control_after: Recognised
    chance: float
    steps: int
    pairs: int

    def verdicts(self) -> list[Verdict]:
        """Whether the pictures can be undone without a key, if the attacker is any good at all."""
        # An attacker may as well leave the pictures as they are, where the network makes them worse.
        lift = max(self.before.lift, self.after.lift)
        control = self.control_after.lift
        gain = control - self.control_before.lift
        text = (
            f"a network trained on {self.pairs} pairs in {self.steps} batches brings back {self.after.same:.1%} of new "
            f"people without a key (strangers pass in {self.after.strangers:.1%}; before the attack "
            f"{self.before.same:.1%}; the same attack undoes a blur for {self.control_after.same:.1%})"
        )
        bounds = (
            f"up to {LIFT_HOLDS:.0%} beyond strangers before or after counts as safe, above {LIFT_PARTLY:.0%} as undone"
        )
        outcome = graded(lift, LIFT_HOLDS, LIFT_PARTLY)
        # The blur must be undone, and by the attack: a judge may see through a blur by itself.
        if outcome == "holds" and (control < CONTROL_NEEDED or gain < CONTROL_GAIN):
            weak = f"too weak to conclude: on a blur it must reach {CONTROL_NEEDED:.0%} and gain {CONTROL_GAIN:.0%}"
            return [Verdict("open", f"{text}; {weak}")]
        return [Verdict(outcome, f"{text} ({bounds})")]

    def rows(self) -> list[SecurityRow]:
        """Before and after, method and control."""
        parts = {
            "anonymized": self.before,
            "after the attack": self.after,
            "control, blurred": self.control_before,
            "control after the attack": self.control_after,
        }
        rows = []
        for what, figures in parts.items():
            rows += figures.rows(what)
        return [*rows, SecurityRow("rank 1 by chance", self.chance, "%")]


def parrot(target: Target) -> Parrot:
    """Train on the attacker's pairs, restore the probes; then the same against a blur."""
    probes = target.probes
    known = target.known.image
    # Through a file of 8 bits, as the method's own pictures.
    blurred = target.batched(lambda x: saved(control(x)), probes.image)
    known_blurred = target.batched(lambda x: saved(control(x)), known)
    restore = learn(target, target.known_hidden, known, "undoing the method")
    deblur = learn(target, known_blurred, known, "undoing a blur")

    def judged(face: Tensor) -> Recognised:
        return recognised(target.embed(face), target.gallery, probes.identity, target.threshold)

    return Parrot(
        judged(target.hidden),
        judged(target.batched(restore, target.hidden)),
        judged(blurred),
        judged(target.batched(deblur, blurred)),
        chance(probes.identity),
        EFFORT * target.budget.steps,
        len(known),
    )


def control(image: Tensor) -> Tensor:
    """A blur that the attacker must be able to undo: sigma a 32nd of the side."""
    sigma = image.shape[-1] / 32
    # Three sigmas to either side; the side of the kernel must be odd.
    blurry: Tensor = gaussian_blur(image, 2 * round(3 * sigma) + 1, [sigma, sigma])
    return blurry


def learn(target: Target, hidden: Tensor, original: Tensor, title: str) -> Callable[[Tensor], Tensor]:
    """A network from `(N, 3, S, S)` to what it was made from, by L1 and the training recogniser's cosine."""
    device = target.device
    recogniser = target.recogniser
    net = Restorer(hidden.shape[-1], WIDTH, DEPTH).to(device)
    # The originals stay the same in every batch, so they are embedded once.
    if recogniser is None:
        known = None
    else:
        known = target.batched(recogniser, original, title="the attacker's originals")

    def loss(rows: Tensor) -> Tensor:
        made: Tensor = net(hidden[rows].to(device))
        error: Tensor = (made - original[rows].to(device)).abs().mean()
        if recogniser is None or known is None:
            return error
        likeness: Tensor = F.cosine_similarity(recogniser(made), known[rows].to(device)).mean()
        return error + IDENTITY_WEIGHT * (1 - likeness)

    budget = target.budget
    fit(net.parameters(), loss, len(hidden), EFFORT * budget.steps, budget.batch, LEARNING_RATE, title)
    # Through a file as well: what is judged is a picture that the attacker could save.
    return lambda face: saved(net(face))
