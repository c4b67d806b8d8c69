"""Photographs that ship, as small folders of persons for the tests."""

from pathlib import Path

from PIL import Image

from faceanon.data.files import read_photos
from faceanon.data.prepared import shipped_photos


def write_faces(folder: Path, persons: int, side: int = 64, photos: int = 2) -> Path:
    """Write `folder/PERSON/NUMBER.png`; a person's further pictures are the first one, a little darker."""
    chosen = [photo.path for photo in shipped_photos("train")[:persons]]
    for person, pixels in enumerate(read_photos(chosen, side)):
        (folder / f"{person:03}").mkdir(parents=True, exist_ok=True)
        for number in range(photos):
            Image.fromarray((pixels * (1 - 0.1 * number)).astype("uint8")).save(folder / f"{person:03}/{number}.png")
    return folder
