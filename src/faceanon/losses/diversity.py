"""Keep pseudonyms apart; identity codes `(B, K)` of any length are compared by their cosine."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def inter_key(first: Tensor, second: Tensor) -> Tensor:
    """One person under two keys: mean max(cos, 0) of rows `(B, K)`, the second part of iFADIT eq. (17).

    Examples:
        >>> import torch
        >>> from faceanon.losses.diversity import inter_key
        >>> first = torch.tensor([[1.0, 0.0]])
        >>> inter_key(first, first), inter_key(first, torch.tensor([[0.0, 1.0]]))
        (tensor(1.), tensor(0.))
    """
    return F.cosine_similarity(first, second).clamp(min=0).mean()


def inter_identity(codes: Tensor, identity: Tensor) -> Tensor:
    """Different persons under one key: mean max(cos, 0) over all pairs of them; 0 where there is no pair.

    It is the first part of iFADIT eq. (17).

    Args:
        codes: `(B, K)`.
        identity: `(B,)` int64 label of the person; -1, unknown, is nobody else's.

    Examples:
        >>> import torch
        >>> from faceanon.losses.diversity import inter_identity
        >>> codes = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> inter_identity(codes, torch.tensor([5, 5, 6]))  # the two alike are one person
        tensor(0.)
        >>> inter_identity(codes, torch.tensor([5, 7, 6]))
        tensor(0.3333)
    """
    unit = F.normalize(codes)
    same = (identity[:, None] == identity[None]) & (identity >= 0)[:, None]
    # A row is no pair with itself, also where its person is unknown.
    same.fill_diagonal_(fill_value=True)
    near = (unit @ unit.T).clamp(min=0)
    return (near * ~same).sum() / (~same).sum().clamp(min=1)
