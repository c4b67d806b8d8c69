"""Draw a group photo of procedural faces to try the product on: python examples/group_photo.py OUT.png."""

import sys

import numpy as np
import torch
from PIL import Image, ImageFilter

from faceanon.data.synthetic.factors import sample_attributes, sample_identity
from faceanon.data.synthetic.render import render

PLACES = ((40, 60, 200), (300, 30, 220), (580, 70, 190), (150, 300, 210), (450, 290, 230))  # x, y, side in pixels


def group_photo(seed: int = 5) -> Image.Image:
    """Five faces of different size on a soft background, 820 x 560 pixels."""
    generator = torch.Generator().manual_seed(seed)
    identities, attributes = sample_identity(len(PLACES), generator), sample_attributes(len(PLACES), generator, 0.4)
    noise = np.random.default_rng(seed).integers(60, 190, (8, 12, 3), dtype=np.uint8)
    photo = Image.fromarray(noise).resize((820, 560), Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(20))
    for row, (x, y, side) in enumerate(PLACES):
        image = render(identities[row : row + 1], attributes[row : row + 1], size=256).image[0]
        pixels = ((image.permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()
        photo.paste(Image.fromarray(pixels).resize((side, side), Image.Resampling.LANCZOS), (x, y))
    return photo


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    group_photo().save(sys.argv[1])
