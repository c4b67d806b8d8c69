"""A sheet that shows what the product does to photographs: anonymized, recovered, opened with a wrong password."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from faceanon.key import Password
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.tasks import AnonymizeTask, RecoverTask, run_task

SIDE = 192  # pixels of one picture of the sheet


def there_and_back(pipeline: Pipeline, photos: Sequence[Path], folder: Path, target: Path) -> Path:
    """Take aligned photographs to PNG files and back under new passwords, and show all of it.

    Args:
        pipeline: The model.
        photos: Files of one aligned square face each.
        folder: Where the PNG files are written.
        target: The sheet: a column a photograph, of rows original, anonymized, recovered, and under a wrong password.

    Returns:
        `target`.

    Raises:
        UserError: A photo cannot be read, or a file cannot be written.
    """
    # Nobody needs these passwords again: the files are for looking at.
    right = Password(secrets.token_urlsafe(12))
    wrong = Password(secrets.token_urlsafe(12))
    columns = []
    for photo in photos:
        columns.append(_files(pipeline, photo, folder, right, wrong))
    sheet = Image.new("RGB", (SIDE * len(columns), SIDE * len(columns[0])))
    for x, column in enumerate(columns):
        for y, path in enumerate(column):
            with Image.open(path) as picture:
                small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
            sheet.paste(small, (x * SIDE, y * SIDE))
    target.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(target, optimize=True)
    return target


def _files(pipeline: Pipeline, photo: Path, folder: Path, right: Password, wrong: Password) -> list[Path]:
    """The photograph, anonymized, recovered, and under a wrong password, as files."""
    hidden = folder / f"{photo.stem}_anonymized.png"
    back = folder / f"{photo.stem}_recovered.png"
    other = folder / f"{photo.stem}_wrong_password.png"
    run_task(AnonymizeTask(pipeline, photo, hidden, right, aligned=True))
    run_task(RecoverTask(pipeline, hidden, back, right))
    # With a wrong password a sealed code does not open; what is drawn then is another stranger.
    run_task(RecoverTask(pipeline, hidden, other, wrong, deniable=pipeline.backbone.sealed))
    return [photo, hidden, back, other]
