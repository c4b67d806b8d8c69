"""Plain multilayer networks on codes, and iFADIT's identity compensation."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn


def mlp(*widths: int, slope: float = 0.2) -> nn.Sequential:
    """Linear layers from each width to the next, with leaky ReLUs between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(slope)]
    # No activation follows the last layer.
    return nn.Sequential(*layers[:-1])


def correction(*widths: int) -> nn.Sequential:
    """An `mlp` whose last layer is zero, so that what it is added to starts out unchanged.

    Examples:
        >>> import torch
        >>> from faceanon.networks.compensation import correction
        >>> code = torch.randn(2, 8)
        >>> torch.equal(code + correction(8, 32, 8)(code), code)
        True
    """
    net = mlp(*widths)
    last = net[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return net


class IdentityCompensation(nn.Module):
    """ICL: corrects the identity code read from an anonymized picture before the flow is inverted.

    Four layers, K > 2K > 4K > 2K > K (widths of the released code; the paper says four layers).

    Args:
        dim: Length K of a code.
        residual: Add the network's output to the code, and start out changing nothing. Otherwise the output replaces
            the code.
    """

    def __init__(self, dim: int, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.net = (correction if residual else mlp)(dim, 2 * dim, 4 * dim, 2 * dim, dim)

    def forward(self, code: Tensor) -> Tensor:
        """`(B, K)` -> `(B, K)`."""
        corrected: Tensor = self.net(code)
        if self.residual:
            return code + corrected
        return corrected
