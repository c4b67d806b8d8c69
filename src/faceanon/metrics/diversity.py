"""How different the strangers are that different keys make of one face."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

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

    Examples:
        >>> import torch
        >>> from faceanon.metrics.diversity import KeyAngle
        >>> metric = KeyAngle()
        >>> metric.update(torch.eye(3)[None])  # one face, three keys, three unrelated strangers
        >>> round(metric.compute().item(), 1)
        90.0
    """

    def update(self, embedding: Tensor) -> None:
        """Add `(B, K, E)` embeddings of B faces under K >= 2 keys each.

        Raises:
            ValueError: Wrong shape, fewer than two keys, NaN, or a vector of length zero.
        """
        first, second = key_pairs(check_keys(embedding))
        # acos loses half its digits near 1; the half-angle form does not
        angle = 2 * torch.atan2((first - second).norm(dim=-1), (first + second).norm(dim=-1))
        super().update(angle.mean(1).rad2deg())


class KeySpread(Metric):
    """Key diversity: how far apart the strangers are, on average and where they come nearest.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.diversity import KeySpread
        >>> metric = KeySpread()
        >>> metric.update(torch.eye(3)[None, [0, 0, 1]])  # two of three keys give one stranger
        >>> {name: round(value.item(), 2) for name, value in metric.compute().items()}
        {'mean': 0.67, 'nearest': 0.0}
    """

    full_state_update = False
    totals: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("totals", default=torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, embedding: Tensor) -> None:
        """Add `(B, K, E)` embeddings of B faces under K >= 2 keys each.

        Raises:
            ValueError: Wrong shape, fewer than two keys, NaN, or a vector of length zero.
        """
        embedding = check_keys(embedding)
        cosine = embedding @ embedding.mT
        count = cosine.shape[1]
        apart = ~torch.eye(count, dtype=torch.bool, device=cosine.device)
        mean = 1 - cosine[:, apart].mean(1)
        # A key is of no use if one other key gives the same stranger, however different all the rest are.
        # The diagonal gets the least possible cosine, so that no key is the nearest to itself.
        nearest = 1 - cosine.masked_fill(~apart, -1).amax((1, 2))
        self.totals += torch.stack([mean.sum(), nearest.sum()])
        self.count += len(embedding)

    def compute(self) -> dict[str, Tensor]:
        """`mean`: 1 - cos over all pairs of keys; `nearest`: over the nearest pair of each face; 1 is unrelated.

        Raises:
            ValueError: Nothing was added.
        """
        if not self.count:
            raise ValueError("nothing to compute: no embeddings were added")
        mean, nearest = self.totals / self.count
        return {"mean": mean, "nearest": nearest}


def check_keys(embedding: Tensor) -> Tensor:
    """Return `(B, K, E)` embeddings under K >= 2 keys in float64, of unit length.

    Raises:
        ValueError: Wrong shape, fewer than two keys, NaN, or a vector of length zero.
    """
    embedding = check_embedding("embedding", embedding, 3)
    if embedding.shape[1] < 2:
        raise ValueError(f"an angle between keys needs at least two keys, got {embedding.shape[1]}")
    return embedding.double()
