"""A group photo of people who do not exist, from the synthetic photographs that ship, to try the product on."""

from __future__ import annotations

import csv

from PIL import Image

from faceanon.paths import checkpoints

SIDE = 256  # pixels of one person's picture in the photo
GAP = 14
PEOPLE = ("test", 3)  # split of the pictures, and how many of them


def photo_party() -> Image.Image:
    """Three people side by side before a grey wall, an RGB photo of 824 x 284 px.

    They are the first persons of the shipped test pictures, whom no shipped model was trained on.
    """
    folder = checkpoints() / "photo128"
    split, count = PEOPLE
    with (folder / "pictures.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == split]
    files = list({row["person"]: row["file"] for row in rows}.values())[:count]
    photo = Image.new("RGB", (count * (SIDE + GAP) + GAP, SIDE + 2 * GAP), (126, 128, 132))
    for number, name in enumerate(files):
        with Image.open(folder / "pictures" / name) as picture:
            person = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        photo.paste(person, (GAP + number * (SIDE + GAP), GAP))
    return photo
