"""Painted faces of 128 px (`cast: false`), enlarged to fit a picture of 256 px (`networks.latent_enlarger`)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from faceanon.networks.latent_enlarger import LatentEnlarger
from faceanon.weights.shipped import shipped_network

FILE = "enlarger.safetensors"


class Enlarger:
    """The network that ships.

    Args:
        folder: Where `enlarger.safetensors` lies; the shipped one when None.

    Raises:
        UserError: If the file is missing or damaged.

    Examples:
        >>> import torch
        >>> from faceanon.landmarks.enlarger import Enlarger
        >>> small = torch.zeros(1, 32, 16, 16)
        >>> large = torch.ones(1, 32, 32, 32)
        >>> mask = torch.zeros(1, 1, 32, 32)
        >>> mask[:, :, 8:24, 8:24] = 1
        >>> whole = Enlarger().enlarge(small, large, mask)
        >>> bool((whole == large)[:, :, :8].all()), bool((whole == large)[:, :, 8:24, 8:24].all())
        (True, False)
    """

    def __init__(self, folder: Path | None = None) -> None:
        net = shipped_network(LatentEnlarger, FILE, folder)
        self.net = net.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def enlarge(self, small: Tensor, large: Tensor, mask: Tensor) -> Tensor:
        """Latents of the large picture with the face of the small one.

        Args:
            small: Normalised latents `(B, 32, 16, 16)` of the small picture, the painted face among them.
            large: The same of the original large picture, `(B, 32, 32, 32)`.
            mask: `(B, 1, 32, 32)` of 0 and 1, the cells that are painted.

        Returns:
            `(B, 32, 32, 32)` float32; outside the mask as `large`.
        """
        self.net.to(small.device)
        filled: Tensor = self.net(small.float(), large.float(), mask.float())
        return filled
