"""Distances between two sets of pictures in the features of some network: FID, and KID with its uncertainty."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_finite, check_not_empty
from faceanon.metrics.interval import NORMAL_95


def check_features(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return two `(B, F)` features in float64.

    Raises:
        ValueError: Wrong shape, no row, or NaN.
    """
    if real.ndim != 2 or fake.ndim != 2 or real.shape[1] != fake.shape[1]:
        raise ValueError(f"features must be (B, F) with one F, got {tuple(real.shape)} and {tuple(fake.shape)}")
    pair = (("real", real), ("fake", fake))
    first, second = (check_finite(name, check_not_empty(name, item)).double() for name, item in pair)
    return first, second


class FrechetDistance(Metric):
    """FID: squared Frechet distance between two normal distributions fitted to features.

    Heusel et al., NeurIPS 2017, eq. (6). Sums are kept in float64, so that neither batches nor processes change it. It
    is biased upwards by about F^2 / N: compare at one N only, and prefer KID where N is small. The features are
    whatever network the caller takes; only those of the same network compare.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.features import FrechetDistance
        >>> features = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> metric = FrechetDistance(width=4)
        >>> metric.update(features, features + 1)  # the same spread, the mean moved by 1 in each of 4 numbers
        >>> round(metric.compute().item(), 3)
        4.0
    """

    full_state_update = False
    real_sum: Tensor
    real_products: Tensor
    real_count: Tensor
    fake_sum: Tensor
    fake_products: Tensor
    fake_count: Tensor

    def __init__(self, width: int) -> None:
        """Fit features of `width` numbers.

        Raises:
            ValueError: `width` is below 1.
        """
        super().__init__()
        if width < 1:
            raise ValueError(f"features need at least one number, got {width}")
        self.width = width
        for name in ("real", "fake"):
            self.add_state(f"{name}_sum", torch.zeros(width, dtype=torch.float64), dist_reduce_fx="sum")
            self.add_state(f"{name}_products", torch.zeros(width, width, dtype=torch.float64), dist_reduce_fx="sum")
            self.add_state(f"{name}_count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, real: Tensor, fake: Tensor) -> None:
        """Add `(B, F)` features of both sets; the numbers of rows may differ.

        Raises:
            ValueError: Wrong shape, no row, or NaN.
        """
        real, fake = check_features(real, fake)
        if real.shape[1] != self.width:
            raise ValueError(f"features must have {self.width} numbers, got {real.shape[1]}")
        self.real_sum += real.sum(0)
        self.real_products += real.T @ real
        self.real_count += len(real)
        self.fake_sum += fake.sum(0)
        self.fake_products += fake.T @ fake
        self.fake_count += len(fake)

    def compute(self) -> Tensor:
        """The distance.

        Raises:
            ValueError: Fewer than two pictures in one of the sets.
        """
        if min(int(self.real_count), int(self.fake_count)) < 2:
            raise ValueError("FID needs two pictures in each set; give more pictures")
        first = moments(self.real_sum, self.real_products, self.real_count)
        second = moments(self.fake_sum, self.fake_products, self.fake_count)
        return frechet(*first, *second)


def moments(total: Tensor, products: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Mean `(F,)` and unbiased covariance `(F, F)` from sums over `count` rows."""
    mean = total / count
    return mean, (products - count * torch.outer(mean, mean)) / (count - 1)


def frechet(mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor) -> Tensor:
    """|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)).

    The root's trace is that of (R C2 R)^(1/2) with R = C1^(1/2), which is symmetric: no complex numbers, and singular
    covariances (fewer pictures than features) do no harm.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.features import frechet
        >>> mean = torch.zeros(2)
        >>> spread = torch.eye(2)
        >>> frechet(mean, spread, mean, spread), frechet(mean, spread, mean + torch.tensor([3.0, 4.0]), spread)
        (tensor(0.), tensor(25.))
    """
    # By a symmetric matrix with the eigenvalues of C1 C2, whose own root may come out complex.
    values, vectors = torch.linalg.eigh(covariance)
    # Rounding can make eigenvalues of 0 slightly negative, and their square root would be NaN.
    root = vectors @ (values.clamp(min=0).sqrt()[:, None] * vectors.T)
    inner = torch.linalg.eigvalsh(root @ other_covariance @ root).clamp(min=0).sqrt().sum()
    distance: Tensor = (mean - other_mean).square().sum() + covariance.trace() + other_covariance.trace() - 2 * inner
    return distance


class KernelDistance(Metric):
    """KID: unbiased squared MMD with the kernel (x.y / F + 1)^3 between two sets of features, over random subsets.

    Binkowski et al., "Demystifying MMD GANs", ICLR 2018. The features are the bundle's own, so values compare between
    methods on one bundle, never with published KIDs on Inception features.

    Args:
        subsets: Number of random subsets.
        subset_size: Pictures in each; all of them where there are fewer.
        seed: Of the draw.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.features import KernelDistance
        >>> generator = torch.Generator().manual_seed(0)
        >>> real, fake = torch.randn(2, 100, 4, generator=generator)
        >>> alike = KernelDistance(subsets=4)
        >>> apart = KernelDistance(subsets=4)
        >>> alike.update(real, fake)
        >>> apart.update(real, fake + 2)
        >>> bool(alike.compute()["mean"].abs() < 0.5 < apart.compute()["mean"])
        True
    """

    full_state_update = False
    real: list[Tensor]
    fake: list[Tensor]

    def __init__(self, subsets: int = 100, subset_size: int = 200, seed: int = 0) -> None:
        super().__init__()
        self.subsets = subsets
        self.subset_size = subset_size
        self.seed = seed
        self.add_state("real", default=[], dist_reduce_fx="cat")
        self.add_state("fake", default=[], dist_reduce_fx="cat")

    def update(self, real: Tensor, fake: Tensor) -> None:
        """Add `(B, F)` features of both sets.

        Raises:
            ValueError: Wrong shape, no row, or NaN.
        """
        real, fake = check_features(real, fake)
        self.real.append(real)
        self.fake.append(fake)

    def compute(self) -> dict[str, Tensor]:
        """`mean` and `std` over the subsets, and `error`, the standard error of the whole; NaN below two pictures.

        `std` says how the subsets differ and shrinks with their size. `error` is the jackknife's over pairs of rows,
        and so says how far another N pictures would land; NaN where the sets differ in size, or below three rows.
        """
        real = ordered(dim_zero_cat(self.real))
        fake = ordered(dim_zero_cat(self.fake))
        size = min(self.subset_size, len(real), len(fake))
        nothing = real.new_tensor(math.nan)
        if size < 2:
            return {"mean": nothing, "std": nothing, "error": nothing}
        generator = torch.Generator().manual_seed(self.seed)
        values = []
        for _ in range(self.subsets):
            # Drawn on the CPU, so that the subsets are the same on every device.
            own, other = (torch.randperm(len(f), generator=generator)[:size].to(f.device) for f in (real, fake))
            values.append(polynomial_mmd(real[own], fake[other]))
        estimates = torch.stack(values)
        # Not the sorted rows: the jackknife leaves out an original together with the picture that was made from it.
        pairs = dim_zero_cat(self.real), dim_zero_cat(self.fake)
        if len(real) == len(fake) > 2:
            error = jackknife_error(*pairs)
        else:
            # The jackknife needs pairs of rows, so as many real features as fake ones.
            error = nothing
        # With correction=0 the spread of a single subset is 0; otherwise it would be NaN.
        return {"mean": estimates.mean(), "std": estimates.std(correction=0), "error": error}


def kid_interval(found: dict[str, Tensor]) -> tuple[float, float]:
    """95% interval of KID from what `KernelDistance.compute` gives."""
    mean = float(found["mean"])
    half = NORMAL_95 * float(found["error"])
    return mean - half, mean + half


def ordered(features: Tensor) -> Tensor:
    """Rows in an order of their own, so that subsets do not depend on the process that saw a picture."""
    # The sort key is a weighted sum of the row's entries: equal rows get equal keys, other rows hardly ever do.
    mixed = features @ torch.linspace(1, 2, features.shape[1], dtype=features.dtype, device=features.device)
    return features[mixed.argsort(stable=True)]


def kernel(first: Tensor, second: Tensor) -> Tensor:
    """(x.y / F + 1)^3 of `(m, F)` and `(n, F)`: `(m, n)`."""
    return (first @ second.T / first.shape[1] + 1) ** 3


def polynomial_mmd(real: Tensor, fake: Tensor) -> Tensor:
    """Unbiased squared MMD between `(m, F)` and `(m, F)` features, kernel (x.y / F + 1)^3."""
    count = len(real)
    own = kernel(real, real)
    other = kernel(fake, fake)
    cross = kernel(real, fake)
    # Without the diagonals, where a row is compared with itself: this makes the estimate unbiased.
    within = own.sum() - own.trace() + other.sum() - other.trace()
    return within / (count * (count - 1)) - 2 * cross.mean()


def jackknife_error(real: Tensor, fake: Tensor) -> Tensor:
    """Standard error of `polynomial_mmd` by leaving out one row of both `(m, F)` sets at a time."""
    count = len(real)
    own = kernel(real, real)
    other = kernel(fake, fake)
    cross = kernel(real, fake)
    within = sum(k.sum() - k.trace() for k in (own, other))
    # What leaving out row i takes away: its row and its column, without the diagonal.
    lost = sum(2 * (k.sum(1) - k.diagonal()) for k in (own, other))
    kept = (within - lost) / ((count - 1) * (count - 2))
    # The entry (i, i) lies in both the row and the column that are left out, so it is added back once.
    crossed = (cross.sum() - cross.sum(0) - cross.sum(1) + cross.diagonal()) / (count - 1) ** 2
    left_out: Tensor = kept - 2 * crossed
    return ((count - 1) / count * (left_out - left_out.mean()).square().sum()).sqrt()
