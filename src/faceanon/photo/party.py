"""Group photos of people who do not exist, from the synthetic photographs that ship, to try the product on."""

from __future__ import annotations

import csv

from PIL import Image

from faceanon.paths import checkpoints

SIDE = 256  # pixels of one person's picture in the photo
GAP = 14
PEOPLE = ("test", 3)  # split of the pictures, and how many of them
CROWD_SIDE = 386  # of one person's picture in a crowd
CROWD_ACROSS = 4
CROWD_DOWN = 3
CROWD = CROWD_ACROSS * CROWD_DOWN


def photo_party() -> Image.Image:
    """Three people side by side before a grey wall, an RGB photo of 824 x 284 px.

    They are the first persons of the shipped test pictures, whom no shipped model was trained on.

    Examples:
        >>> from faceanon.photo.party import photo_party
        >>> photo_party().size
        (824, 284)
    """
    split, count = PEOPLE
    return _wall(_files(split)[:count], count, SIDE)


def photo_crowd(number: int = 0) -> Image.Image:
    """Twelve people in three rows before a grey wall, an RGB photo of 1614 x 1214 px.

    Args:
        number: Which crowd, from 0; others have other people, or the same in another order.
    """
    files = _files("test")
    chosen = []
    for position in range(CROWD):
        chosen.append(files[(number * CROWD + position) % len(files)])
    return _wall(chosen, CROWD_ACROSS, CROWD_SIDE)


def _files(split: str) -> list[str]:
    """One picture of each person of a split of the shipped pictures."""
    with (checkpoints() / "photo128" / "pictures.csv").open(encoding="utf-8", newline="") as file:
        rows = []
        for row in csv.DictReader(file):
            if row["split"] == split:
                rows.append(row)
    # One entry for each person, in the order of the list; of several pictures the last one stays.
    return list({row["person"]: row["file"] for row in rows}.values())


def _wall(files: list[str], across: int, side: int) -> Image.Image:
    """The pictures in rows of `across`, each `side` px wide."""
    down = -(-len(files) // across)
    photo = Image.new("RGB", (across * (side + GAP) + GAP, down * (side + GAP) + GAP), (126, 128, 132))
    for number, name in enumerate(files):
        with Image.open(checkpoints() / "photo128" / "pictures" / name) as picture:
            person = picture.convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
        row, column = divmod(number, across)
        photo.paste(person, (GAP + column * (side + GAP), GAP + row * (side + GAP)))
    return photo
