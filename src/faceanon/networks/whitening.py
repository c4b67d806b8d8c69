"""Identity codes with zero mean and unit covariance, along their principal axes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PairedAxes(nn.Module):
    """Whitening along principal axes, measured once, in an order in which the halves of a code match.

    Entry i of the first half and entry i of the second are axes next to each other by variance. So a turn of one into
    the other keeps the covariance of the codes nearly as it is.

    Args:
        dim: Length K of a code; even.

    Examples:
        >>> import torch
        >>> from faceanon.networks.whitening import PairedAxes
        >>> codes = torch.randn(500, 4) * torch.tensor([1.0, 5.0, 1.1, 4.9])
        >>> axes = PairedAxes(4)
        >>> axes.fit(codes)
        >>> first, second = axes.white(codes).chunk(2, 1)
        >>> torch.allclose(axes.coloured(axes.white(codes)), codes, atol=1e-3)
        True
    """

    mean: Tensor
    whiten: Tensor
    colour: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"a code of {dim} numbers has no halves")
        self.dim = dim
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("whiten", torch.eye(dim))
        self.register_buffer("colour", torch.eye(dim))

    @torch.no_grad()
    def fit(self, codes: Tensor) -> None:
        """Measure mean and axes of codes `(N, K)`."""
        x = codes.double()
        centred = x - x.mean(0)
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
        # Directions in which codes hardly vary would be blown up without end.
        values = values.clamp(min=1e-4 * float(values[-1]))
        # Axes 0, 2, 4, ... become the first half, axes 1, 3, 5, ... the second.
        order = torch.arange(self.dim, device=codes.device).view(-1, 2).T.flatten()
        values = values[order]
        vectors = vectors[:, order]
        self.mean.copy_(x.mean(0))
        self.whiten.copy_(vectors * values.rsqrt())
        self.colour.copy_((vectors * values.sqrt()).T)

    def white(self, code: Tensor) -> Tensor:
        """Codes `(B, K)` with zero mean and unit covariance over the faces it was fitted on."""
        return (code - self.mean) @ self.whiten

    def coloured(self, white: Tensor) -> Tensor:
        """The codes `(B, K)` of which `white` gives these."""
        return white @ self.colour + self.mean
