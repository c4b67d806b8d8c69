"""Blur, pixelation and a mask as methods of a pipeline: they need no model, and give nothing back."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from faceanon.key import Secret
from faceanon.landmarks.geometry import ELLIPSE
from faceanon.persona.cells import Array
from faceanon.persona.method import ArrayMethod
from faceanon.photo.crop_paste import obscured


class ObscuringMethod(ArrayMethod):
    """One of the three.

    Args:
        how: `blur`, `pixelate` or `mask`.
        beside: A method whose squares and sizes it takes over.
    """

    sealed = False
    reversible = False
    on_processor = True
    works_through_codes = False

    def __init__(self, how: str, beside: ArrayMethod) -> None:
        self.name = how
        # It has none, but the three are told apart by them.
        self.weights = hashlib.sha256(how.encode()).hexdigest()
        self.method = f"faceanon.backbones.classical.{how.capitalize()}"
        self.image_size = beside.image_size
        self.face_sizes = beside.face_sizes
        self.framing = beside.framing

    def key(self, secret: Secret) -> Array:
        """A number that plays no part."""
        del secret
        return np.zeros(1, np.float32)

    def anonymize(self, image: Array, keys: Array) -> Array:
        """Faces `(B, 3, S, S)` obscured within an ellipse; the keys `(B, 1)` are ignored."""
        del keys
        result = image.copy()
        inside = _ellipse(image.shape[-1])
        for row, face in enumerate(image):
            result[row][:, inside] = obscured(face, self.name)[:, inside]
        return result


@cache
def _ellipse(side: int) -> Array:
    """`(S, S)` bool, where an aligned face lies."""
    steps = (np.arange(side) + 0.5) / side
    x, y, across, down = ELLIPSE
    inside: Array = ((steps[None] - x) / across) ** 2 + ((steps[:, None] - y) / down) ** 2 <= 1
    return inside
