"""How different the strangers are that different keys make of one face."""

from __future__ import annotations

import torch
from torch import Tensor

from faceanon.metrics.checks import check_embedding
from faceanon.metrics.quality import Mean


def key_pairs(embedding: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides of all pairs of keys: `(B, K, E)` -> two `(B, K (K - 1) / 2, E)`."""
    count = embedding.shape[1]
    row, column = torch.triu_indices(count, count, offset=1, device=embedding.device)
    return embedding[:, row], embedding[:, column]


class KeyAngle(Mean):
    """KFFA, our reading: mean over faces of the mean pairwise angle, in degrees, between their anonymized versions.

    The papers print no formula. Larger means more diverse; 90 is what unrelated embeddings have.
    """

    def update(self, embedding: Tensor) -> None:
        """Add `(B, K, E)` embeddings of B faces under K >= 2 keys each.

        Raises:
            ValueError: Wrong shape, fewer than two keys, NaN, or a vector of length zero.
        """
        embedding = check_embedding("embedding", embedding, 3)
        if embedding.shape[1] < 2:
            raise ValueError(f"an angle between keys needs at least two keys, got {embedding.shape[1]}")
        first, second = key_pairs(embedding.double())
        # acos loses half its digits near 1; the half-angle form does not
        angle = 2 * torch.atan2((first - second).norm(dim=-1), (first + second).norm(dim=-1))
        super().update(angle.mean(1).rad2deg())
