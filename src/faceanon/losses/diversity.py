"""Keep pseudonyms apart; identity codes `(B, K)` of any length are compared by their cosine."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def inter_key(first: Tensor, second: Tensor) -> Tensor:
    """One person under two keys: mean max(cos, 0) of rows `(B, K)`. iFADIT gives it a name; the form is our reading."""
    return F.cosine_similarity(first, second).clamp(min=0).mean()


def inter_identity(codes: Tensor, identity: Tensor) -> Tensor:
    """Different persons under one key: mean max(cos, 0) over all pairs of them; 0 where there is no pair.

    iFADIT gives it a name; the form is our reading.

    Args:
        codes: `(B, K)`.
        identity: `(B,)` int64 label of the person; -1, unknown, is nobody else's.
    """
    unit = F.normalize(codes)
    same = (identity[:, None] == identity[None]) & (identity >= 0)[:, None]
    same.fill_diagonal_(fill_value=True)
    near = (unit @ unit.T).clamp(min=0)
    return (near * ~same).sum() / (~same).sum().clamp(min=1)
