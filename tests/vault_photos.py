"""A photo with everything a vault has to bring back, and how to hide and show it."""

import numpy as np
from PIL import Image

from faceanon.key import KdfParameters, Password
from faceanon.photo.detect import Detection
from faceanon.pipeline import anonymize_file, recover_file
from faceanon.pipeline.tasks import Output

CHEAP = KdfParameters(memory_kib=64, iterations=1, lanes=1)
WORD = "correct-horse-battery"
SHAPE = np.array([[-0.5, 0], [0.5, 0], [0, 0.5], [-0.4, 1], [0.4, 1]])
FACES = [
    Detection((60, 40, 110, 100), 0.99, SHAPE * 26 + np.array([85, 62])),
    Detection((95, 55, 140, 110), 0.98, SHAPE * 24 + np.array([117, 80])),  # overlaps the first
    Detection((-10, 120, 30, 160), 0.97, SHAPE * 20 + np.array([12, 132])),  # sticks out
    Detection((150, 140, 160, 150), 0.9, SHAPE * 3 + np.array([155, 144])),  # small: hidden by blur
]


def make_photo(path, seed=0, **options):
    """A photo with detail in every pixel, a place and a camera in its EXIF data, and turned."""
    pixels = np.random.default_rng(seed).integers(0, 256, (160, 180, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "Secretcam", 3
    exif.get_ifd(0x8825)[1] = "N"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, exif=exif, **options)
    return path


def hide(pipe, source, target, **options):
    return anonymize_file(pipe, source, target, Password(WORD, bytes(16), CHEAP), output=Output(vault=True, **options))


def show(pipe, source, target, word=WORD):
    return recover_file(pipe, source, target, Password(word), exact=True)
