"""The space in which a key turns an identity: whitened principal components of a recogniser's embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class IdentitySpace(nn.Module):
    """Codes of persons, and the turns that a key makes in them.

    A code is the embedding's whitened principal components, about normally distributed with variance 1. Some
    directions of it tell sex, age and skin; a turn leaves the code's part along them as it is, so that the new person
    fits hair, neck and hands. Every vector of the remaining space is turned by exactly 90 degrees, by an orthogonal map
    that the key draws: the new person has nothing of the old one there, and two keys give unrelated persons.

    Args:
        embedding: Length E of the recogniser's embeddings.
        size: Length N of a code.
        kept: Number K of directions that a turn leaves; N - K is even.

    Attributes:
        mean: `(E,)` mean of the embeddings.
        basis: `(N, E)` principal components, orthonormal.
        scale: `(N,)` standard deviations along them.
        kept_basis: `(N, K)` orthonormal directions of a code that a turn leaves.
        free_basis: `(N, N - K)` orthonormal directions that it turns.

    Examples:
        >>> import torch
        >>> from faceanon.weights.bundle import Bundle
        >>> space = Bundle("photo128").build("identity_space")
        >>> anna, bela = torch.randn(2, 1, space.size)
        >>> both = space.mixed(anna, bela)
        >>> torch.allclose(space.kept(both), space.kept(anna), atol=1e-4)
        True
    """

    mean: Tensor
    basis: Tensor
    scale: Tensor
    kept_basis: Tensor
    free_basis: Tensor

    def __init__(self, embedding: int = 256, size: int = 64, kept: int = 4) -> None:
        super().__init__()
        if (size - kept) % 2:
            raise ValueError(f"{size - kept} directions cannot all be turned by 90 degrees: the number must be even")
        self.size = size
        self.free = size - kept
        self.register_buffer("mean", torch.zeros(embedding))
        self.register_buffer("basis", torch.eye(size, embedding))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("kept_basis", torch.eye(size)[:, :kept].contiguous())
        self.register_buffer("free_basis", torch.eye(size)[:, kept:].contiguous())

    def code(self, embedding: Tensor) -> Tensor:
        """Embeddings `(B, E)` of unit length -> codes `(B, N)`."""
        return (embedding - self.mean) @ self.basis.T / self.scale

    def kept(self, code: Tensor) -> Tensor:
        """How old, of which sex and skin: codes `(B, N)` -> `(B, K)`, each about of variance 1."""
        return code @ self.kept_basis

    def mixed(self, code: Tensor, other: Tensor) -> Tensor:
        """Sex, age and skin of `code`, all else of `other`; both `(B, N)`."""
        kept = code @ self.kept_basis @ self.kept_basis.T
        return kept + other @ self.free_basis @ self.free_basis.T

    def anybody(self, code: Tensor) -> Tensor:
        """Codes `(B, N)` that say sex, age and skin alone: of the mean of such people."""
        return code - code @ self.free_basis @ self.free_basis.T
