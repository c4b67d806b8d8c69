"""The figures as plain text, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from faceanon.report.figures import ARROWS, better, explain, format_interval, format_value, grouped, shared_better

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
    header = ["", "value"]
    if ci:
        header.append("95% interval")
    if reference:
        header.append("shipped")
    rows: list[list[str] | str] = [header]
    for family, names in grouped(list(figures)).items():
        if explain(family).text:
            title = explain(family).title
        else:
            title = family
        shared = shared_better(names)
        # Where the figures of a family differ in this, each has an arrow of its own.
        note = BOTH if shared is None else DIRECTIONS[shared]
        if note:
            rows.append(f"{title} ({note})")
        else:
            rows.append(title)
        for name in names:
            arrow = ARROWS[better(name)] if shared is None else ""
            row = [f"  {name} {arrow}".rstrip(), format_value(name, figures[name])]
            if ci:
                row += [format_interval(name, ci.get(name))]
            if reference:
                row += [format_value(name, reference.get(name))]
            rows.append(row)
    return _align(rows)


def _align(rows: list[list[str] | str]) -> str:
    cells = []
    for row in rows:
        # A family's title runs across all columns and must not widen the first.
        if not isinstance(row, str):
            cells.append(row)
    widths = []
    for column in range(len(cells[0])):
        widths.append(max(len(row[column]) for row in cells))
    lines = []
    for row in rows:
        if isinstance(row, str):
            lines.append(row)
        else:
            first = row[0].ljust(widths[0])
            cells_of_row = []
            for c, w in zip(row[1:], widths[1:], strict=True):
                cells_of_row.append(c.rjust(w))
            lines.append("  ".join([first, *cells_of_row]).rstrip())
    return "\n".join(lines)


def pipe(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    # A bar within a cell would end it.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
