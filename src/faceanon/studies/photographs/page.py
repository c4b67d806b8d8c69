"""The table of a study: every figure beside what it should reach, in the order in which the project states them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from faceanon.metrics.saved import from_bytes
from faceanon.report.board import NOTHING, Board, Cell, Column, Line, shown
from faceanon.report.sheets import sheet
from faceanon.results import Results, shown_command
from faceanon.studies.photographs.people import Person
from faceanon.studies.photographs.pictures import ORIGINAL, PhotographsSetting, place, read_pixels

SHEET_PEOPLE = 12
LARGE = 256  # side of the pictures from which the targets for 256 px hold; below it those for 128 px

Kind = Literal["share", "number", "dB", "bytes", "percent"]
FORMATS: dict[Kind, tuple[str, int]] = {
    "share": ("", 3),
    "number": ("", 3),
    "dB": (" dB", 1),
    "bytes": ("", 0),
    "percent": ("%", 1),
}  # unit and decimals


@dataclass(frozen=True)
class PhotographsLine:
    """A line of the table.

    Args:
        label: What it says.
        figure: Name of the figure; `{judge}` stands for each judge.
        kind: How the figure is written.
        most: What it must not exceed, or None.
        least: What it must reach, or None.
        over: Figure that `most` is added to, such as the rate of a guess.
        small: Bound for pictures below 256 px, where it differs.
    """

    label: str
    figure: str
    kind: Kind = "share"
    most: float | None = None
    least: float | None = None
    over: str | None = None
    small: float | None = None


LINES = (
    PhotographsLine("recognised in the same picture, {judge}", "same/{judge}", most=0.02),
    PhotographsLine("recognised in other pictures of the person, {judge}", "other/{judge}", most=0.02),
    PhotographsLine("other people accepted in the same way, {judge}", "strangers/{judge}"),
    PhotographsLine(
        "rank 1 among the person's other pictures, {judge}", "rank1/{judge}", most=0.03, over="rank1_chance"
    ),
    PhotographsLine("recovered and recognised, {judge}", "recovered/{judge}", least=0.99),
    PhotographsLine("PSNR of the whole recovered picture", "psnr", "dB", least=32, small=31),
    PhotographsLine("bytes a face, beside the picture", "carried_bytes", "bytes", most=6000, small=2000),
    PhotographsLine("hidden in another way, since the model could not be applied", "hidden_otherwise"),
    PhotographsLine("opened by a wrong password, {judge}", "wrong/{judge}", most=0),
    PhotographsLine("a wrong password denied, recognised all the same, {judge}", "deniable/{judge}", most=0.02),
    PhotographsLine("two keys alike, {judge}", "two_keys_alike/{judge}", most=0.05),
    PhotographsLine("one pseudonym over a person's photos, {judge}", "one_pseudonym/{judge}"),
    PhotographsLine("the same of the originals, {judge}", "originals_alike/{judge}"),
    PhotographsLine("ratio of the two, {judge}", "pseudonym_ratio/{judge}", least=0.90),
    PhotographsLine("pseudonyms of different people alike, {judge}", "pseudonyms_shared/{judge}"),
    PhotographsLine("keyless inversion, recognised", "attack/inversion", most=0.02, over="attack/inversion/painted"),
    PhotographsLine("fine-tuned recogniser, rank 1", "attack/recogniser", most=0.02, over="attack/recogniser/painted"),
    PhotographsLine("the same inversion before a blur (control)", "attack/inversion/blur"),
    PhotographsLine("face found in the result", "face_found", least=0.99),
    PhotographsLine("face found in the original", "face_found/originals"),
    PhotographsLine("mesh distance, of the eye distance", "mesh_distance", "percent", most=0.04),
    PhotographsLine("the same of codec round trips", "mesh_distance/round_trip", "percent"),
    PhotographsLine("correlation of the mouth's opening", "correlation/mouth", "number", least=0.95),
    PhotographsLine("correlation of yaw", "correlation/yaw", "number", least=0.95),
    PhotographsLine("correlation of pitch", "correlation/pitch", "number", least=0.95),
    PhotographsLine("told apart from codec round trips, on new persons, AUC", "told_apart", "number", most=0.75),
    PhotographsLine("told apart from the originals, on new persons, AUC", "told_apart/originals", "number"),
)


@dataclass(frozen=True)
class PhotographsRow:
    """A line with its figure.

    Args:
        label: What it says.
        value: The figure with its interval.
        target: What it should reach; empty where nothing is asked.
        reached: Whether it does; None where nothing is asked.
    """

    label: str
    value: str
    target: str
    reached: bool | None


def rows(results: Results) -> list[PhotographsRow]:
    """All lines whose figures a study has, each judge's own directly below each other."""
    lines = []
    for line in LINES:
        if "{judge}" not in line.figure:
            if line.figure in results.figures:
                lines.append(_row(results, line, line.label, line.figure, white_box=False))
            continue
        for judge in results.meta["judges"]:
            name = str(judge["name"])
            figure = line.figure.format(judge=name)
            called = f"{name} (white box)" if judge["white_box"] else name
            if figure in results.figures:
                lines.append(_row(results, line, line.label.format(judge=called), figure, bool(judge["white_box"])))
    return lines


