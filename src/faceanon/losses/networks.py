"""The frozen networks that losses look through; a `weights.bundle.Bundle` fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from faceanon.networks.adapters import PerceptualDistance


class LossNetworks(Protocol):
    """What the terms of the stages need; see `weights.bundle.Bundle` for shapes and ranges."""

    @property
    def recogniser(self) -> Callable[[Tensor], Tensor]:
        """`(B, 3, S, S)` -> unit `(B, E)`."""

    @property
    def parser(self) -> Callable[[Tensor], Tensor]:
        """`(B, 3, S, S)` -> logits `(B, C, S, S)`."""

    @property
    def perceptual(self) -> PerceptualDistance:
        """`(a, b)` -> `(B,)`."""

    @property
    def part_classes(self) -> tuple[int, ...]:
        """Parsing classes that the parse loss compares."""
