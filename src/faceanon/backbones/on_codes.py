"""What methods on w+ codes share: a bundle's StyleGAN2, its encoder, and the mean code."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.weights.bundle import Bundle


class OnCodes(Backbone):
    """A method that reads pictures as w+ codes and draws codes with the bundle's generator.

    Args:
        bundle: Bundle by name or folder.

    Attributes:
        generator: Draws codes.
        encoder: Reads codes, less the mean code.
        latent_avg: The mean code `(L, D)`.
    """

    latent_avg: Tensor

    def __init__(self, bundle: str) -> None:
        super().__init__()
        self.bundle = Bundle(bundle)
        self.generator = self.bundle.generator()
        # Lightning does not call `train` when a fit starts.
        self.encoder = self.bundle.encoder().eval()
        # A clone: loading saved weights writes into the buffer, and all users of a bundle share its tensor.
        self.register_buffer("latent_avg", self.bundle.latent_avg.clone())

    def train(self, mode: bool = True) -> Self:
        """Train mode, save for the encoder, whose batch statistics stay as they came."""
        super().train(mode)
        self.encoder.eval()
        return self
