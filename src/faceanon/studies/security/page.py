"""The security page: what a method protects against and what not, as HTML, JSON and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from faceanon.files import write_atomic
from faceanon.report.board import NOTHING, Board, Cell, Column, Line, shown
from faceanon.report.page import render
from faceanon.results import run_meta, to_json
from faceanon.studies.security.base import Finding, Outcome, SecurityRow, Verdict
from faceanon.studies.security.plots import plot
from faceanon.studies.security.runner import Done, content

SCHEMA = 1
JSON_NAME = "security.json"
PAGE_NAME = "security.html"
FORMATS = {"%": ("%", 1), "dB": (" dB", 2)}  # unit and decimals; other figures are numbers of many sizes
WORDS: dict[Outcome, str] = {
    "fails": "does not protect",
    "partly": "protects in part",
    "holds": "protects",
    "open": "cannot be told",
}


def format_row(row: SecurityRow) -> str:
    """A figure with its unit; a hyphen where there is none."""
    value = row.value
    if value is None:
        return NOTHING
    if row.unit in FORMATS:
        return shown(value, *FORMATS[row.unit])
    if abs(value) >= 1e6:
        text = f"{value:.1e}"
    elif float(value).is_integer():
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3f}"
    return f"{text} {row.unit}".strip()


def by_outcome(done: Sequence[Done]) -> dict[Outcome, list[tuple[Done, Verdict]]]:
    """All verdicts, the worst outcome first, with their attacks."""
    grouped = {}
    for outcome in WORDS:
        pairs = []
        for one in done:
            for verdict in one.verdicts:
                if verdict.outcome == outcome:
                    pairs.append((one, verdict))
        if pairs:
            grouped[outcome] = pairs
    return grouped


def _board(finding: Finding, *heads: str) -> Board:
    """Label and figure of every row of a finding."""
    lines = []
    for row in finding.rows():
        lines.append(Line(row.label, (Cell(format_row(row)),)))
    corner, title = heads or ("", "")
    return Board([Column(title=title)], lines, corner)


def as_text(done: Sequence[Done]) -> str:
    """The table for the terminal: a block an attack, verdicts first, then figures."""
    lines = []
    for one in done:
        lines += [one.attack.title, f"  {one.attack.question}"]
        if one.finding is None:
            lines += [f"  not applicable: {one.reason}", ""]
            continue
        for verdict in one.verdicts:
            lines.append(f"  [{WORDS[verdict.outcome]}] {verdict.text}")
        lines.append(indent(_board(one.finding).text(), "    "))
        lines.append("")
    return "\n".join(lines).rstrip()


def as_json(done: Sequence[Done], meta: Mapping[str, Any], warnings: Sequence[str] = ()) -> bytes:
    """Figures and verdicts, strict JSON."""
    attacks = {}
    for one in done:
        attacks[one.attack.name] = {
            "title": one.attack.title,
            "verdicts": [{"outcome": verdict.outcome, "text": verdict.text} for verdict in one.verdicts],
            **content(one),
        }
    return to_json({"schema": SCHEMA, "meta": meta, "warnings": warnings, "attacks": attacks})


def write_security(
    folder: str | Path, done: Sequence[Done], meta: Mapping[str, Any], warnings: Sequence[str] = ()
) -> Path:
    """Write `security.json` and `security.html`, each atomically.

    Args:
        folder: Made if missing.
        done: The attacks that were run.
        meta: `runner.fingerprint` and whatever else is worth knowing; versions and the command are added.
        warnings: `Target.warnings`.

    Returns:
        Path of the page.

    Raises:
        UserError: The folder cannot be written, or the disk is full.
    """
    meta = {**run_meta(), **meta}
    write_atomic(Path(folder) / JSON_NAME, as_json(done, meta, warnings))
    sections = []
    for one in done:
        sections.append(
            {
                "done": one,
                "board": None if one.finding is None else _board(one.finding, "figure", "value"),
                "plot": "" if one.finding is None else plot(one.attack.name, one.finding),
            }
        )
    page = render(
        "security.html",
        "faceanon.studies.security",
        meta=meta,
        warnings=warnings,
        words=WORDS,
        summary=by_outcome(done),
        sections=sections,
    )
    write_atomic(Path(folder) / PAGE_NAME, page)
    return Path(folder) / PAGE_NAME
