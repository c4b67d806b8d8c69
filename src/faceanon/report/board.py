"""One table of figures, for the terminal, as Markdown, and as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from markupsafe import Markup

Better = Literal["lower", "higher", ""]
ARROWS: dict[str, str] = {"lower": "↓", "higher": "↑", "": ""}
NOTHING = "-"


def shown(value: float | None, unit: str = "", digits: int = 3) -> str:
    """A figure with its unit; a hyphen where there is none, and the word where it is not finite.

    Args:
        value: The figure.
        unit: Put behind it, with a space of its own where it wants one; "%" also multiplies by 100.
        digits: Decimals.

    Examples:
        >>> from faceanon.report.board import shown
        >>> shown(0.1234, "%", 1), shown(31.5, " dB", 1), shown(None)
        ('12.3 %', '31.5 dB', '-')
    """
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return str(value)
    return f"{_number(value, unit, digits)}{' %' if unit == '%' else unit}"


def shown_interval(interval: tuple[float, float] | None, unit: str = "", digits: int = 3) -> str:
    """A 95% interval without unit, or nothing."""
    if interval is None or not all(map(math.isfinite, interval)):
        return ""
    return " to ".join(_number(end, unit, digits) for end in interval)


def _number(value: float, unit: str, digits: int) -> str:
    if unit == "%":
        value = value * 100
    return f"{value:.{digits}f}"


@dataclass(frozen=True)
class Column:
    """A column of a board.

    Args:
        group: What it is about; neighbours of one group have one heading in HTML.
        title: Heading.
        name: Metric name, where its figures have one.
        about: What it means, in a sentence.
        better: Which direction is good.
        unit: See `shown`.
        digits: See `shown`.
        left: Whether its cells begin at the left, as texts do.
    """

    group: str = ""
    title: str = ""
    name: str = ""
    about: str = ""
    better: Better = ""
    unit: str = ""
    digits: int = 3
    left: bool = False

    @property
    def head(self) -> str:
        """Group, title and direction in one line."""
        group = f"{self.group}: " if self.group else ""
        return f"{group}{self.title} {ARROWS[self.better]}".strip()

    def cell(self, value: float | None, interval: tuple[float, float] | None = None) -> Cell:
        """A figure of this column, with its interval."""
        small = shown_interval(interval, self.unit, self.digits)
        return Cell(shown(value, self.unit, self.digits), small, value)


@dataclass(frozen=True)
class Cell:
    """A figure as it is shown.

    Args:
        text: The figure.
        small: Its interval or spread.
        value: To sort by; None sorts last.
        best: Whether it stands out.
    """

    text: str
    small: str = ""
    value: float | None = None
    best: bool = False

    def __str__(self) -> str:
        return self.beside(self.text)

    def beside(self, text: str) -> str:
        """A text for the figure, with what stands small behind it."""
        if not self.small:
            return text
        # A deviation says itself what it is.
        return f"{text} {self.small}" if self.small.startswith("±") else f"{text} ({self.small})"


@dataclass(frozen=True)
class Line:
    """A line of a board; one without cells is a heading of those below.

    Args:
        label: What it is about; a `Markup` in boards for HTML alone.
        cells: One a column.
        style: Class of the line in HTML.
    """

    label: str
    cells: tuple[Cell, ...] = ()
    style: str = ""


@dataclass(frozen=True)
class Board:
    """Figures in lines and columns.

    Args:
        columns: Those behind the labels.
        lines: From above.
        corner: Heading of the labels.

    Examples:
        >>> from faceanon.report.board import Board, Column, Line
        >>> rate = Column("anonymity", "recognised", better="lower", unit="%", digits=1)
        >>> board = Board([rate], [Line("blur", (rate.cell(0.25, (0.2, 0.3)),))], corner="method")
        >>> print(board.markdown(), end="")
        | method | anonymity: recognised ↓ |
        | --- | ---: |
        | blur | 25.0 % (20.0 to 30.0) |
    """

    columns: Sequence[Column]
    lines: Sequence[Line]
    corner: str = ""

    def turned(self) -> Board:
        """Lines as columns and columns as lines: a terminal holds more lines than columns."""
        lines = []
        for number, column in enumerate(self.columns):
            lines.append(Line(column.head, tuple(line.cells[number] for line in self.lines)))
        return Board([Column(title=line.label) for line in self.lines], lines, self.corner)

    def text(self) -> str:
        """For a terminal: columns of equal width, and no heads where none has a title."""
        head = [self.corner, *(column.head for column in self.columns)]
        rows = [head] if any(head) else []
        for line in self.lines:
            rows.append([line.label, *map(str, line.cells)])
        widths = [0] * len(head)
        for row in rows:
            # A heading runs across all columns and must not widen the first.
            if len(row) > 1:
                widths = list(map(max, widths, map(len, row)))
        lines = []
        for row in rows:
            cells = row[:1]
            if len(row) > 1:
                cells = [row[0].ljust(widths[0])]
            for cell, width, column in zip(row[1:], widths[1:], self.columns, strict=False):
                cells.append(cell.ljust(width) if column.left else cell.rjust(width))
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def markdown(self) -> str:
        """As a table of Markdown; what stands out is bold."""
        rules = ["---" if column.left else "---:" for column in self.columns]
        rows = [pipe([self.corner, *(column.head for column in self.columns)]), pipe(["---", *rules])]
        for line in self.lines:
            cells = []
            for cell in line.cells:
                cells.append(cell.beside(f"**{cell.text}**" if cell.best and cell.text else cell.text))
            rows.append(pipe([line.label, *cells]))
        return "\n".join(rows) + "\n"

    def html(self) -> Markup:
        """As a `<table>`; everything is escaped."""
        # Here: a terminal needs no jinja2, which brings it.
        from markupsafe import Markup, escape

        head = Markup("<th>{}</th>").format(self.corner)
        groups = Markup("")
        for group, columns in groupby(self.columns, lambda column: column.group):
            groups += Markup('<th class="group" colspan="{}">{}</th>').format(len(list(columns)), group)
        for column in self.columns:
            title = Markup(' title="{}"').format(column.about) if column.about else ""
            head += Markup("<th{}>{}</th>").format(title, f"{column.title} {ARROWS[column.better]}".strip())
        rows = Markup("")
        if any(column.group for column in self.columns):
            rows = Markup("<tr><th></th>{}</tr>\n").format(groups)
        rows = Markup("<thead>\n{}<tr>{}</tr>\n</thead>\n<tbody>\n").format(rows, head)
        for line in self.lines:
            if not line.cells:
                rows += Markup('<tr><td colspan="{}">{}</td></tr>\n').format(len(self.columns) + 1, line.label)
                continue
            cells = Markup("<th>{}</th>").format(line.label)
            for cell in line.cells:
                small = Markup("<br><small>{}</small>").format(cell.small) if cell.small else ""
                best = Markup(' class="best"') if cell.best else ""
                cells += Markup("<td{}>{}{}</td>").format(best, cell.text, small)
            rows += Markup('<tr class="{}">{}</tr>\n').format(escape(line.style), cells)
        return Markup('<div class="scroll" tabindex="0"><table>\n{}</tbody>\n</table></div>').format(rows)


def pipe(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    # A bar within a cell would end it.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
