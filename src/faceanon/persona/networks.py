"""What Persona asks of its networks, whoever runs them: onnxruntime (`persona.graphs`) or torch (`backbones`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from faceanon.persona.cells import Array, Box

# Names of networks by what they are opened for, those first that are needed first.
RECOVERING = ("encoder", "draw", "finish")
FINDING = ("encoder", "mesh", "covers")
LOOKING = ("encoder", "mesh", "recogniser", "looks", "covers")
REDRAWING = (*LOOKING, "flow", "draw", "finish")


class PersonaNetworks(Protocol):
    """Persona's networks on arrays of float32. Pictures are `(B, 3, S, S)` in [-1, 1], latents normalised."""

    def open(self, names: Iterable[str]) -> None:
        """Begin to open networks; each opens by itself when it is first asked."""
        ...

    def encode(self, image: Array) -> Array:
        """Latents `(B, 32, S / 8, S / 8)` of pictures."""
        ...

    def decode(self, latents: Array, window: Box) -> Array:
        """The pixels of a window of cells, `(B, 3, 8 (bottom - top), 8 (right - left))`, not clamped."""
        ...

    def preview(self, latents: Array) -> Array:
        """Colours `(B, 3, h, h)` of latents, one a cell, without the decoder."""
        ...

    def points(self, image: Array) -> tuple[Array, Array]:
        """Points `(B, 468, 3)`, x and y in [-1, 1] and depth in the same unit, and confidences `(B,)`."""
        ...

    def cover_chances(self, latents: Array, maps: Array) -> Array:
        """How likely something covers each cell, `(B, 1, h, h)` in [0, 1]; `maps` `(B, 8, h, h)`: mask and lines."""
        ...

    def embed(self, image: Array) -> Array:
        """What the recogniser sees, `(B, E)` of unit length; S = 128."""
        ...

    def looks(self, latents: Array) -> Array:
        """Sex, youth and skin, `(B, 3)` in [-2, 2], of latents `(B, 32, 16, 16)`."""
        ...

    def directions(self, noisy: Array, time: Array, latents: Array, mask: Array, maps: Array, told: Array) -> Array:
        """Where the flow leads `(B, 32, 16, 16)` at times `(B,)`; `told` `(B, 85)`: code, light, pose."""
        ...
