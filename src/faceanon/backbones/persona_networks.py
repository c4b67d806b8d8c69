"""Persona's networks in torch: on any device, in bfloat16 where the processor has it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from faceanon.backbones.persona_cells import mesh_points, numbers_of
from faceanon.networks.layout import has_bfloat16
from faceanon.persona.cells import Array, Box

if TYPE_CHECKING:
    from faceanon.backbones.persona import Persona


class TorchNetworks:
    """`persona.networks.PersonaNetworks` in torch.

    Args:
        method: Has the networks; they run where its flow is.
    """

    def __init__(self, method: Persona) -> None:
        self.method = method
        self._rounded: tuple[tuple[object, ...], nn.Module] | None = None

    def open(self, names: Iterable[str]) -> None:
        """Nothing: each network is built when it is first asked."""

    def _here(self, *arrays: NDArray[Any]) -> list[Tensor]:
        device = next(self.method.flow.parameters()).device
        return [torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(device) for array in arrays]

    @torch.no_grad()
    def encode(self, image: Array) -> Array:
        """Latents `(B, 32, S / 8, S / 8)` of pictures."""
        return numbers_of(self.method.bundle.codec.encode(*self._here(image)))

    @torch.no_grad()
    def decode(self, latents: Array, window: Box) -> Array:
        """The pixels of a window of cells."""
        return numbers_of(self.method.bundle.codec.decode_part(self._here(latents)[0], window))

    @torch.no_grad()
    def preview(self, latents: Array) -> Array:
        """Colours `(B, 3, h, h)` of latents."""
        return numbers_of(self.method.bundle.codec.preview(*self._here(latents)))

    def points(self, image: Array) -> tuple[Array, Array]:
        """Points `(B, 468, 3)` in [-1, 1], and confidences `(B,)`."""
        return mesh_points(self.method.mesh, image)

    def cover_chances(self, latents: Array, maps: Array) -> Array:
        """How likely something covers each cell, `(B, 1, h, h)`."""
        return numbers_of(self.method.finder.chances(*self._here(latents, maps)))

    @torch.no_grad()
    def embed(self, image: Array) -> Array:
        """What the recogniser sees, `(B, E)` of unit length."""
        return numbers_of(self.method.bundle.recogniser(*self._here(image)))

    @torch.no_grad()
    def looks(self, latents: Array) -> Array:
        """Sex, youth and skin, `(B, 3)`."""
        return numbers_of(self.method.looks.read(*self._here(latents)))

    @torch.no_grad()
    def directions(self, noisy: Array, time: Array, latents: Array, mask: Array, maps: Array, told: Array) -> Array:
        """Where the flow leads."""
        given = self._here(noisy, time, latents, mask, maps, told)
        with torch.autocast(given[0].device.type, torch.bfloat16, enabled=has_bfloat16()):
            return numbers_of(self._flow()(*given))

    def _flow(self) -> nn.Module:
        """The flow, in bfloat16 where the processor has it.

        Autocast would round all weights anew in every call, which takes longer than a face does. So a rounded copy is
        kept for as long as the weights are the same.
        """
        weights = list(self.method.flow.parameters())
        # What moves a weight in its place counts on, but for fused optimizers: a flow that trains is rounded anew. A
        # copied method brings this state along, and its flow counts anew. Tensors of inference mode do not count.
        counts = [0 if weight.is_inference() else weight._version for weight in weights]
        state = (id(self.method.flow), weights[0].device, *counts)
        if self._rounded is None or self._rounded[0] != state or weights[0].requires_grad:
            flow = copy.deepcopy(self.method.flow).eval().requires_grad_(False).to(memory_format=torch.channels_last)
            if has_bfloat16():
                for layer in flow.modules():
                    if isinstance(layer, nn.Conv2d | nn.Linear):
                        layer.bfloat16()
            self._rounded = (state, flow)
        return self._rounded[1]
