"""Drawing by signed distances: a canvas that layers are painted on, a few shapes, and colours.

Planes are `(B, S, S)`, factors `(B, 1, 1)`, colours `(B, 3, 1, 1)` in [0, 1]. A signed distance is negative inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SOFTNESS = 1.4  # pixels over which the edge of a shape is blended


@dataclass
class Canvas:
    """The picture so far.

    Args:
        image: `(B, 3, S, S)` float32, colours in [0, 1].
        parsing: `(B, S, S)` int64 class per pixel.
        pixel: Side of a pixel in head units; edges are blended over about one of them.
    """

    image: Tensor
    parsing: Tensor
    pixel: float

    def cover(self, distance: Tensor) -> Tensor:
        """Opacity in [0, 1] of a shape with that signed distance."""
        return (0.5 - distance / (self.pixel * SOFTNESS)).clamp(0, 1)

    def paint(self, opacity: Tensor, colour: Tensor, label: int | None = None) -> None:
        """Lay a colour `(B, 3, 1, 1)` or a picture `(B, 3, S, S)` over the canvas; label where it prevails."""
        self.image = torch.lerp(self.image, colour.expand_as(self.image), opacity[:, None])
        if label is not None:
            self.mark(opacity, label)

    def mark(self, opacity: Tensor, label: int) -> None:
        """Label the pixels where `opacity` is above one half."""
        self.parsing = self.parsing.masked_fill(opacity > 0.5, label)


def capsule(x: Tensor, y: Tensor, start: tuple[Tensor, Tensor], end: tuple[Tensor, Tensor], radius: float) -> Tensor:
    """Signed distance to a line segment of that radius."""
    along_x = end[0] - start[0]
    along_y = end[1] - start[1]
    dx = x - start[0]
    dy = y - start[1]
    length = (along_x * along_x + along_y * along_y).clamp(min=1e-9)
    t = ((dx * along_x + dy * along_y) / length).clamp(0, 1)
    return ((dx - t * along_x) ** 2 + (dy - t * along_y) ** 2 + 1e-9).sqrt() - radius


def flat(like: Tensor, red: float, green: float, blue: float) -> Tensor:
    """One constant colour `(1, 3, 1, 1)` on the device of `like`."""
    return like.new_tensor([red, green, blue]).view(1, 3, 1, 1)


def hsv(hue: Tensor, saturation: Tensor | float, value: Tensor) -> Tensor:
    """Colour `(B, 3, 1, 1)` from hue (in turns), saturation and value, each `(B, 1, 1)`."""
    # The closed form f(n) = v - v s max(0, min(k, 4 - k, 1)), k = (n + 6 h) mod 6, with n = 5, 3, 1 for R, G, B.
    k = torch.stack([(n + hue * 6) % 6 for n in (5.0, 3.0, 1.0)], dim=1)
    ramp = torch.minimum(k, 4 - k).clamp(0, 1)
    value = value[:, None]
    if isinstance(saturation, Tensor):
        saturation = saturation[:, None]
    return value - value * saturation * ramp
