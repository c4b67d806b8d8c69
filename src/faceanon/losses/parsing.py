"""Terms on the logits of a frozen face parser."""

from __future__ import annotations

from torch import Tensor


def parse_loss(output_logits: Tensor, target_logits: Tensor, classes: tuple[int, ...]) -> Tensor:
    """MSE between the logits `(B, C, S, S)` of some classes (DBAF eq. 11; RiDDLE chose eyes, nose, mouth)."""
    index = list(classes)
    return (output_logits[:, index] - target_logits[:, index]).square().mean()


def parse_losses(output_logits: Tensor, target_part: Tensor, classes: tuple[int, ...]) -> Tensor:
    """`parse_loss` of every picture, `(B,)`; `target_part` `(B, len(classes), S, S)` holds those classes alone."""
    return (output_logits[:, list(classes)] - target_part).square().mean((1, 2, 3))
