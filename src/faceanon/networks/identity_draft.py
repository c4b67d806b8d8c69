"""A linear map from identity codes to w+ codes of principal components, fitted and not trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DAMPING = 0.04  # of the fit, in mean squares of a row of inputs: few pictures do not determine every direction


class IdentityDraft(nn.Module):
    """What an identity code says of a w code, by ridge regression over photographs.

    Where w is a sum of principal components of faces, a linear map of a recogniser's embedding already draws a person
    whom recognisers take for the right one.

    Args:
        length: Length E of an identity code.
        dim: Length D of a w code.
        kept: Numbers of w, from its beginning, that the map leaves alone; it gives 0 there.
        strength: What the fitted differences to the mean are multiplied by. A fit shrinks what it is unsure of; more
            than 1 makes up for that.

    Examples:
        >>> import torch
        >>> from faceanon.networks.identity_draft import IdentityDraft
        >>> identity = torch.randn(500, 4)
        >>> draft = IdentityDraft(4, 6, kept=2)
        >>> draft.fit(identity, identity @ torch.ones(4, 6))
        >>> draft(torch.ones(1, 4)).round().abs()
        tensor([[0., 0., 4., 4., 4., 4.]])
    """

    mean: Tensor
    weight: Tensor
    start: Tensor

    def __init__(self, length: int, dim: int, kept: int = 0, strength: float = 1.0) -> None:
        super().__init__()
        if not 0 <= kept < dim:
            raise ValueError(f"kept is {kept} of {dim} numbers")
        self.kept = kept
        self.strength = strength
        self.register_buffer("mean", torch.zeros(length))
        self.register_buffer("weight", torch.zeros(length, dim - kept))
        self.register_buffer("start", torch.zeros(dim - kept))

    def forward(self, identity: Tensor) -> Tensor:
        """Identity codes `(B, E)` -> w `(B, D)`."""
        drafted = self.start + self.strength * ((identity - self.mean) @ self.weight)
        return F.pad(drafted, (self.kept, 0))

    @torch.no_grad()
    def fit(self, identity: Tensor, codes: Tensor) -> None:
        """Take the map that gives codes from identities with the least squared error.

        Args:
            identity: `(N, E)` of photographs.
            codes: `(N, D)`, w of the same photographs.
        """
        # Float64, since a system of equations is solved.
        x = identity.double()
        y = codes[:, self.kept :].double()
        centred = x - x.mean(0)
        squares = centred.T @ centred
        # The damping grows with the number of rows and with their size, so that its effect depends on neither.
        damping = DAMPING * squares.trace() / len(squares)
        damped = squares + damping * torch.eye(len(squares), dtype=squares.dtype, device=squares.device)
        self.mean.copy_(x.mean(0))
        self.weight.copy_(torch.linalg.solve(damped, centred.T @ (y - y.mean(0))))
        self.start.copy_(y.mean(0))
