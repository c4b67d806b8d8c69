"""Terms on the logits of a frozen face parser."""

from __future__ import annotations

from torch import Tensor


def parse_loss(output_logits: Tensor, target_logits: Tensor, classes: tuple[int, ...]) -> Tensor:
    """MSE between the logits `(B, C, S, S)` of some classes: DBAF eqs. (14), (35), HFORD (14).

    The papers print a norm of what the parser gives. That this is the mean square of its logits, of eyes, nose and
    mouth ("only identity-related parts", HFORD), is the reading of RiDDLE's and DBAF's released code.

    Examples:
        >>> import torch
        >>> from faceanon.losses.parsing import parse_loss
        >>> logits = torch.zeros(1, 5, 8, 8)
        >>> moved = logits.clone()
        >>> moved[:, 4] = 2
        >>> parse_loss(moved, logits, classes=(0, 1)), parse_loss(moved, logits, classes=(4,))
        (tensor(0.), tensor(4.))
    """
    index = list(classes)
    return (output_logits[:, index] - target_logits[:, index]).square().mean()


def parse_losses(output_logits: Tensor, target_part: Tensor, classes: tuple[int, ...]) -> Tensor:
    """`parse_loss` of every picture, `(B,)`; `target_part` `(B, len(classes), S, S)` holds those classes alone.

    Examples:
        >>> import torch
        >>> from faceanon.losses.parsing import parse_losses
        >>> logits = torch.zeros(2, 5, 8, 8)
        >>> logits[1, 4] = 3  # the second picture has more of class 4 than it should
        >>> parse_losses(logits, target_part=torch.zeros(2, 2, 8, 8), classes=(0, 4))
        tensor([0.0000, 4.5000])
    """
    return (output_logits[:, list(classes)] - target_part).square().mean((1, 2, 3))
