"""Leading principal components of recogniser embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PrincipalComponents(nn.Module):
    """Project embeddings to the directions in which they differ most, whitened: mean 0, covariance 1.

    Until it is fitted it gives the first numbers of an embedding.

    Args:
        inputs: Length E of an embedding.
        outputs: Number K of components, at most E.

    Examples:
        >>> import torch
        >>> from faceanon.networks.principal_components import PrincipalComponents
        >>> embedding = torch.randn(200, 16)
        >>> code = PrincipalComponents(16, 4)
        >>> code.fit(embedding)
        >>> code(embedding).var(0, correction=0).round(decimals=3)
        tensor([1., 1., 1., 1.])
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

    def fit(self, embeddings: Tensor) -> None:
        """Measure the directions of embeddings `(N, E)`."""
        # Float64, since roots of small eigenvalues divide below.
        x = embeddings.double()
        mean = x.mean(0)
        centred = x - mean
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
        # Directions of hardly any variance would be blown up without the bound.
        values = values.clamp(min=1e-4 * float(values[-1]))
        # eigh gives the smallest eigenvalues first.
        leading = (vectors * values.rsqrt()).flip(1)[:, : self.outputs]
        self.mean.copy_(mean)
        self.directions.copy_(leading)
