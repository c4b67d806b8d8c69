"""The network that redraws faces which were put on (`networks.flow_painter`, `landmarks.redrawing`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from faceanon.networks.flow_painter import FlowPainter
from faceanon.networks.layout import has_bfloat16
from faceanon.weights.shipped import shipped_network

FILE = "redrawer.safetensors"


class Redrawer:
    """The network that ships.

    Args:
        maps: Channels of a face's drawings.
        condition: Length of what else is known of it.
        folder: Where `redrawer.safetensors` lies; the shipped one when None.

    Raises:
        UserError: If the file is missing or damaged.
    """

    def __init__(self, maps: int, condition: int, folder: Path | None = None) -> None:
        net = shipped_network(partial(FlowPainter, maps=maps, condition=condition), FILE, folder)
        self.net = net.to(memory_format=torch.channels_last)
        self.in_bfloat16 = has_bfloat16()
        if self.in_bfloat16:
            # Autocast would round all weights anew in every call, which takes longer than a face does.
            for layer in self.net.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    layer.bfloat16()

    @torch.no_grad()
    def directions(
        self, noisy: Tensor, time: Tensor, latents: Tensor, mask: Tensor, maps: Tensor, told: Tensor
    ) -> Tensor:
        """Where the flow leads mixtures of faces and noise, `(B, 32, h, h)` float32.

        Args:
            noisy: `(B, 32, h, h)`, where the flow is.
            time: `(B,)`, rising to 1.
            latents: `(B, 32, h, h)` of the pictures; what lies under the mask is not looked at.
            mask: `(B, 1, h, h)` of 0 and 1.
            maps: `(B, maps, h, h)`.
            told: `(B, condition)` of the faces that are wanted.
        """
        self.net.to(noisy.device)
        with torch.autocast(noisy.device.type, torch.bfloat16, enabled=self.in_bfloat16):
            found: Tensor = self.net(noisy, time, latents, mask, maps, told)
        return found.float()
