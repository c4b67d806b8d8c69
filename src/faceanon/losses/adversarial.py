"""The StyleGAN2 objective: non-saturating logistic loss with R1 (Karras et al., CVPR 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def generator_losses(fake_logits: Tensor) -> Tensor:
    """softplus(-D(fake)) of every picture; logits `(B, 1)` -> `(B,)`.

    Examples:
        >>> import torch
        >>> from faceanon.losses.adversarial import generator_losses
        >>> fooled, undecided = generator_losses(torch.tensor([[9.0], [0.0]])).tolist()
        >>> round(fooled, 2), round(undecided, 2)
        (0.0, 0.69)
    """
    return F.softplus(-fake_logits).flatten(1).mean(1)


def generator_loss(fake_logits: Tensor) -> Tensor:
    """Mean softplus(-D(fake)); logits of any shape -> scalar.

    Examples:
        >>> import torch
        >>> from faceanon.losses.adversarial import generator_loss
        >>> fooled = torch.tensor([[9.0]])
        >>> caught = torch.tensor([[-9.0]])
        >>> bool(generator_loss(fooled) < generator_loss(caught))
        True
    """
    return F.softplus(-fake_logits).mean()


def discriminator_loss(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """Mean softplus(-D(real)) + mean softplus(D(fake)); logits of any shape -> scalar.

    Examples:
        >>> import torch
        >>> from faceanon.losses.adversarial import discriminator_loss
        >>> guess = torch.zeros(4, 1)
        >>> discriminator_loss(real_logits=guess, fake_logits=guess)  # 2 log 2
        tensor(1.3863)
    """
    return F.softplus(-real_logits).mean() + F.softplus(fake_logits).mean()


def discriminator_share(logits: Tensor, rows: Tensor, real: int, count: int) -> Tensor:
    """What some of the pictures add to `discriminator_loss`.

    Args:
        logits: `(n, 1)`, theirs; or `(n, M)` of M places, which count alike.
        rows: `(n,)` their numbers among all pictures, the real ones first.
        real: Number of real pictures.
        count: Number of all pictures.

    Examples:
        >>> import torch
        >>> from faceanon.losses.adversarial import discriminator_loss, discriminator_share
        >>> logits = torch.tensor([[2.0], [1.0], [-1.0]])  # of one real picture and two drawn ones
        >>> first = discriminator_share(logits[:2], torch.tensor([0, 1]), real=1, count=3)
        >>> second = discriminator_share(logits[2:], torch.tensor([2]), real=1, count=3)
        >>> torch.allclose(first + second, discriminator_loss(logits[:1], logits[1:]))
        True
    """
    is_real = rows < real
    # softplus(-D) of a real picture, softplus(D) of a drawn one, each over the number of its own kind in all shares.
    sign = torch.ones_like(logits[:, 0]).masked_fill(is_real, -1)
    share = torch.full_like(sign, 1 / (count - real)).masked_fill(is_real, 1 / real)
    return (F.softplus(sign[:, None] * logits).mean(1) * share).sum()


def r1_penalty(discriminator: nn.Module, real: Tensor) -> Tensor:
    """Squared gradient of D at real pictures (Mescheder et al., ICML 2018, eq. 9), without the factor gamma/2.

    Runs in at least float32 whatever the autocast context: second derivatives do not survive half precision.

    Args:
        discriminator: Returns logits `(B, 1)`, or `(B, M)` of M places, of which the mean counts.
        real: `(B, 3, S, S)` in [-1, 1], or whatever the discriminator looks at.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from faceanon.losses.adversarial import r1_penalty
        >>> constant = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 1))
        >>> _ = nn.init.constant_(constant[1].weight, 0.5)
        >>> r1_penalty(constant, torch.zeros(2, 3, 8, 8)).item()  # 192 derivatives of 0.5
        48.0
    """
    with torch.autocast(real.device.type, enabled=False):
        real = real.detach().to(torch.promote_types(real.dtype, torch.float32)).requires_grad_()
        # Compiled code has no second derivatives.
        plain = getattr(discriminator, "forward", discriminator)
        # The mean of the places, as in the loss: with their sum R1 of 768 places was 590,000 times as hard.
        (gradient,) = torch.autograd.grad(plain(real).flatten(1).mean(1).sum(), real, create_graph=True)
        penalty: Tensor = gradient.square().sum((1, 2, 3)).mean()
    return penalty
