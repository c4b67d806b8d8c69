"""Veil: red changes by what green and blue show, then green and blue by the new red; backwards, the face is back.

Additive coupling as in Dinh, Krueger and Bengio, "NICE: Non-linear Independent Components Estimation", ICLR workshop
2015, section 3.2. Exact up to what an 8-bit picture cannot hold.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faceanon.backbones.base import Backbone
from faceanon.types import Codes
from faceanon.weights.bundle import Bundle

KEY = 16


class Veil(Backbone):
    """Two keyed coupling steps on the picture itself.

    Args:
        bundle: Bundle by name or folder; the stage takes its recogniser for the losses.
        width: Channels of the two small networks.
    """

    exact = True
    key_shape = (KEY,)
    trained_by = ("AnonymizeStage",)
    paper = "Dinh et al., NICE: Non-linear Independent Components Estimation, ICLR workshop 2015"
    licence = "no code of others"

    def __init__(self, bundle: str = "photo128_pictures", width: int = 16) -> None:
        super().__init__()
        self.bundle = Bundle(bundle)
        self.first, self.second = _shift(2, 1, width), _shift(1, 2, width)

    def encode(self, image: Tensor) -> Codes:
        """The picture `(B, 3, S, S)` is its own code."""
        return Codes(identity=image)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Veil `(B, 3, S, S)` under keys `(B, 16)`, or lift the veil."""
        maps = key[:, :, None, None].expand(-1, -1, *identity.shape[-2:])
        red, rest = identity[:, :1], identity[:, 1:]
        if inverse:
            rest = rest - self.second(torch.cat([red, maps], 1))
            red = red - self.first(torch.cat([rest, maps], 1))
        else:
            red = red + self.first(torch.cat([rest, maps], 1))
            rest = rest + self.second(torch.cat([red, maps], 1))
        return torch.cat([red, rest], 1)

    def decode(self, codes: Codes) -> Tensor:
        """The picture that the code is."""
        return codes.identity


def _shift(inputs: int, outputs: int, width: int) -> nn.Sequential:
    """Channels and key maps to what is added, in [-1, 1]."""
    first = nn.Conv2d(inputs + KEY, width, 5, padding=2)
    return nn.Sequential(first, nn.SiLU(), nn.Conv2d(width, outputs, 5, padding=2), nn.Tanh())