def _row(results: Results, line: PhotographsLine, label: str, figure: str, white_box: bool) -> PhotographsRow:
    value = results.figures[figure]
    text = _text(value, line.kind)
    if figure in results.ci:
        low, high = results.ci[figure]
        text = f"{text} ({_text(low, line.kind)} to {_text(high, line.kind)})"
    bound = line.least if line.most is None else line.most
    # A recogniser that the model was trained against proves nothing in its favour, so nothing is asked of it.
    if bound is None or white_box:
        return PhotographsRow(label, text, "", None)
    if line.small is not None and results.meta["side"] < LARGE:
        bound = line.small
    if line.over is not None:
        base = results.figures[line.over]
        target = f"<= {_text(base, line.kind)} + {_text(bound, line.kind)}"
        return PhotographsRow(label, text, target, value <= base + bound)
    if line.most is not None:
        return PhotographsRow(label, text, f"<= {_text(bound, line.kind)}", value <= bound)
    return PhotographsRow(label, text, f">= {_text(bound, line.kind)}", value >= bound)


def _text(value: float, kind: Kind) -> str:
    if math.isfinite(value):
        return shown(value, *FORMATS[kind])
    # Where nothing differs, the ratio is infinite.
    return "exact" if kind == "dB" and value > 0 else NOTHING


def _board(results: Results, marks: Mapping[bool | None, str]) -> Board:
    """The table, with a mark on what is reached and what is not."""
    lines = []
    for row in rows(results):
        texts = (row.value, row.target, marks[row.reached])
        lines.append(Line(row.label, tuple(map(Cell, texts))))
    titles = ("measured (95 % interval)", "to reach", "reached")
    return Board([Column(title=title, left=True) for title in titles], lines, "figure")


def terminal(results: Results) -> str:
    """The table for the terminal."""
    return _board(results, {None: "", True: "reached", False: "NOT REACHED"}).text()


def markdown(results: Results) -> str:
    """The table for a page: figures with 95 % intervals over persons, targets, and where all of it comes from."""
    meta = results.meta
    board = _board(results, {None: "", True: "yes", False: "**no**"})
    facts = [
        f"{meta['pictures']} pictures of {meta['people']} persons, {meta['side']} px, through PNG files, "
        f"{meta['passwords']} passwords.",
        f"Model `{meta['model']}`, weights `{str(meta['weights'])[:12]}`, faces of {meta['image_size']} px; "
        f"commit `{str(meta['commit'])[:12]}`.",
        f"Thresholds at a false accept rate of {meta['far']:g}: {_thresholds(results)}.",
        f"Seconds a picture: {_seconds(meta)}.",
        f"Command: `{shown_command(str(meta['command']))}`.",
    ]
    listed = "".join(f"- {text}\n" for text in [*facts, *results.warnings])
    return f"{board.markdown()}\n{listed}"


def _thresholds(results: Results) -> str:
    names = []
    for judge in results.meta["judges"]:
        names.append(str(judge["name"]))
    return ", ".join(f"{name} {results.figures[f'threshold/{name}']:.3f}" for name in names)


def _seconds(meta: Mapping[str, Any]) -> str:
    spent = meta["seconds"]
    return ", ".join(f"{step} {seconds:.2f}" for step, seconds in spent.items())


def contact_sheet(people: Sequence[Person], setting: PhotographsSetting, cache: Path) -> Image.Image:
    """One picture of each of the first persons: original, two keys, recovered, opened with a wrong password.

    What the product refused to open is a grey field with a cross. Real persons' sheets are for looking at, never for
    publication.
    """
    pictures = []
    for person in people[:SHEET_PEOPLE]:
        pictures.append(person.pictures[0])
    wanted = {"original": ORIGINAL, "first password": "anonymized-1", "second password": "anonymized-2"}
    if setting.reversible:
        wanted |= {"recovered": "recovered-1", "opened with a wrong password": "wrong-1"}
    if setting.sealed:
        wanted["a wrong password, denied"] = "deniable-1"
    faces_of = {}
    for label, version in wanted.items():
        faces = []
        for picture in pictures:
            path = place(cache, picture, version)
            if path.is_file():
                faces.append(read_pixels(path))
            else:
                faces.append(_refused(setting.side))
        faces_of[label] = from_bytes(torch.from_numpy(np.stack(faces)))
    return sheet(faces_of, scale=1)


def _refused(side: int) -> NDArray[np.uint8]:
    image = Image.new("RGB", (side, side), "gray")
    draw = ImageDraw.Draw(image)
    draw.line([(0, 0), (side, side)], fill="white", width=2)
    draw.line([(0, side), (side, 0)], fill="white", width=2)
    return np.asarray(image, dtype=np.uint8)
