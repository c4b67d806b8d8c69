"""How likely something else covers the cells of a face, by the network that ships (`networks.cover_finder`)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from faceanon.networks.cover_finder import CoverFinderNet
from faceanon.weights.shipped import shipped_network

FILE = "covers.safetensors"


class CoverFinder:
    """The network that ships.

    Args:
        folder: Where `covers.safetensors` lies; the shipped one when None.

    Raises:
        UserError: If the file is missing or damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.net = shipped_network(CoverFinderNet, FILE, folder)

    def chances(self, latents: Tensor, maps: Tensor) -> Tensor:
        """How likely something covers each cell; `landmarks.cover_cells` says which of them count.

        Args:
            latents: `(B, 32, h, h)` normalised latents of the pictures.
            maps: `(B, 8, h, h)`: masks of the faces, then the drawings' means over the cells.

        Returns:
            `(B, 1, h, h)` float32 in [0, 1].
        """
        if next(self.net.parameters()).device != latents.device:
            self.net.to(latents.device)
        with torch.no_grad(), torch.autocast(latents.device.type, enabled=False):
            logits: Tensor = self.net(latents.float(), maps.float())
        return logits.sigmoid()
