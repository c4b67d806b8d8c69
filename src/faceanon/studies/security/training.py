"""How an attacker trains: networks for a fixed number of batches, and linear models in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]


def fit(
    parameters: Iterable[nn.Parameter],
    loss: Callable[[Tensor], Tensor],
    rows: int,
    steps: int,
    batch: int,
    learning_rate: float,
    title: str,
) -> None:
    """Adam with a cosine schedule over random batches; the order depends on torch's own random state.

    Args:
        parameters: What is trained.
        loss: Loss of the rows `(batch,)`.
        rows: Number of rows to choose from.
        steps: Batches.
        batch: Rows in one.
        learning_rate: At its highest.
        title: Of the progress bar.
    """
    optimizer = torch.optim.AdamW(list(parameters), learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    order = torch.randperm(rows)
    for _ in tqdm(range(steps), desc=title, delay=2, leave=False):
        if len(order) < min(batch, rows):
            # What is left of the last order comes first: all rows are seen equally often.
            order = torch.cat([order, torch.randperm(rows)])
        chosen = order[:batch]
        order = order[batch:]
        optimizer.zero_grad()
        torch.autograd.backward(loss(chosen))
        optimizer.step()
        schedule.step()


class LogisticDetector:
    """Logistic regression on standardised features, weighed down by their number.

    Args:
        features: `(N, D)`.
        labels: `(N,)` of 0 and 1.
        decay: L2 penalty in units of D / N.
    """

    def __init__(self, features: Tensor, labels: Tensor, decay: float = 0.1) -> None:
        self.mean = features.mean(0)
        self.spread = features.std(0).clamp(min=1e-6)
        self.weight = torch.zeros(features.shape[1] + 1, requires_grad=True)
        x = self._scaled(features)
        penalty = decay * features.shape[1] / len(features)
        optimizer = torch.optim.LBFGS([self.weight], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            error = F.binary_cross_entropy_with_logits(x @ self.weight, labels.float())
            # All weights but the first: an offset need not be small.
            loss = error + penalty * self.weight[1:].square().sum() / 2
            torch.autograd.backward(loss)
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]

    def _scaled(self, features: Tensor) -> Tensor:
        scaled = (features - self.mean) / self.spread
        # New people may lie far outside of what was learnt from.
        return torch.cat([torch.ones(len(scaled), 1), scaled.clamp(-10, 10)], 1)

    def score(self, features: Tensor) -> Tensor:
        """Log odds that a row has label 1, `(N,)`."""
        with torch.no_grad():
            return self._scaled(features) @ self.weight


def least_squares(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """The affine map from `(N, D)` to `(N, F)` of least error, and of least norm where many fit."""
    x = x.double()
    y = y.double()
    centre = x.mean(0)
    mean = y.mean(0)
    # Directions in which known codes hardly vary would be blown up without end.
    weights = torch.linalg.pinv(x - centre, rtol=1e-6) @ (y - mean)
    return lambda rows: ((rows.double() - centre) @ weights + mean).float()
