"""Draw the procedural world on one sheet, notebook/synth64_world.webp: python examples/world_sheet.py OUT.webp.

Rows: five persons in eight attribute sets each; eight persons in one attribute set; eight others, their parsing, and
their landmarks.
"""

import sys

import torch
from PIL import Image
from torch import Tensor

from faceanon.data.streams import stream
from faceanon.data.synthetic.factors import sample_attributes, sample_identity
from faceanon.data.synthetic.ground_truth import CLASSES
from faceanon.data.synthetic.render import render

SIDE, COLUMNS, PERSONS = 128, 8, 5
COLOURS = {
    "background": (40, 40, 40),
    "skin": (230, 180, 150),
    "neck": (175, 125, 95),
    "hair": (95, 60, 30),
    "brow": (70, 20, 20),
    "eye": (80, 160, 255),
    "nose": (255, 200, 80),
    "mouth": (220, 40, 80),
    "cloth": (70, 140, 70),
    "occluder": (190, 0, 255),
}


def pixels(image: Tensor) -> Tensor:
    """`(B, 3, S, S)` in [-1, 1] -> `(B, S, S, 3)` uint8."""
    return ((image + 1) * 127.5).round().byte().permute(0, 2, 3, 1)


def with_landmarks(faces: Tensor, landmarks: Tensor) -> Tensor:
    """`(B, S, S, 3)` uint8 with a green dot of 3 x 3 pixels at every landmark `(B, K, 2)` in [-1, 1]."""
    faces = faces.clone()
    places = ((landmarks + 1) / 2 * SIDE).long().clamp(1, SIDE - 2)
    for face, points in zip(faces, places.tolist(), strict=True):
        for x, y in points:
            face[y - 1 : y + 2, x - 1 : x + 2] = torch.tensor([0, 255, 0], dtype=torch.uint8)
    return faces


def world_sheet(seed: int = 0) -> Image.Image:
    """All rows below each other, 1024 x 1152 pixels."""
    generator = stream("world sheet", seed)
    rows = []
    for person in sample_identity(PERSONS, generator):
        attributes = sample_attributes(COLUMNS, generator, 0.5)
        rows.append(pixels(render(person.expand(COLUMNS, -1), attributes, SIDE).image))
    crowd, alike = sample_identity(COLUMNS, generator), sample_attributes(1, generator, 0.0)
    rows.append(pixels(render(crowd, alike.expand(COLUMNS, -1), SIDE).image))
    truth = render(sample_identity(COLUMNS, generator), sample_attributes(COLUMNS, generator, 0.6), SIDE)
    palette = torch.tensor([COLOURS[name] for name in CLASSES], dtype=torch.uint8)
    faces = pixels(truth.image)
    rows += [faces, palette[truth.parsing.long()], with_landmarks(faces, truth.landmarks)]
    return Image.fromarray(torch.cat([torch.cat(list(row), 1) for row in rows], 0).numpy())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    world_sheet().save(sys.argv[1])
