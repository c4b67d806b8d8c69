"""Exactly invertible keyed maps of identity codes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faceanon.errors import UserError


def check_stretch(name: str, stretch: float, needed: str, given: bool) -> None:
    """Refuse a stretch of keyed codes that is none, or that a method without a certain option does not use.

    Args:
        name: Of the option that holds the stretch.
        stretch: By how much a stranger's code lies farther from the mean; 1 is none.
        needed: Name of the option that a stretch needs.
        given: Whether that one is given.

    Raises:
        UserError: The stretch is not above 0, or is given without what it needs.
    """
    if stretch <= 0 or (stretch != 1 and not given):
        raise UserError(f"{name} is {stretch}; give 1, or with {needed} any number above 0")


def stretched(code: Tensor, by: float, kept: int) -> Tensor:
    """Codes that lie `by` times as far from the mean code, which is 0.

    Args:
        code: `(..., D)`.
        by: The stretch; its inverse undoes it.
        kept: Numbers that stay as they are, from the beginning.

    Examples:
        >>> import torch
        >>> from faceanon.networks.keyed import stretched
        >>> stretched(torch.tensor([1.0, 2.0, 3.0]), 1.5, kept=1)
        tensor([1.0000, 3.0000, 4.5000])
    """
    if by == 1:
        return code
    return torch.cat([code[..., :kept], by * code[..., kept:]], -1)


def turned_pairs(code: Tensor, cosine: float | Tensor, sine: Tensor) -> Tensor:
    """Codes `(..., 2 m)` whose neighbouring numbers are turned against each other.

    Args:
        code: `(..., 2 m)`.
        cosine: Of the angle, or of each pair's angle, of a shape that fits `(..., m)`.
        sine: Of each pair's angle, likewise; its sign is the side.

    Examples:
        >>> import torch
        >>> from faceanon.networks.keyed import turned_pairs
        >>> turned_pairs(torch.tensor([1.0, 0.0, 0.0, 2.0]), 0.0, torch.tensor([1.0, -1.0]))
        tensor([0., 1., 2., 0.])
    """
    first = code[..., 0::2]
    second = code[..., 1::2]
    return torch.stack([cosine * first - sine * second, sine * first + cosine * second], -1).flatten(-2)


class KeyedTurn(nn.Module):
    """Turn a white code by a keyed, orthogonal, antisymmetric map: I' = (s J - c) I.

    J = Q J0 Q^T, where J0 turns each pair of axes by 90 degrees and Q is a product of Householder reflections along the
    key's vectors. J is orthogonal and antisymmetric, so every code ends at the same angle from where it began, whatever
    the key: cos = -c. The inverse is its transpose. Linear in the code: about K known pairs (I, I') under one key
    reveal it, so this is obfuscation of the code, not encryption (docs/methods/rotation.md).

    Args:
        dim: Length K of a code, even.
        away: c in [0, 1), how far beyond the right angle codes are turned.
        stretch: By how much a turned code lies farther from the mean than before; the way back divides again.

    Examples:
        >>> import torch
        >>> from faceanon.networks.keyed import KeyedTurn
        >>> turn = KeyedTurn(dim=20, away=0.1)
        >>> code = torch.randn(3, 20)
        >>> key = torch.randn(3, 60)
        >>> stranger = turn(code, key)
        >>> torch.cosine_similarity(code, stranger)
        tensor([-0.1000, -0.1000, -0.1000])
        >>> torch.allclose(turn(stranger, key, inverse=True), code, atol=1e-4)
        True
    """

    def __init__(self, dim: int, away: float = 0.1, stretch: float = 1.0) -> None:
        if dim % 2 or dim < 2:
            raise ValueError(f"a code must have an even number of entries, not {dim}")
        super().__init__()
        self.dim = dim
        self.away = away
        self.stretch = stretch

    def forward(self, code: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn codes `(B, K)`, or turn them back.

        Args:
            code: `(B, K)`.
            key: `(B, n)` standard normal numbers; the first `n // K` runs of K are the reflections.
            inverse: Undo.
        """
        # Whole vectors only; numbers of the key beyond them are not used.
        used = key[:, : key.shape[1] // self.dim * self.dim]
        vectors = used.reshape(key.shape[0], -1, self.dim)  # (B, m, K); no `len`, which an export would fix
        vectors = vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        turned = code
        # Householder reflections; the same in the opposite order undo them.
        for vector in vectors.unbind(1):
            turned = turned - 2 * vector * (vector * turned).sum(-1, keepdim=True)
        first = turned[:, 0::2]
        second = turned[:, 1::2]
        turned = torch.stack([-second, first], -1).flatten(1)
        for vector in vectors.flip(1).unbind(1):
            turned = turned - 2 * vector * (vector * turned).sum(-1, keepdim=True)
        sine = (1 - self.away**2) ** 0.5
        # J is antisymmetric and s^2 + c^2 = 1, so s J - c is orthogonal. Its inverse is its transpose -s J - c.
        result: Tensor = (-sine if inverse else sine) * turned - self.away * code
        return result / self.stretch if inverse else result * self.stretch
