"""Changes of a W+ code by a key that undo themselves, for each level of layers by itself.

They are ours, and in no paper: what a network has to learn then is only what to add.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

LEVELS = (4, 4)  # coarse and middle layers; the rest is fine (RiDDLE's groups, also in DBAF's released code)


def by_level(rows: Tensor) -> tuple[Tensor, ...]:
    """Rows `(B, L, D)` of a code by the parts of a key that they go by: coarse, middle and fine ones."""
    return torch.split(rows, [*LEVELS, rows.shape[1] - sum(LEVELS)], 1)


def flipped(identity: Tensor, key: Tensor, kept: int = 0, share: float = 0.5) -> Tensor:
    """Change the signs of an identity code as a key says; the same key changes them back.

    Args:
        identity: `(B, L, D)`.
        key: `(B, 3, D)`, normally distributed; where it is low, the sign changes. Its first part counts for what all
            rows share, the first row, and all three, by level, for what the others have beyond it.
        kept: Numbers of the first row that keep their sign, from its beginning.
        share: Of the signs, how many change.

    Examples:
        >>> import torch
        >>> from faceanon.networks.level_edits import flipped
        >>> code, key = torch.randn(2, 14, 8), torch.randn(2, 3, 8)
        >>> stranger = flipped(code, key)
        >>> torch.allclose(flipped(stranger, key), code, atol=1e-5)
        True
        >>> torch.allclose(flipped(stranger, -key), code, atol=1e-5)
        False
    """
    # A normally distributed number lies below this with a probability of `share`.
    low = NormalDist().inv_cdf(share)
    signs = torch.where(key < low, -1.0, 1.0).to(identity.dtype)
    shared = identity[:, :1]
    changed = []
    for number, part in enumerate(by_level(identity - shared)):
        changed.append(part * signs[:, number, None])
    # A clone: the products above keep `signs` for the backward pass, so the next line must not write into it.
    signs = signs[:, :1].clone()
    signs[..., :kept] = 1
    return shared * signs + torch.cat(changed, 1)
