"""`--select` and `--exclude`: faces by number in one photo, or by another photo of the person."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.commands._files import DEFAULT_MODEL
from faceanon.errors import UserError
from faceanon.paths import checkpoints, is_video

if TYPE_CHECKING:
    from faceanon.photo.people import Likeness, People
    from faceanon.pipeline.photo import Pipeline


@dataclass(frozen=True)
class PeopleOptions:
    """Which faces are changed.

    Args:
        select: Values of `--select`.
        exclude: Values of `--exclude`.
        likeness: Above which two faces count as one person's; None for the model's own.
    """

    select: list[str] | None
    exclude: list[str] | None
    likeness: float | None


@dataclass(frozen=True)
class PeopleChoice:
    """What one of the options says.

    Args:
        numbers: Of faces; None where none were given.
        photos: Of persons.
    """

    numbers: frozenset[int] | None
    photos: tuple[Path, ...]

    def settings(self) -> list[str]:
        """For a journal: a run is resumed under the same photos only.

        Raises:
            UserError: If a photo cannot be read.
        """
        from faceanon.files import sha256

        try:
            digests = []
            for photo in self.photos:
                digests.append(f"{photo.name} {sha256(photo)[:12]}")
            return sorted(digests)
        except OSError as error:
            raise UserError(f"cannot read the reference photo {error.filename}: {error.strerror}") from error


def add_people_arguments(group: argparse._ArgumentGroup) -> None:
    """Add --select and --exclude."""
    group.add_argument(
        "--select",
        action="append",
        metavar="N,N|PHOTO",
        help="change these faces only: by number, or the person in another photo (films: by photo); may be repeated",
    )
    group.add_argument(
        "--exclude", action="append", metavar="N,N|PHOTO", help="leave these faces readable, chosen in the same way"
    )


def add_rare_people_arguments(group: argparse._ArgumentGroup) -> None:
    """Add how alike two faces of one person are."""
    group.add_argument(
        "--likeness",
        type=float,
        metavar="COSINE",
        help="of faces of one person (default: the model's own)",
    )


def choices(people: PeopleOptions, source: Path, aligned: bool) -> tuple[PeopleChoice, PeopleChoice]:
    """What `--select` and `--exclude` say.

    Args:
        people: The options.
        source: IN.
        aligned: Whether each picture is one face.

    Raises:
        UserError: If a value is neither numbers nor a file, or does not fit the other arguments.
    """
    select = _choice(people.select, "--select")
    exclude = _choice(people.exclude, "--exclude")
    if (select.numbers or exclude.numbers) and (source.is_dir() or is_video(source)):
        what = "a folder" if source.is_dir() else "a film"
        raise UserError(
            f"numbers in --select and --exclude are those of one photo; for {what} give a photo of the person"
        )
    if both := set(select.photos) & set(exclude.photos):
        raise UserError(f"{min(both)} is named by --select and by --exclude; leave one of them away")
    if (people.select or people.exclude) and aligned:
        raise UserError("--select and --exclude choose among the faces of one photo; they do not fit --aligned")
    if people.likeness is not None:
        if not (select.photos or exclude.photos):
            raise UserError("--likeness is for faces chosen by a photo: give one by --select or --exclude")
        if not -1 < people.likeness < 1 or math.isnan(people.likeness):
            raise UserError(f"--likeness is a cosine between -1 and 1, not {people.likeness}")
    return select, exclude


def _choice(values: Sequence[str] | None, option: str) -> PeopleChoice:
    numbers: set[int] = set()
    photos: list[Path] = []
    for value in values or ():
        try:
            # Numbers first: whoever means a file called 12 can write ./12.
            numbers |= set(map(int, value.split(",")))
        except ValueError as error:
            if not Path(value).is_file():
                advice = f"{option} takes numbers of faces such as 1,3 (see --list-faces), or a photo of the person"
                raise UserError(f"{advice}; {value!r:.80} is neither, nor a file that is there") from error
            photos.append(Path(value))
    # None where no numbers were given: an empty set would mean that nobody is to be changed.
    return PeopleChoice(frozenset(numbers) or None, tuple(photos))


def people_of(
    select: PeopleChoice, exclude: PeopleChoice, likeness: float | None, model: str | None, pipeline: Pipeline
) -> People | None:
    """Whoever the photos show, for a pipeline with its detector; None where no photo was given.

    Args:
        select: Whom to change.
        exclude: Whom to leave.
        likeness: Above which two faces count as one person's; None for the model's own.
        model: Folder, shipped name or .ckpt; None for the model that ships.
        pipeline: Of that model.

    Raises:
        UserError: If a photo shows no face or several, or nobody knows when faces are alike.
    """
    if not (select.photos or exclude.photos):
        return None
    from faceanon.photo.people import People, read_reference

    measure = _likeness(likeness, model, pipeline)
    chosen = tuple(read_reference(photo, pipeline.detector, measure) for photo in select.photos)
    left = tuple(read_reference(photo, pipeline.detector, measure) for photo in exclude.photos)
    return People(measure, chosen, left)


def _likeness(likeness: float | None, model: str | None, pipeline: Pipeline) -> Likeness:
    from faceanon.persona.light import LightPersona
    from faceanon.photo.people import light_likeness, likeness_of, threshold_of

    path = checkpoints() / DEFAULT_MODEL if model is None else Path(model)
    # What is typed may be a shipped model's name instead of a path.
    path = path if path.exists() else checkpoints() / path
    method = pipeline.method
    if isinstance(method, LightPersona):
        cosine = threshold_of(method.recogniser_name, path) if likeness is None else likeness
        return light_likeness(method, cosine)
    bundle = getattr(pipeline.backbone, "bundle", None)
    if bundle is None:
        raise UserError(f"{pipeline.name} comes without a recogniser; choose faces by number, or take another --model")
    if likeness is not None:
        return likeness_of(bundle, likeness)
    name = bundle.recogniser_name if bundle.has("recogniser") else bundle.judge_name
    return likeness_of(bundle, threshold_of(name, path))
