"""Folders as a user has them, from the synthetic photographs that ship."""

import csv
from collections import defaultdict

from PIL import Image, ImageFilter

from faceanon.paths import checkpoints


def persons(people, pictures):
    """Files of so many shipped people, so many of each."""
    table = checkpoints() / "photo128" / "pictures.csv"
    files = defaultdict(list)
    with table.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            files[row["person"]].append(table.parent / "pictures" / row["file"])
    several = [own[:pictures] for own in files.values() if len(own) >= pictures]
    assert len(several) >= people
    return several[:people]


def write_originals(folder, people=4, pictures=2):
    """`PERSON/NUMBER.png`, aligned faces."""
    for number, files in enumerate(persons(people, pictures)):
        for place, file in enumerate(files):
            target = folder / f"person {number}" / f"{place}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            with Image.open(file) as image:
                image.convert("RGB").resize((128, 128)).save(target)
    return folder


def changed(originals, folder, change, ending=".png"):
    """What a tool makes of every picture: the same names with another ending."""
    for path in sorted(originals.rglob("*.png")):
        target = (folder / path.relative_to(originals)).with_suffix(ending)
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            change(image).save(target)
    return folder


def grey(image):
    return Image.new("RGB", image.size, (128, 128, 128))


def blurred(image):
    return image.filter(ImageFilter.GaussianBlur(8))


def same(image):
    return image
