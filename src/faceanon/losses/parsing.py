"""Terms on the logits of a frozen face parser."""

from __future__ import annotations

from torch import Tensor


def parse_loss(output_logits: Tensor, target_logits: Tensor, classes: tuple[int, ...]) -> Tensor:
    """MSE between the logits `(B, C, S, S)` of some classes (DBAF eq. 11; RiDDLE chose eyes, nose, mouth)."""
    index = list(classes)
    return (output_logits[:, index] - target_logits[:, index]).square().mean()
