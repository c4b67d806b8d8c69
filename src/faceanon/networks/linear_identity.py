"""Linear maps between identity codes and w+ codes of principal components, fitted and not trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DAMPING = 0.04  # of a draft's fit, in mean squares of an input: few pictures do not determine every direction
READ_DAMPING = 0.05  # of a reader's, likewise


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
        >>> from faceanon.networks.linear_identity import IdentityDraft
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
        mean, weight, start = _ridge(identity, codes[:, self.kept :], DAMPING)
        self.mean.copy_(mean)
        self.weight.copy_(weight)
        self.start.copy_(start)


class IdentityReader(nn.Module):
    """What a w code that was read off a picture says of the identity code that the picture was drawn from.

    A recogniser forgets most of a face. A code of principal components that a saved picture gives back forgets little,
    and says more of the identity that was drawn.

    Args:
        dim: Length D of a w code.
        length: Length E of an identity code.
        kept: Numbers of w, from its beginning, that the map does not look at.

    Examples:
        >>> import torch
        >>> from faceanon.networks.linear_identity import IdentityReader
        >>> identity = torch.nn.functional.normalize(torch.randn(500, 4))
        >>> reader = IdentityReader(6, 4, kept=2)
        >>> reader.fit(torch.cat([torch.zeros(500, 2), identity], 1), identity)
        >>> code = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
        >>> reader(code)[0, 0] > 0.9
        tensor(True)
    """

    mean: Tensor
    size: Tensor
    weight: Tensor
    start: Tensor
    norm: Tensor

    def __init__(self, dim: int, length: int, kept: int = 0) -> None:
        super().__init__()
        if not 0 <= kept < dim:
            raise ValueError(f"kept is {kept} of {dim} numbers")
        self.kept = kept
        self.register_buffer("mean", torch.zeros(dim - kept))
        self.register_buffer("size", torch.ones(dim - kept))
        self.register_buffer("weight", torch.zeros(dim - kept, length))
        self.register_buffer("start", torch.zeros(length))
        self.register_buffer("norm", torch.ones(()))

    def forward(self, code: Tensor) -> Tensor:
        """W codes `(B, D)` -> identity codes `(B, E)`, all of the length that they had on average in the fit."""
        seen = (code[:, self.kept :] - self.mean) / self.size
        # A fit shrinks what it is unsure of. The direction of an identity code counts, and its length is known.
        return self.norm * F.normalize(self.start + seen @ self.weight)

    @torch.no_grad()
    def fit(self, codes: Tensor, identity: Tensor) -> None:
        """Take the map that gives identities from codes with the least squared error.

        Args:
            codes: `(N, D)`, w read off saved pictures.
            identity: `(N, E)`, what these were drawn from.
        """
        seen = codes[:, self.kept :]
        # Numbers of little variance may be as exact as the others.
        size = seen.std(0).clamp(min=1e-6)
        mean, weight, start = _ridge(seen / size, identity, READ_DAMPING)
        self.mean.copy_(mean * size)
        self.size.copy_(size)
        self.weight.copy_(weight)
        self.start.copy_(start)
        self.norm.copy_(identity.norm(dim=1).mean())


def _ridge(inputs: Tensor, outputs: Tensor, damping: float) -> tuple[Tensor, Tensor, Tensor]:
    """Ridge regression: mean `(A,)` of the inputs, weight `(A, B)` and mean `(B,)` of the outputs.

    Args:
        inputs: `(N, A)`.
        outputs: `(N, B)`.
        damping: In mean squares of an input, so that its effect depends neither on their size nor on their number.
    """
    # Float64, since a system of equations is solved.
    x = inputs.double()
    y = outputs.double()
    centred = x - x.mean(0)
    squares = centred.T @ centred
    scaled = damping * squares.trace() / len(squares)
    damped = squares + scaled * torch.eye(len(squares), dtype=squares.dtype, device=squares.device)
    weight = torch.linalg.solve(damped, centred.T @ (y - y.mean(0)))
    return x.mean(0), weight, y.mean(0)
