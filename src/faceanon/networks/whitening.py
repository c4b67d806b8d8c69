"""Identity codes with zero mean and unit covariance."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Whitening(nn.Module):
    """Mean and covariance of the codes, measured once; what every keyed map of whitened codes stands on.

    Args:
        dim: Length K of a code.

    Examples:
        >>> import torch
        >>> from faceanon.networks.whitening import Whitening
        >>> codes = torch.randn(500, 4) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + 5
        >>> whitening = Whitening(4)
        >>> whitening.fit(codes)
        >>> whitening.white(codes).var(0, correction=0)
        tensor([1.0000, 1.0000, 1.0000, 1.0000])
    """

    mean: Tensor
    whiten: Tensor
    colour: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("whiten", torch.eye(dim))
        self.register_buffer("colour", torch.eye(dim))

    def fit(self, codes: Tensor) -> None:
        """Measure mean and covariance of codes `(N, K)`."""
        centred = codes - codes.mean(0)
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(codes))
        # Directions in which codes hardly vary would be blown up without end.
        values = values.clamp(min=1e-4 * float(values[-1]))
        self.mean.copy_(codes.mean(0))
        self.whiten.copy_(vectors @ torch.diag(values.rsqrt()) @ vectors.T)
        self.colour.copy_(vectors @ torch.diag(values.sqrt()) @ vectors.T)

    def white(self, code: Tensor) -> Tensor:
        """Codes `(B, K)` with zero mean and unit covariance over the faces it was fitted on."""
        return (code - self.mean) @ self.whiten
