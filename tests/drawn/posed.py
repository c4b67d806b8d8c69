"""Pictures of procedural faces to try the product on, with something around them as in a photo."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageFilter

from drawn.factors import sample_attributes, sample_identity
from drawn.render import render

Place = tuple[int, int, int]  # x, y, side in pixels
GROUP: tuple[Place, ...] = ((40, 60, 200), (300, 30, 220), (580, 70, 190), (150, 300, 210), (450, 290, 230))


def group_photo(
    seed: int = 5, places: Sequence[Place] = GROUP, size: tuple[int, int] = (820, 560), occlusion: float = 0.4
) -> Image.Image:
    """Faces on a soft background.

    Args:
        seed: Who, and before what.
        places: Where each face lies.
        size: Width and height in pixels.
        occlusion: Share of faces with something before them, in [0, 1].

    Examples:
        >>> from drawn.posed import group_photo
        >>> group_photo(places=[(40, 60, 200)], size=(300, 300)).size
        (300, 300)
    """
    generator = torch.Generator().manual_seed(seed)
    identities = sample_identity(len(places), generator)
    attributes = sample_attributes(len(places), generator, occlusion)
    noise = np.random.default_rng(seed).integers(60, 190, (8, 12, 3), dtype=np.uint8)
    photo = Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(20))
    for row, (x, y, side) in enumerate(places):
        image = render(identities[row : row + 1], attributes[row : row + 1], size=256).image[0]
        pixels = ((image.permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()
        photo.paste(Image.fromarray(pixels).resize((side, side), Image.Resampling.LANCZOS), (x, y))
    return photo
