"""Whether pose and expression stay, where the data knows them: read off the landmarks by a linear probe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_finite, check_labels, check_not_empty, check_same_shape

POSE = ("yaw", "pitch", "roll")
EXPRESSION = ("mouth_open", "smile", "brow_raise", "blink", "gaze_x", "gaze_y")
RIDGE = 1e-2  # relative to the mean variance of the landmarks' coordinates
LEAST_ROWS = 8


class AttributeProbe(Metric):
    """How well landmarks of changed pictures still tell the true pose and expression.

    On half of the people a ridge regression learns from the landmarks of *original* pictures to the true factors; on
    the other half it reads original and changed pictures, and the halves change places. A factor that it cannot read
    off the originals says nothing about the changed ones; so both figures are given.

    Args:
        names: The factors, in the order of their columns.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.probe import AttributeProbe
        >>> points = torch.rand(200, 5, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
        >>> yaw = points[:, 0, :1]  # what landmarks tell exactly
        >>> metric = AttributeProbe(["yaw"])
        >>> metric.update(torch.zeros_like(points), points, yaw, identity=torch.arange(200) // 2)
        >>> found = metric.compute()
        >>> bool(found["yaw/original"] > 0.9 > 0.1 > found["yaw/changed"])
        True
    """

    full_state_update = False
    changed: list[Tensor]
    original: list[Tensor]
    factors: list[Tensor]
    identity: list[Tensor]

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        for name in ("changed", "original", "factors", "identity"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, changed: Tensor, original: Tensor, factors: Tensor, identity: Tensor) -> None:
        """Add landmarks `(B, K, 2)` in [-1, 1] of changed and original pictures, true factors, and labels.

        Args:
            changed: Landmarks of the changed pictures.
            original: Landmarks of the originals.
            factors: `(B, F)`, one column a name.
            identity: `(B,)` labels of the people.

        Raises:
            ValueError: Wrong shapes, no row, or NaN.
        """
        check_same_shape("changed", check_not_empty("changed", changed), "original", original)
        if factors.shape != (len(changed), len(self.names)):
            raise ValueError(f"factors must be {(len(changed), len(self.names))}, got {tuple(factors.shape)}")
        self.changed.append(check_finite("changed", changed).flatten(1))
        self.original.append(check_finite("original", original).flatten(1))
        self.factors.append(check_finite("factors", factors))
        self.identity.append(check_labels("identity", identity, len(changed)))

    def compute(self) -> dict[str, Tensor]:
        """`<name>/changed` and `<name>/original`: R^2 of each factor, 1 is read exactly, 0 no better than the mean.

        Empty with fewer than two people or too few pictures.
        """
        states = (self.changed, self.original, self.factors)
        changed, original, factors = (dim_zero_cat(state).double() for state in states)
        # `half` numbers the person of each row. Even and odd persons are the halves, so nobody is in both.
        labels, half = torch.unique(dim_zero_cat(self.identity), return_inverse=True)
        if len(labels) < 2 or len(factors) < LEAST_ROWS:
            return {}
        read = {"changed": torch.zeros_like(factors), "original": torch.zeros_like(factors)}
        # Learnt on half of the people and read on the other half, then the other way round.
        for side in (0, 1):
            learn = half % 2 == side
            test = half % 2 != side
            weights = ridge(original[learn], factors[learn])
            for what, points in (("changed", changed), ("original", original)):
                read[what][test] = apply_ridge(weights, points[test])
        scores = {}
        for what, values in read.items():
            scores[what] = determination(values, factors)
        named = {}
        for what, score in scores.items():
            for i, name in enumerate(self.names):
                named[f"{name}/{what}"] = score[i]
        return named


def ridge(points: Tensor, factors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights `(D, F)` and the means of both sides, from `(N, D)` to `(N, F)`."""
    centre = points.mean(0)
    mean = factors.mean(0)
    x = points - centre
    # There may be more coordinates than pictures: without a penalty they would fit anything.
    # The factor is the mean eigenvalue of x.T @ x, so RIDGE means the same for any N and any scale of the points.
    penalty = RIDGE * x.square().sum() / x.shape[1]
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(x.T @ x + penalty.clamp(min=1e-12) * eye, x.T @ (factors - mean))
    return weights, centre, mean


def apply_ridge(fitted: tuple[Tensor, Tensor, Tensor], points: Tensor) -> Tensor:
    """Factors `(N, F)` read off `(N, D)`."""
    weights, centre, mean = fitted
    return (points - centre) @ weights + mean


def determination(found: Tensor, truth: Tensor) -> Tensor:
    """R^2 `(F,)`: 1 minus squared error over variance; 0 where the truth does not vary.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.probe import determination
        >>> truth = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 6.0]])
        >>> guess = torch.stack([truth[:, 0], truth[:, 1].mean().expand(3)], 1)
        >>> determination(guess, truth)  # all of the first factor, and nothing of the second
        tensor([1., 0.])
    """
    spread = (truth - truth.mean(0)).square().sum(0)
    error = (found - truth).square().sum(0)
    return torch.where(spread > 1e-12, 1 - error / spread.clamp(min=1e-12), torch.zeros_like(spread))
