"""Structure and pixels together."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.functional.image import structural_similarity_index_measure


def structure_loss(output: Tensor, target: Tensor, share: float = 0.84) -> Tensor:
    """Weigh 1 - SSIM and L1: iFADIT's image loss, 0.84 (1 - SSIM) + 0.16 L1.

    The form is Zhao et al.'s, "Loss functions for image restoration with neural networks". Both parts are taken on
    [0, 1], SSIM with its usual window (11 px, sigma 1.5) at one scale, all in float32. Range and means are our reading
    of eq. (12).

    Args:
        output: `(B, 3, S, S)`, nominally in [-1, 1], S at least 11.
        target: `(B, 3, S, S)` in [-1, 1].
        share: Weight of the structure; the pixels have the rest.

    Examples:
        >>> import torch
        >>> from faceanon.losses.structure import structure_loss
        >>> picture = torch.rand(1, 3, 32, 32) * 2 - 1
        >>> structure_loss(picture, picture).abs().item() < 1e-5
        True
        >>> bool(structure_loss(picture, -picture) > 0.5)
        True
    """
    drawn = (output.float() + 1) / 2
    wanted = (target.float() + 1) / 2
    ssim = structural_similarity_index_measure(drawn, wanted, data_range=1.0)
    assert isinstance(ssim, Tensor)
    return share * (1 - ssim) + (1 - share) * F.l1_loss(drawn, wanted)


def own_rows(original: Tensor, drawn: Tensor, source: Tensor) -> Tensor:
    """`structure_loss` of the rows drawn with their own person; of others no picture shows what they should be.

    Args:
        original: `(B, 3, S, S)` in [-1, 1].
        drawn: `(B, 3, S, S)`.
        source: `(B,)` row of every identity source.

    Returns:
        0 for a batch without such a row, since a term that has a weight must be there.
    """
    own = source == torch.arange(len(source), device=source.device)
    if own.any():
        return structure_loss(drawn[own], original[own])
    return drawn.sum() * 0
