"""Which picture of a batch lends its identity to which."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from faceanon.types import FaceBatch

Pairing = Literal["self", "roll", "others", "mixed"]


def identity_sources(batch: FaceBatch, batch_number: int, pairing: Pairing, same_every: int = 3) -> Tensor:
    """Row of the identity source for every row, `(B,)` int64.

    Args:
        batch: The batch.
        batch_number: Counts batches from 0.
        pairing: `self`: each row itself. `roll`: the row before it, and every `same_every`-th batch itself (DBAF's
            released code). `others`: the row before it, always; for methods that draw themselves right by
            construction. `mixed`: per row, at random, itself or another photo of the same person, a quarter each,
            or somebody else.
        same_every: See `roll`.

    Examples:
        >>> import torch
        >>> from faceanon.data.pairs import identity_sources
        >>> from faceanon.types import FaceBatch
        >>> batch = FaceBatch(torch.zeros(3, 3, 8, 8), torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]))
        >>> identity_sources(batch, batch_number=1, pairing="roll")
        tensor([2, 0, 1])
        >>> identity_sources(batch, batch_number=1, pairing="self")
        tensor([0, 1, 2])
    """
    rows = torch.arange(len(batch), device=batch.image.device)
    if pairing == "self":
        return rows
    if pairing == "roll" and batch_number % same_every == 0:
        return rows
    if pairing in ("roll", "others"):
        return rows.roll(1)
    same_person = batch.identity[:, None] == batch.identity[None]
    known = batch.identity[:, None] >= 0
    mate = _pick(same_person & known & (rows[:, None] != rows[None]), rows)
    others = ~(same_person & known)
    # The row before stands in where the whole batch shows one known person.
    another = _pick(others & (rows[:, None] != rows[None]), rows.roll(1))
    # A quarter draws itself, a quarter another picture of its person, half somebody else.
    choice = torch.rand(len(batch), device=batch.image.device)
    return torch.where(choice < 1 / 4, rows, torch.where(choice < 1 / 2, mate, another))


def _pick(allowed: Tensor, otherwise: Tensor) -> Tensor:
    """A random allowed column for every row, or `otherwise` where none is."""
    # The largest of random scores is a fair draw among the allowed, for all rows at once.
    score = torch.rand(allowed.shape, device=allowed.device) * allowed
    return torch.where(allowed.any(1), score.argmax(1), otherwise)
