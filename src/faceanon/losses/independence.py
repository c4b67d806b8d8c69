"""Whether two sets of features know of each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def dependence(seen: Sequence[Tensor], code: Tensor) -> Tensor:
    """How much of `code` the features tell, without a network that would have to be trained to find it.

    The unbiased Hilbert-Schmidt independence criterion (Song et al., JMLR 13, 2012, eq. 5) over the geometric mean of
    its values of each side with itself: 0 in expectation where they are independent, so it may come out below 0, and 1
    where either determines the other. Gaussian kernels as wide as the median distance; float32 whatever the autocast
    context.

    Args:
        seen: Features `(B, ...)` of the same B >= 4 pictures; each set counts alike, however long.
        code: `(B, K)`; no gradient flows into it.

    Raises:
        ValueError: Fewer than four pictures.

    Examples:
        >>> import torch
        >>> from faceanon.losses.independence import dependence
        >>> code = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> noise = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
        >>> round(dependence([code], code).item(), 2)
        1.0
        >>> abs(dependence([noise], code).item()) < 0.1
        True
    """
    if code.shape[0] < 4:
        raise ValueError(f"dependence needs at least 4 pictures, got {code.shape[0]}")
    with torch.autocast(code.device.type, enabled=False):
        ours = (-torch.stack([_distances(item.flatten(1).float()) for item in seen]).mean(0)).exp()
        theirs = (-_distances(code.detach().float())).exp()
        own = (_criterion(ours, ours) * _criterion(theirs, theirs)).clamp(min=1e-8).sqrt()
        return _criterion(ours, theirs) / own


def _distances(x: Tensor) -> Tensor:
    """Squared distances `(B, B)` of rows `(B, F)`, over their median."""
    # Far from the origin the expansion below loses its digits.
    x = x - x.mean(0)
    squares = x.square().sum(1)
    distances = (squares[:, None] + squares[None] - 2 * x @ x.T).clamp(min=0)
    apart = ~torch.eye(x.shape[0], dtype=torch.bool, device=x.device)
    return distances / distances.detach()[apart].median().clamp(min=1e-8)


def _criterion(first: Tensor, second: Tensor) -> Tensor:
    """Unbiased HSIC of two kernel matrices `(B, B)`."""
    count = first.shape[0]
    # Song et al.'s eq. (5) takes kernels without their diagonals: a picture is always most similar to itself.
    first = first - torch.diag(first.diagonal())
    second = second - torch.diag(second.diagonal())
    both = (first * second).sum() + first.sum() * second.sum() / ((count - 1) * (count - 2))
    # Both matrices are symmetric, so 1' K L 1 is the product of their column sums.
    return (both - 2 / (count - 2) * (first.sum(0) * second.sum(0)).sum()) / (count * (count - 3))
