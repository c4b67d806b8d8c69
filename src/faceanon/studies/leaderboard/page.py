"""The leaderboard: one page on many methods, which sorts itself and needs no network."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import faceanon
from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.metrics.comparison import protocol_label
from faceanon.metrics.protocol import known, load_protocol
from faceanon.report.board import Better, Cell, Column
from faceanon.report.figures import better, explain, format_value
from faceanon.report.methods import COLUMNS, named, summary, summary_cell
from faceanon.report.page import data_uri, render
from faceanon.studies.leaderboard.entries import Entry
from faceanon.studies.leaderboard.scatter import Point, Scatter, scatter

HIDDEN = "deid_rate/{judge}"
FOUND = "deid_rate_gallery/{judge}"
RECOVERED = "recovery_rate/{judge}/file"
PLOTS = (("kid", "KID"), ("landmark_distance/anonymized", "landmarks moved, px"))


@dataclass
class LeaderboardRow:
    """A method.

    Args:
        number: Its place at first, and its number in the plots.
        entry: Its results.
        figures: Mean over the seeds by the names of `COLUMNS`, unfilled.
        cells: One a column shown.
        protocol: Label of its protocol.
    """

    number: int
    entry: Entry
    figures: dict[str, float]
    cells: list[Cell]
    protocol: str

    @property
    def short(self) -> str:
        """Its protocol in a few words."""
        label, _, changes = self.protocol.partition(" with changes ")
        if changes:
            return f"{label}, changed"
        return label

    @property
    def command(self) -> str:
        """The command line that made its results; empty where they do not say."""
        return str(self.entry.meta.get("command") or "")

    @property
    def sheet(self) -> str | None:
        """The sheet of its faces as a WebP data URI; None where a run has no sheet."""
        if self.entry.sheet is None:
            return None
        return data_uri(self.entry.sheet, "webp")


def write_leaderboard(path: str | Path, entries: Sequence[Entry], marks: Sequence[str] = ()) -> Path:
    """Write the page.

    Args:
        path: The HTML file.
        entries: Its methods.
        marks: `check_entries`' sentences.

    Returns:
        The path.

    Raises:
        UserError: There is no method, or the file cannot be written.
    """
    if not entries:
        raise UserError("a leaderboard needs the results of at least one method")
    rows, heads = leaderboard_rows(entries, comparable=not marks)
    groups = Counter(head.group for head in heads)
    page = render(
        "leaderboard.html",
        "faceanon.studies.leaderboard",
        rows=rows,
        heads=heads,
        groups=groups,
        marks=list(marks),
        plots=_plots(rows),
        protocols=protocols(entries),
        several=len({row.protocol for row in rows}) > 1,
        version=faceanon.__version__,
    )
    write_atomic(Path(path), page)
    return Path(path)


def leaderboard_rows(entries: Sequence[Entry], comparable: bool = True) -> tuple[list[LeaderboardRow], list[Column]]:
    """The methods in their first order, and the headings of the columns that any of them has.

    Methods without warnings come first; among equals the one of whom the judge finds fewest in other pictures.

    Args:
        entries: The methods.
        comparable: Whether a figure can be the best of its column.
    """
    ranked = []
    for entry in entries:
        ranked.append((entry, _figures(entry)))
    ranked.sort(key=lambda pair: (bool(pair[0].warnings), *_standing(pair[1]), pair[0].name))
    shown = [column for column in COLUMNS if any(column.name in figures for _, figures in ranked)]
    rows = []
    for number, (entry, figures) in enumerate(ranked, 1):
        cells = []
        for column in shown:
            cells.append(_cell(entry, column.name, figures.get(column.name)))
        means = {}
        for name, value in figures.items():
            means[name] = value["mean"]
        rows.append(LeaderboardRow(number, entry, means, cells, protocol_label(entry.meta)))
    heads = []
    for position, column in enumerate(shown):
        direction = better(column.name)
        heads.append(replace(column, about=explain(column.name).text, better=direction))
        if comparable and direction:
            _mark_best(rows, position, direction)
    return rows, heads


def _figures(entry: Entry) -> dict[str, dict[str, float]]:
    """Mean and, over several seeds, spread, by the name of the column."""
    judge = entry.meta["judge"]
    white_box = entry.meta.get("white_box") or [""]
    filled = named(judge, str(white_box[0]))
    summaries = summary([run.figures for run in entry.runs], filled)
    figures = {}
    for column, own in zip(COLUMNS, filled, strict=True):
        if own.name in summaries:
            figures[column.name] = summaries[own.name]
    return figures


def _standing(figures: Mapping[str, Mapping[str, float]]) -> tuple[float, float]:
    """Small is good: share of people found, then share of faces not recovered."""
    hidden = math.inf
    for name in (FOUND, HIDDEN):
        if name in figures:
            hidden = figures[name]["mean"]
            break
    # Without a way back nothing is recovered.
    return hidden, -figures[RECOVERED]["mean"] if RECOVERED in figures else 0.0


def _cell(entry: Entry, name: str, value: Mapping[str, float] | None) -> Cell:
    judge = entry.meta["judge"]
    white_box = entry.meta.get("white_box") or [""]
    # Several seeds have a spread; one run has the interval over its people.
    interval = entry.runs[0].ci.get(name.format(judge=judge, recogniser=white_box[0]))
    return summary_cell(name, value, interval)


def _mark_best(rows: Sequence[LeaderboardRow], position: int, direction: Better) -> None:
    """Mark the best figures of a column, of methods without warnings."""
    values = []
    for row in rows:
        value = row.cells[position].value
        if value is not None and not row.entry.warnings:
            values.append(value)
    # Alone, nobody is best.
    if len(values) < 2:
        return
    best = min(values) if direction == "lower" else max(values)
    for row in rows:
        if row.cells[position].value == best and not row.entry.warnings:
            row.cells[position] = replace(row.cells[position], best=True)


def _plots(rows: Sequence[LeaderboardRow]) -> list[Scatter]:
    """Anonymity against each figure of what is kept; the colour is recovery."""
    plots = []
    for name, title in PLOTS:
        points = []
        for row in rows:
            if HIDDEN in row.figures and name in row.figures:
                hidden = 1 - row.figures[HIDDEN]
                recovered = row.figures.get(RECOVERED)
                text = _told(row, name)
                points.append(Point(row.number, row.entry.name, hidden, row.figures[name], recovered, text))
        plots.append(scatter(title, points, lower=better(name) == "lower"))
    drawn = []
    for plot in plots:
        if plot is not None:
            drawn.append(plot)
    return drawn


def _told(row: LeaderboardRow, name: str) -> str:
    hidden = 1 - row.figures[HIDDEN]
    back = row.figures.get(RECOVERED)
    if back is None:
        recovered = "no way back"
    else:
        recovered = f"{back:.1%} recovered"
    return f"{row.entry.name}: {hidden:.1%} hidden, {format_value(name, row.figures[name])}, {recovered}"


def protocols(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """What stands behind the figures: each protocol and judge, with every choice where the protocol ships with us."""
    groups: dict[tuple[object, ...], dict[str, Any]] = {}
    for entry in entries:
        followed = entry.meta.get("protocol") or {}
        key = (protocol_label(entry.meta), followed.get("sha256"), *entry.judge)
        counts = {}
        for name in ("images", "people", "keys", "far", "bundle"):
            counts[name] = entry.meta.get(name)
        facts = {"judge": entry.judge[0], "judge's weights": entry.judge[1], **counts}
        facts |= {"protocol's hash": followed.get("sha256"), "pictures' hash": followed.get("pictures_sha256")}
        shown = groups.setdefault(key, {"label": key[0], "methods": [], "facts": facts, **_choices(followed)})
        shown["methods"].append(entry.name)
    return list(groups.values())


def _choices(followed: Mapping[str, Any]) -> dict[str, Any]:
    """Purpose and choices of a protocol that ships with us, if it is the very one."""
    label = f"{followed.get('name')}-v{followed.get('version')}"
    # Anything else could be the path of some file.
    if label not in known():
        return {"about": None, "choices": {}}
    protocol = load_protocol(label)
    if protocol.digest != followed.get("sha256"):
        return {"about": None, "choices": {}}
    choices = dict(_flat(dataclasses.asdict(protocol)))
    return {"about": protocol.about, "choices": choices}


def _flat(item: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Choices by dotted name; the pictures' signature is for machines."""
    pairs: list[tuple[str, str]] = []
    for name, value in item.items():
        if name in ("schema", "about", "signature") or value is None or value == ():
            continue
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{name}.")
        else:
            if isinstance(value, (list, tuple)):
                text = ", ".join(map(str, value))
            else:
                text = str(value)
            pairs.append((prefix + name, text))
    return pairs
