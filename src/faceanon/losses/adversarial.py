"""The StyleGAN2 objective: non-saturating logistic loss with R1 (Karras et al., CVPR 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def generator_loss(fake_logits: Tensor) -> Tensor:
    """Mean softplus(-D(fake)); logits of any shape -> scalar."""
    return F.softplus(-fake_logits).mean()


def discriminator_loss(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """Mean softplus(-D(real)) + mean softplus(D(fake)); logits of any shape -> scalar."""
    return F.softplus(-real_logits).mean() + F.softplus(fake_logits).mean()


def r1_penalty(discriminator: nn.Module, real: Tensor) -> Tensor:
    """Squared gradient of D at real pictures (Mescheder et al., ICML 2018, eq. 9), without the factor gamma/2.

    Runs in float32 whatever the autocast context: second derivatives do not survive half precision.

    Args:
        discriminator: Returns logits `(B, 1)`.
        real: `(B, 3, S, S)` in [-1, 1].
    """
    with torch.autocast(real.device.type, enabled=False):
        real = real.detach().float().requires_grad_()
        (gradient,) = torch.autograd.grad(discriminator(real).sum(), real, create_graph=True)
        penalty: Tensor = gradient.square().sum((1, 2, 3)).mean()
    return penalty
