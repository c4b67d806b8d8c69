"""The figures of a test as plain text, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from faceanon.report.board import ARROWS, Board, Cell, Column, Line
from faceanon.report.figures import better, explain, format_interval, format_value, grouped, shared_better

DIRECTIONS = {"lower": "lower is better", "higher": "higher is better", "": ""}
BOTH = "↓ lower is better, ↑ higher is better"


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
    columns = [Column(title="value")]
    if ci:
        columns.append(Column(title="95% interval"))
    if reference:
        columns.append(Column(title="shipped"))
    lines = []
    for family, names in grouped(list(figures)).items():
        title = explain(family).title if explain(family).text else family
        shared = shared_better(names)
        # Where the figures of a family differ in this, each has an arrow of its own.
        note = BOTH if shared is None else DIRECTIONS[shared]
        lines.append(Line(f"{title} ({note})" if note else title))
        for name in names:
            cells = [Cell(format_value(name, figures[name]))]
            if ci:
                cells.append(Cell(format_interval(name, ci.get(name))))
            if reference:
                cells.append(Cell(format_value(name, reference.get(name))))
            arrow = ARROWS[better(name)] if shared is None else ""
            lines.append(Line(f"  {name} {arrow}".rstrip(), tuple(cells)))
    return Board(columns, lines).text()
