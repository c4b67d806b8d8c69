"""Linear discriminants of recogniser embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Discriminants(nn.Module):
    """Project embeddings to the directions in which persons differ most and photos of one person least.

    With labels these are Fisher's discriminants; without, the principal components.

    Args:
        inputs: Length E of an embedding.
        outputs: Length K of the code, at most E.

    Examples:
        >>> import torch
        >>> from faceanon.networks.discriminants import Discriminants
        >>> embedding = torch.randn(200, 16)
        >>> code = Discriminants(16, 4)
        >>> code.fit(embedding)  # nobody is named: principal components
        >>> code(embedding).shape
        torch.Size([200, 4])
    """

    mean: Tensor
    directions: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("directions", torch.eye(inputs)[:, :outputs].clone())

    def forward(self, embedding: Tensor) -> Tensor:
        """`(B, E)` -> `(B, K)`."""
        return (embedding - self.mean) @ self.directions

    def fit(self, embeddings: Tensor, identity: Tensor | None = None) -> None:
        """Measure the directions.

        Args:
            embeddings: `(N, E)`.
            identity: `(N,)` int64, -1 where unknown; None where nobody is known, for principal components.
        """
        # Float64, since roots of small eigenvalues divide below.
        x = embeddings.double()
        mean = x.mean(0)
        centred = x - mean
        total = centred.T @ centred / len(x)
        # Fisher's criterion on whitened data: once the total covariance is the identity, the directions that vary least
        # within persons vary most between them.
        values, vectors = torch.linalg.eigh(total)
        # Directions of hardly any variance would be blown up without the bound.
        whiten = vectors @ torch.diag(values.clamp(min=1e-4 * float(values[-1])).rsqrt()) @ vectors.T
        within = None if identity is None else _within(x, identity)
        if within is None:
            # eigh gives the smallest eigenvalues first.
            directions = whiten @ vectors.flip(1)[:, : self.outputs]
        else:
            # Least variance within persons first.
            order = torch.linalg.eigh(whiten @ within @ whiten).eigenvectors
            directions = whiten @ order[:, : self.outputs]
        self.mean.copy_(mean)
        self.directions.copy_(directions)


def _within(x: Tensor, identity: Tensor) -> Tensor | None:
    """Covariance `(E, E)` of embeddings around their persons' means; None where no person has two photos."""
    known = identity >= 0
    labels, index, counts = torch.unique(identity[known], return_inverse=True, return_counts=True)
    if not (counts > 1).any():
        return None
    rows = x[known]
    sums = torch.zeros(len(labels), x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, index, rows)
    # A person's single photo is its own mean, so it tells nothing of how photos of a person differ.
    centred = (rows - (sums / counts[:, None])[index])[counts[index] > 1]
    # Each person's mean takes away one degree of freedom.
    covariance: Tensor = centred.T @ centred / max(1, len(centred) - int((counts > 1).sum()))
    return covariance
