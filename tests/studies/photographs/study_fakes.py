"""Tiny persons and tools for studies: pictures whose middle says who it is, and judges that read it."""

import numpy as np
import torch
from PIL import Image

from faceanon.backbones.base import Backbone
from faceanon.photo.detect import Detection
from faceanon.pipeline import Pipeline
from faceanon.studies.photographs.judges import Judge
from faceanon.studies.photographs.run import Tools
from fakes import KeyedTint

SIDE = 64


def write_people(folder, people=4, pictures=3, side=SIDE):
    """A folder a person; each person has a colour of their own, each picture a light of its own."""
    rng = np.random.default_rng(0)
    for person in range(people):
        colour = rng.uniform(40, 215, 3)
        for number in range(pictures):
            shade = np.linspace(-15, 15, side)[:, None, None] * rng.uniform(0.5, 1)
            noise = rng.normal(0, 4, (side, side, 3))
            pixels = (colour + shade + noise).clip(0, 255).astype(np.uint8)
            target = folder / f"person {person}" / f"{number:04d}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(target)
    return folder


def colour_of(image):
    """`(B, 3, S, S)` -> `(B, 4)`: mean colour of the middle, and a constant that keeps every vector away from 0."""
    quarter = image.shape[-1] // 4
    middle = image[:, :, quarter:-quarter, quarter:-quarter].mean((2, 3))
    return torch.cat([middle, torch.full_like(middle[:, :1], 0.2)], 1)


def colour_judge(name="colour", similarity="euclidean", white_box=False):
    return Judge(name, colour_of, similarity, white_box, "v1")


class CountingMesh:
    """Points that hang on the picture's brightness alone; counts the faces it has seen."""

    def __init__(self):
        self.seen = 0
        self.points_of_a_face = np.random.default_rng(0).uniform(0.2, 0.8, (468, 2)).astype(np.float32)

    def points(self, faces):
        self.seen += len(faces)
        light = faces.reshape(len(faces), -1).mean(1) / 255
        moved = self.points_of_a_face + light[:, None, None] * np.linspace(0, 0.05, 468)[:, None]
        return (moved * faces.shape[1]).astype(np.float32), np.ones(len(faces), np.float32)


class BrightDetector:
    """Finds one face in whatever is not black."""

    def detect(self, image):
        return [Detection((0.0, 0.0, 1.0, 1.0), 0.9, np.zeros((5, 2)))] if image.max() > 0 else []


class Unchanged(KeyedTint):
    """Shows everybody as they are."""

    def anonymize(self, image, key):
        return image.clone()

    def recover(self, image, key):
        return image.clone()


class Replacing(KeyedTint):
    """Paints one colour that the key alone decides, so nobody is left; there is no way back."""

    reversible = False

    def anonymize(self, image, key):
        colour = key.mean((2, 3)).mul(4).tanh()
        return image * 0 + colour[:, :, None, None]


class Blind(KeyedTint):
    """Can be applied to nobody: gives no picture, so the product hides every face in another way."""

    def anonymize(self, image, key):
        return image * float("nan")


class Copy(Backbone):
    """The fakes' codec: nothing changes."""

    reversible = False
    key_shape = (1,)
    image_size = SIDE
    framing = {"scale": 1.0, "right": 0.0, "down": 0.0}  # noqa: RUF012 - a fake

    def encode(self, image):
        raise NotImplementedError

    def transform(self, identity, key, inverse=False):
        raise NotImplementedError

    def decode(self, codes):
        raise NotImplementedError

    def anonymize(self, image, key):
        return image.clone()


def make_tools(backbone=None, judges=None, mesh=None, round_trip=True):
    """Tools over the fakes."""
    pipeline = Pipeline(backbone or KeyedTint(), name="tint")
    trip = Pipeline(Copy(), name="codec") if round_trip else None
    return Tools(pipeline, judges or (colour_judge(),), mesh or CountingMesh(), BrightDetector(), trip)
