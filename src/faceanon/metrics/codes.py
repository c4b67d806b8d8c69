"""How well identity codes come back."""

from __future__ import annotations

import math

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_finite, check_same_shape


class CodeAgreement(Metric):
    """Relative error and correlation of codes that were found with those that were wanted, over a whole set.

    Every process must add something before `compute`.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.codes import CodeAgreement
        >>> codes = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        >>> metric = CodeAgreement()
        >>> metric.update(found=codes, wanted=codes)
        >>> {name: round(value.item(), 3) for name, value in metric.compute().items()}
        {'error': 0.0, 'correlation': 1.0}
    """

    full_state_update = False
    found: list[Tensor]
    wanted: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("found", "wanted"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, found: Tensor, wanted: Tensor) -> None:
        """Add pairs of codes `(B, ...)`.

        Raises:
            ValueError: Different shapes, or NaN.
        """
        check_same_shape("found", found, "wanted", wanted)
        self.found.append(check_finite("found", found).flatten(1))
        self.wanted.append(check_finite("wanted", wanted).flatten(1))

    def compute(self) -> dict[str, Tensor]:
        """`error` and `correlation`.

        `error` is the mean squared difference over the variance of the wanted codes around their mean: 1 is what a
        constant guess gives. `correlation` is the mean over the codes' entries, those that vary; NaN where none does.
        """
        read = dim_zero_cat(self.found).double()
        wanted = dim_zero_cat(self.wanted).double()
        around = read - read.mean(0)
        truth = wanted - wanted.mean(0)
        error = (read - wanted).square().mean() / truth.square().mean().clamp(min=1e-12)
        spread = around.norm(dim=0) * truth.norm(dim=0)
        # An entry that is the same for all faces has no correlation.
        varies = spread > 1e-12
        per_entry = (around * truth).sum(0)[varies] / spread[varies]
        if varies.any():
            correlation = per_entry.mean()
        else:
            correlation = read.new_tensor(math.nan)
        return {"error": error.float(), "correlation": correlation.float()}
