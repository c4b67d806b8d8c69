"""The classical methods that hide small faces."""

from __future__ import annotations

from functools import cache

from faceanon.backbones.classical import Blur, Irreversible, Mask, Pixelate
from faceanon.photo.policy import BLUR, CELLS


@cache
def obscuring(name: str) -> Irreversible:
    """Stronger than the methods' own defaults: a face here fills two thirds of the square."""
    if name == "blur":
        return Blur(region="picture", sigma=BLUR)
    if name == "pixelate":
        return Pixelate(region="picture", cells=CELLS)
    return Mask(region="picture")
