"""The figures of tests by family, and as plain text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faceanon.report.board import ARROWS, Board, Cell, Column, Line
from faceanon.report.figures import better, explain, format_interval, format_value, grouped, shared_better
from faceanon.results import Results

DIRECTIONS = {
    "lower": "lower is better",
    "higher": "higher is better",
    "": "",
    None: "↓ lower is better, ↑ higher is better",
}


def families(columns: Mapping[str, Results], reference: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
    """Figures by family: what it is, which direction is good, and the lines of its figures.

    Args:
        columns: Results by the heading of their column.
        reference: Figures of the shipped model, in the last column.
    """
    all_names: list[str] = []
    for result in columns.values():
        all_names.extend(result.figures)
    # Each once, in a fixed order, which a set would not have.
    names = list(dict.fromkeys(all_names))
    found = []
    for family, members in grouped(names).items():
        about = explain(family)
        shared = shared_better(members)
        lines = []
        for name in members:
            cells = []
            for result in columns.values():
                interval = format_interval(name, result.ci.get(name))
                cells.append(Cell(format_value(name, result.figures.get(name)), interval))
            if reference:
                cells.append(Cell(format_value(name, reference.get(name))))
            arrow = ARROWS[better(name)] if shared is None else ""
            lines.append(Line(f"{name} {arrow}".strip(), tuple(cells)))
        title = about.title if about.text else family
        found.append({"title": title, "text": about.text, "better": shared, "lines": lines})
    return found


def format_table(
    figures: Mapping[str, float],
    reference: Mapping[str, float] | None = None,
    ci: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Rows grouped by family: figure, 95% interval, and the shipped model's figure beside it.

    Args:
        figures: Value by metric name.
        reference: Figures of the shipped model, in a column of their own.
        ci: Interval by metric name.
    """
    titles = ["value", *(["95% interval"] if ci else []), *(["shipped"] if reference else [])]
    lines = []
    for family in families({"value": Results(dict(figures), dict(ci or {}))}, reference):
        note = DIRECTIONS[family["better"]]
        lines.append(Line(f"{family['title']} ({note})" if note else family["title"]))
        for line in family["lines"]:
            first, *known = line.cells
            # Below each other intervals are easier to read than behind their figures.
            interval = [Cell(first.small)] if ci else []
            lines.append(Line(f"  {line.label}", (Cell(first.text), *interval, *known)))
    return Board([Column(title=title) for title in titles], lines).text()
