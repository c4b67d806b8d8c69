"""Changes of a W+ code by a key that undo themselves, for each level of layers by itself.

They are ours, and in no paper: what a network has to learn then is only what to add.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

from faceanon.errors import UserError
from faceanon.networks.keyed import check_stretch

LEVELS = (4, 4)  # coarse and middle layers; the rest is fine (RiDDLE's groups, also in DBAF's released code)


def level_sizes(layers: int) -> list[int]:
    """How many of a code's layers are coarse, middle and fine."""
    return [*LEVELS, layers - sum(LEVELS)]


def by_level(rows: Tensor) -> tuple[Tensor, ...]:
    """Rows `(B, L, D)` of a code by the parts of a key that they go by: coarse, middle and fine ones."""
    return torch.split(rows, level_sizes(rows.shape[1]), 1)


def check_flips(share: float, stretch: float, given: bool = True) -> None:
    """Refuse what signs cannot be changed by.

    Args:
        share: `flip_share`, of the signs that a key changes.
        stretch: `flip_stretch`, by how much a stranger's code lies farther from the mean; 1 is none.
        given: Whether signs are changed at all.

    Raises:
        UserError: The share is not between 0 and 1; the stretch is not above 0, or has nothing to stretch.
    """
    if not 0 < share < 1:
        raise UserError(f"flip_share is {share}; give a number between 0 and 1")
    check_stretch("flip_stretch", stretch, "flips", given)


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
