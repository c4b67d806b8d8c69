"""A network that reads sex, age and skin off a photograph's latents."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

LOOKS = ("sex", "youth", "light skin")
WIDTHS = (32, 48, 64, 96)
GROUPS = 8


class LooksNet(nn.Module):
    """How a person looks, from the latents of an aligned photograph of 128 px, or of parts of it.

    A recogniser's embedding tells sex and age of invented people, and nothing of real ones: it was trained to tell
    persons apart. Hair, brows and lips tell both. How bright a face is depends on the light more than on the skin; a
    network that saw people in every light tells the skin.

    Args:
        channels: Channels of the latents.
        cells: Cells a side of the latents.

    Examples:
        >>> import torch
        >>> from faceanon.networks.looks import LooksNet
        >>> LooksNet()(torch.zeros(2, 32, 16, 16)).shape
        torch.Size([2, 3])
    """

    def __init__(self, channels: int = 32, cells: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, WIDTHS[0], 3, 1, 1), nn.GroupNorm(GROUPS, WIDTHS[0])]
        layers.append(nn.LeakyReLU(0.2))
        for inputs, outputs in pairwise(WIDTHS):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.GroupNorm(GROUPS, outputs), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers)
        side = cells // 2 ** (len(WIDTHS) - 1)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(WIDTHS[-1] * side * side, len(LOOKS)))

    def forward(self, latents: Tensor) -> Tensor:
        """Normalised latents `(B, channels, cells, cells)` -> `(B, 3)` of about mean 0 and variance 1.

        The first number rises from man to woman, the second from old to young, the third from dark skin to light skin,
        whatever the light.
        """
        looks: Tensor = self.head(self.layers(latents))
        return looks
