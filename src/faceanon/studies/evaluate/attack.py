"""Attackers that learn from given pairs of pictures: they know one half of the people, and attack the other."""

from __future__ import annotations

import torch
from torch import Tensor

from faceanon.backbones.pictures import WithoutCodes
from faceanon.data.batches import hold_out
from faceanon.errors import UserError
from faceanon.landmarks.mesh import FaceMesh
from faceanon.studies.photographs.attackers import FEWEST_PEOPLE, Blurred, PaintedOver, attack
from faceanon.studies.photographs.figures import Figures
from faceanon.studies.photographs.judges import Judge
from faceanon.studies.security.base import BUDGETS
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle


class KnownByPictures(WithoutCodes):
    """A method of which nothing is known but what it made of some pictures.

    Args:
        bundle: With the attackers' recogniser.
        original: `(N, 3, S, S)`.
        anonymized: What became of each.
    """

    reversible = False
    key_shape = (1,)
    key_bits = None
    trained_by = ()
    licence = "no weights of its own"

    def __init__(self, bundle: Bundle, original: Tensor, anonymized: Tensor) -> None:
        super().__init__()
        self.bundle = bundle
        self.made = {row.numpy().tobytes(): after for row, after in zip(original, anonymized, strict=True)}

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """What became of `(B, 3, S, S)`, all of them among the known pictures; `key` is ignored."""
        return torch.stack([self.made[row.numpy().tobytes()] for row in image.cpu()]).to(image.device)


def add_attacks(
    bundle: Bundle, judge: Judge, original: Tensor, anonymized: Tensor, people: Tensor, budget: str, figures: Figures
) -> None:
    """Train attackers, and add whom they find; beside them the same before painted-over and before blurred faces.

    Args:
        bundle: With a recogniser, which the attackers fine-tune.
        judge: Another recogniser; says whether an undone picture shows the person.
        original: `(N, 3, S, S)` in [-1, 1].
        anonymized: The same faces, anonymized.
        people: `(N,)` labels; -1 where unknown. Who has a single picture takes no part.
        budget: A name of `security.base.BUDGETS`.
        figures: Where to.

    Raises:
        UserError: Too few people have two pictures.
    """
    counts = torch.unique(people[people >= 0], return_counts=True)
    names = [str(label) for label, count in zip(*map(Tensor.tolist, counts), strict=True) if count > 1]
    if len(names) < FEWEST_PEOPLE:
        raise UserError(
            f"--attack: {len(names)} people have two pictures, and attackers learn from some and attack others: "
            f"give {FEWEST_PEOPLE} people or more"
        )
    _, chosen = hold_out(names, 0, len(names) // 2, 0)
    attacked = torch.isin(people, torch.tensor([int(name) for name in names if name in chosen]))
    known = torch.isin(people, torch.tensor([int(name) for name in names if name not in chosen]))
    methods = {
        "": KnownByPictures(bundle, original, anonymized),
        "/painted": PaintedOver(bundle, FaceMesh()),
        "/blur": Blurred(bundle),
    }
    halves = []
    for rows in (attacked, known):
        halves.append(FaceBatch(original[rows], people[rows], torch.full((int(rows.sum()),), -1)))
    for suffix, method in methods.items():
        found = attack(method, judge, halves[0], halves[1], BUDGETS[budget], 0, bundle.device)
        for name, value in found.values.items():
            # How many people and what a guess finds is the same for all three.
            if not suffix or name not in ("attack/people", "attack/chance"):
                figures.values[f"{name}{suffix}"] = value
        for name, interval in found.intervals.items():
            figures.intervals[f"{name}{suffix}"] = interval
    del figures.values["attack/people"]
