"""What users wait for: photos, the command line's start, loading, evaluation."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench.cases import Case, Work, register
from bench.settings import Settings
from bench.steps import faces
from faceanon.data.files import read_photos
from faceanon.data.folder import FolderFaces
from faceanon.data.prepared import shipped_photos
from faceanon.errors import UserError
from faceanon.key import Password, Secret
from faceanon.metrics.evaluation import Evaluation
from faceanon.models import default_model
from faceanon.photo.party import CROWD, photo_crowd
from faceanon.pipeline.many.engine import run_tasks
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.tasks import AnonymizeTask, Output

PHOTO = 512
FACE = 256
PHOTOS = 4
LOADED = 256
EVALUATED = 16
CROWDS = 2
BATCH = 16


def photo(index: int) -> Image.Image:
    """A soft background with the picture of one person in the middle."""
    face = read_photos([shipped_photos("test")[index].path], FACE)[0]
    coarse = np.random.default_rng(index).integers(60, 200, (8, 8, 3), dtype=np.uint8)
    pixels = np.array(Image.fromarray(coarse).resize((PHOTO, PHOTO), Image.Resampling.BICUBIC))
    start = (PHOTO - FACE) // 2
    pixels[start : start + FACE, start : start + FACE] = face
    return Image.fromarray(pixels)


def _pipeline(settings: Settings) -> Pipeline:
    return Pipeline.load(default_model(), device=settings.device)


def photos_in_memory(settings: Settings) -> Work:
    """`Pipeline.anonymize`, one photo after another."""
    pipeline = _pipeline(settings)
    secret = Secret.random(0)
    pictures = list(map(photo, range(PHOTOS)))

    def call() -> None:
        for picture in pictures:
            pipeline.anonymize(picture, secret)

    return Work(call, PHOTOS)


def photos_of_a_folder(settings: Settings) -> Work:
    """As `faceanon anonymize IN OUT` does it: read, find, crop, change, paste, write."""
    return _folder(settings, _pipeline(settings), list(map(photo, range(PHOTOS))), PHOTOS)


def crowds_of_a_folder(settings: Settings) -> Work:
    """The same of group photos."""
    return _folder(settings, _pipeline(settings), list(map(photo_crowd, range(CROWDS))), CROWDS * CROWD)


def _folder(settings: Settings, pipeline: Pipeline, pictures: Sequence[Image.Image], images: int) -> Work:
    """A run over a folder of such JPEGs; `images` says how many things it is measured by."""
    password = Password("a word")
    scratch = tempfile.TemporaryDirectory()
    folder = Path(scratch.name)
    for index, picture in enumerate(pictures):
        picture.save(folder / f"{index}.jpg", quality=95)
    # Its slow derivation is paid once a folder.
    password.secret()

    def call() -> None:
        sources = sorted(folder.glob("*.jpg"))
        tasks = (
            AnonymizeTask(pipeline, source, folder / f"{source.stem}.png", password, output=Output())
            for source in sources
        )
        for task, result in run_tasks(pipeline, tasks, max(1, settings.threads), pipeline.batch):
            # A photo that was refused would look fast.
            if isinstance(result, UserError):
                raise UserError(f"{task.source.name}: {result}")

    # The bound method keeps the folder: it is deleted when its object is no longer used.
    return Work(call, images, close=scratch.cleanup)


def process(settings: Settings, words: Sequence[str]) -> Work:
    """A Python process from its start to its end."""

    def call() -> None:
        subprocess.run([sys.executable, *words], check=True, capture_output=True)

    return Work(call, in_children=True)


def _epoch(loader: torch.utils.data.DataLoader[object]) -> None:
    for _ in loader:
        pass


def loading_folder(settings: Settings, memory: bool) -> Work:
    """An epoch of `FolderFaces`, batches of 16 at 64 px, from memory or from JPEGs."""
    scratch = tempfile.TemporaryDirectory()
    photos = [*shipped_photos("train"), *shipped_photos("test")]
    for index, pixels in enumerate(read_photos([item.path for item in photos[:LOADED]], 64)):
        person = Path(scratch.name, f"{index // 4:03}")
        person.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(person / f"{index}.jpg", quality=95)
    data = FolderFaces(scratch.name, image_size=64, batch_size=BATCH, workers=0, val_fraction=0.02)
    if not memory:
        # From the disk, however much memory the machine has.
        data.memory_limit = 0.0
    data.setup("fit")
    # Pictures that fill no batch are left out of an epoch, so they must not count.
    batches = len(data.train_dataloader())
    return Work(lambda: _epoch(data.train_dataloader()), batches * BATCH, close=scratch.cleanup)


def evaluation(settings: Settings) -> Work:
    """`Evaluation.update` with the shipped model on a batch: what `faceanon test` does but for the last sums."""
    pipeline = _pipeline(settings)
    backbone = pipeline.backbone
    batch = faces(EVALUATED, backbone.image_size).to(settings.device)

    def call() -> None:
        with torch.no_grad():
            # A new one for every call: its metrics keep the rows of all batches.
            Evaluation(backbone.bundle).update(batch, backbone)

    return Work(call, EVALUATED)


_DEVICE = frozenset({"device"})
_NONE = frozenset[str]()
register(
    Case("photos", "Pipeline.anonymize, 512 px, one face each, the shipped model", photos_in_memory, "photo", _DEVICE),
    Case("photos-folder", "faceanon anonymize on a folder of such JPEGs", photos_of_a_folder, "photo", _DEVICE),
    Case(
        "crowds-folder",
        "the same on group photos of twelve people, 1614 px",
        crowds_of_a_folder,
        "face",
        _DEVICE,
        usual=False,
    ),
    Case("start-import", "import faceanon", partial(process, words=["-c", "import faceanon"]), "start", _NONE),
    Case("start-help", "faceanon --help", partial(process, words=["-m", "faceanon", "--help"]), "start", _NONE),
    Case(
        "loading-memory",
        "training batches of a folder's photographs from memory, 64 px",
        partial(loading_folder, memory=True),
        "image",
        _NONE,
    ),
    Case(
        "loading-disk",
        "training batches of a folder's JPEGs from the disk, 64 px",
        partial(loading_folder, memory=False),
        "image",
        _NONE,
    ),
    Case("evaluation", "Evaluation.update with the shipped model, 128 px", evaluation, "image", _DEVICE),
)
