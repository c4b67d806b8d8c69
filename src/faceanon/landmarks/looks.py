"""Sex, age and skin as an aligned face shows them (`networks.looks`)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from faceanon.networks.looks import LooksNet
from faceanon.weights.shipped import shipped_network

FILE = "looks.safetensors"
MOST = 2.0  # of each number: beyond it a person does not look more like a woman, only the latents stranger


class Looks:
    """The network for looks that ships.

    Args:
        folder: Where `looks.safetensors` lies; the shipped one when None.

    Raises:
        UserError: If the file is missing or damaged.

    Examples:
        >>> import torch
        >>> from faceanon.landmarks.looks import Looks
        >>> Looks().read(torch.zeros(2, 32, 16, 16)).shape
        torch.Size([2, 3])
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.net = shipped_network(LooksNet, FILE, folder)

    def read(self, latents: Tensor) -> Tensor:
        """Sex, youth and skin of faces, with a gradient to their latents.

        Args:
            latents: Normalised, `(B, 32, 16, 16)`; of the whole picture, the face or what surrounds it, the rest 0.

        Returns:
            `(B, 3)` float32 in [-2, 2]: from man to woman, from old to young, from dark skin to light skin whatever the
            light; 0 is between.
        """
        self.net.to(latents.device)
        # In bfloat16 the gradient to the latents would be noise where a face is sure of its looks.
        with torch.autocast(latents.device.type, enabled=False):
            looks: Tensor = self.net(latents.float())
        return looks.clamp(-MOST, MOST)
