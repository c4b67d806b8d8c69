"""A prior while it is trained: a generator and the encoder that is paired with it."""

from __future__ import annotations

from torch import Tensor, nn

from faceanon.networks.e4e import PyramidEncoder
from faceanon.networks.stylegan2 import Generator


class Prior(nn.Module):
    """Generator and encoder, paired.

    Args:
        generator: StyleGAN2 with its mapping network.
        encoder: Pictures, or latents, to W+.
    """

    def __init__(self, generator: Generator, encoder: PyramidEncoder) -> None:
        super().__init__()
        self.generator = generator
        self.encoder = encoder

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, 3, S, S)` -> its reconstruction and its codes `(B, L, D)`."""
        drawn, codes = self.drawn(image)
        return self.generator.decode(drawn), codes

    def drawn(self, original: Tensor) -> tuple[Tensor, Tensor]:
        """As `forward`, of pictures or latents, with the reconstruction as the generator draws it."""
        codes, _ = self.encoder.with_features(original)
        return self.draw(codes), codes

    def draw(self, codes: Tensor) -> Tensor:
        """Pictures of W+ codes `(B, L, D)`, or the latents of a generator that draws those."""
        if self.generator.latents is None:
            # Where training is compiled, this call is.
            return self.generator.synthesis(codes)
        return self.generator.draw(codes)


def open_noise_inputs(generator: nn.Module, strength: float = 0.1) -> None:
    """Start the noise strengths above 0: at 0 a later stage with a frozen generator could send no features through."""
    for name, parameter in generator.named_parameters():
        if name.endswith("noise.weight"):
            nn.init.constant_(parameter, strength)
