"""Which cells of a face something else covers, as the network that ships finds them (`networks.cover_finder`).

A cell that is wrongly called covered shows the person. So a cover counts only where the network is sure, where several
such cells lie together, and while enough of the face is left to be changed; an eye is covered as a whole or not.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from faceanon.landmarks.cover_cells import covered_in
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

    def covers(self, latents: Tensor, maps: Tensor, meshes: Tensor) -> Tensor:
        """Cells that are to stay as they are.

        Args:
            latents: `(B, 32, h, h)` normalised latents of the pictures.
            maps: `(B, 8, h, h)`: masks of the faces, then the drawings' means over the cells.
            meshes: `(B, 468, 2)` points in [-1, 1] of the pictures.

        Returns:
            `(B, 1, h, h)` float32 of 0 and 1, 1 in covered cells of the masks.
        """
        chances = self.chances(latents, maps).cpu().numpy()
        masks = maps[:, :1].cpu().numpy() > 0.5
        points = meshes.detach().cpu().float().numpy()
        found = covered_in(chances, masks, points)
        return torch.from_numpy(found).to(latents.device)

    def chances(self, latents: Tensor, maps: Tensor) -> Tensor:
        """How likely something covers each cell, `(B, 1, h, h)` float32 in [0, 1]; as in `covers`."""
        if next(self.net.parameters()).device != latents.device:
            self.net.to(latents.device)
        with torch.no_grad(), torch.autocast(latents.device.type, enabled=False):
            logits: Tensor = self.net(latents.float(), maps.float())
        return logits.sigmoid()
