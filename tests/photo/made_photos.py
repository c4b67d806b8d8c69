"""Photos as cameras make them, from the synthetic photographs that ship: any size, anybody anywhere, lying or not."""

import csv

import numpy as np
from PIL import Image

from faceanon.paths import checkpoints

FACE = 0.5  # side of a face's box over the side of a shipped photograph, about


def people(count, start=0):
    """So many shipped photographs of 256 px, each of another person."""
    folder = checkpoints() / "photo128"
    with (folder / "pictures.csv").open(encoding="utf-8", newline="") as file:
        by_person = {row["person"]: row["file"] for row in csv.DictReader(file)}
    names = list(by_person.values())[start : start + count]
    assert len(names) == count
    return [Image.open(folder / "pictures" / name).convert("RGB") for name in names]


def portrait(picture, side):
    """One photograph enlarged to `side` px."""
    return np.array(picture.resize((side, side), Image.Resampling.BICUBIC))


def placed(width, height, face, middles, turn=0, start=0):
    """A grey photo `(H, W, 3)` with faces of about `face` px around some middles, each turned by quarters."""
    photo = np.full((height, width, 3), (126, 128, 132), np.uint8)
    side = round(face / FACE)
    for picture, (x, y) in zip(people(len(middles), start), middles, strict=True):
        person = np.rot90(portrait(picture, side), turn)
        left = x - side // 2
        top = y - side // 2
        photo[top : top + side, left : left + side] = person
    return photo


def grid(across, down, step, first):
    """Middles of a grid of places, `step` px apart."""
    return [(first + column * step, first + row * step) for row in range(down) for column in range(across)]
