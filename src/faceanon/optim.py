"""Optimizers that configs can name and torch lacks, with arguments that a YAML file can hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytorch_optimizer
from torch import Tensor


class Ranger(pytorch_optimizer.Ranger):  # a class, since jsonargparse takes no function with arguments
    """Ranger as e4e, pSp and RiDDLE train with it: RAdam, Lookahead and centred gradients.

    It is `pytorch_optimizer.Ranger` with `degenerated_to_sgd=True`: in the first steps, where the variance is not yet
    to be trusted, the published code steps along the momentum, while the package's default steps against it. With this
    setting 25 steps agree with the published code to 1e-6. The published code's `use_gc=False` has no effect there, so
    there is no such argument here.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        betas: Decay of the first and second moment.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled, times `lr`.
        alpha: Share of the fast weights that Lookahead takes over.
        k: Steps between two Lookahead updates.
        gc_conv_only: Centre the gradients of convolutions only, not of every weight of two or more dimensions.

    Raises:
        ValueError: If `lr` is not above 0.

    Examples:
        >>> import torch
        >>> from faceanon.optim import Ranger
        >>> weight = torch.nn.Parameter(torch.ones(4))
        >>> optimizer = Ranger([weight], lr=0.1)
        >>> for _ in range(60):
        ...     optimizer.zero_grad()
        ...     weight.square().sum().backward()
        ...     optimizer.step()
        >>> bool(weight.abs().max() < 1)
        True
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.95, 0.999),
        eps: float = 1e-5,
        weight_decay: float = 0.0,
        alpha: float = 0.5,
        k: int = 6,
        gc_conv_only: bool = False,
    ) -> None:
        if not lr > 0:
            # As torch's own optimizers; the package's class of error is no ValueError.
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            alpha=alpha,
            k=k,
            gc_conv_only=gc_conv_only,
            degenerated_to_sgd=True,
        )
