"""A paper's table with what it prints and ours beside it; what is not known or was not run says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from faceanon.report.board import ARROWS, NOTHING, Board, Cell, Column, Line
from faceanon.results import Results
from faceanon.studies.tables.names import Names, expand, figures_of, titles_of
from faceanon.studies.tables.spec import PaperTable, TableBlock, TableColumn, TableRow

Kind = Literal["published", "corrected", "ours", "not run"]
STYLES: dict[str, str] = {"not run": "quiet"}
VERSIONS = {
    "recovered/image": "float picture",
    "recovered/file": "saved file",
    "recovered/latent": "codes",
    "wrong": "wrong key",
}


@dataclass(frozen=True)
class FilledLine:
    """One line of a row.

    Args:
        kind: Whose figures they are.
        label: For the reader.
        cells: Text by column; of several trainings their mean.
        intervals: 95% intervals as text by column, of several trainings the lowest and the highest; empty where there
            are none.
        figures: Value by metric name (ours) or by id of the column (the paper's); of several trainings their mean.
        method: Name of ours, or empty.
        version: Which pictures, for ours.
        trainings: `figures` of each training, where there are several.
    """

    kind: Kind
    label: str
    cells: tuple[str, ...]
    intervals: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    method: str = ""
    version: str = ""
    trainings: tuple[dict[str, float], ...] = ()


@dataclass(frozen=True)
class FilledRow:
    """A row with its lines, and the remarks on it."""

    title: str
    lines: tuple[FilledLine, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilledBlock:
    """A block with its rows, and the direction of each column in it."""

    title: str
    arrows: tuple[str, ...]
    rows: tuple[FilledRow, ...]


@dataclass(frozen=True)
class FilledTable:
    """What is printed and written.

    Args:
        spec: The table.
        heads: Heading of each column.
        blocks: Rows by block.
        notes: What a reader has to know, ours first.
        not_run: Rows of the paper for which no method was given, by title.
    """

    spec: PaperTable
    heads: tuple[str, ...]
    blocks: tuple[FilledBlock, ...]
    notes: tuple[str, ...]
    not_run: tuple[str, ...]

    def board(self, block: FilledBlock) -> Board:
        """A block as a table; ours stands out."""
        columns = [Column(title="whose", left=True)]
        for head, arrow in zip(self.heads, block.arrows, strict=True):
            columns.append(Column(title=f"{head} {arrow}".strip()))
        lines = []
        for row in block.rows:
            for number, line in enumerate(row.lines):
                cells = [Cell(line.label)]
                for place, text in enumerate(line.cells):
                    small = line.intervals[place] if line.intervals else ""
                    cells.append(Cell(text, small, best=line.kind == "ours"))
                lines.append(Line("" if number else row.title, tuple(cells), STYLES.get(line.kind, "")))
        return Board(columns, lines, "method")


def fill(table: PaperTable, results: Mapping[str, Sequence[Results]], names: Names) -> FilledTable:
    """Put published figures and ours into a table.

    Args:
        table: The paper's.
        results: Ours by method, one a training; those that fill no row of the paper follow below its rows.
        names: Recognisers of the bundle.
    """
    blocks = []
    for block in table.blocks:
        blocks.append(_block(table, block, results, names))
    missing_titles = []
    for row in table.rows:
        if not set(row.ours) & set(results):
            missing_titles.append(row.title)
    # A method can fill rows of several blocks.
    titles = dict.fromkeys(missing_titles)
    heads = tuple(_head(column, names) for column in table.columns)
    return FilledTable(table, heads, tuple(blocks), tuple(_notes(table, names)), tuple(titles))


def _head(column: TableColumn, names: Names) -> str:
    readings = " / ".join(titles_of(column, names))
    mark = " *" if column.ours else ""
    if readings:
        return f"{column.title}{mark} ({readings})"
    return f"{column.title}{mark}"


def _notes(table: PaperTable, names: Names) -> list[str]:
    notes = [table.layout]
    if any(column.ours for column in table.columns):
        notes.append("Columns with * are ours; the paper has none like them.")
    remarks = []
    for column in table.columns:
        if remark := names.remark(column):
            remarks.append(remark)
    return [*notes, *remarks, *table.notes]


def _block(table: PaperTable, block: TableBlock, results: Mapping[str, Sequence[Results]], names: Names) -> FilledBlock:
    rows = []
    for row in block.rows:
        rows.append(_row(table, block, row, results, names))
    known = set(table.methods)
    # What fills no row of the paper is shown below the paper's own rows, in each block.
    for method in results:
        if method not in known:
            lines = _ours(table, block, method, results[method], names)
            rows.append(FilledRow(f"{method} (not in the paper)", tuple(lines)))
    # To be like the original is good for a recovered picture and bad for an anonymized one.
    identity = "higher"
    if block.versions[0] == "anonymized":
        identity = "lower"
    wishes = []
    for column in table.columns:
        if column.better == "identity":
            wishes.append(identity)
        else:
            wishes.append(column.better)
    arrows = []
    for wish in wishes:
        arrows.append(ARROWS[wish])
    return FilledBlock(block.title, tuple(arrows), tuple(rows))


def _row(
    table: PaperTable, block: TableBlock, row: TableRow, results: Mapping[str, Sequence[Results]], names: Names
) -> FilledRow:
    lines = _published(table, row)
    given = []
    for method in row.ours:
        if method in results:
            given.append(method)
    for method in given:
        lines += _ours(table, block, method, results[method], names)
    if not given:
        blank = ("",) * len(table.columns)
        lines.append(FilledLine("not run", f"ours: not run (give {' or '.join(row.ours)})", blank))
    remarks = [row.note, row.trained_by]
    titles = {}
    for column in table.columns:
        titles[column.id] = column.title
    for cell in row.cells:
        if cell.why:
            remarks.append(f"{titles[cell.column]} {cell.published:g}: {cell.why}")
    filled_remarks = []
    for remark in remarks:
        if remark:
            filled_remarks.append(remark)
    return FilledRow(row.title, tuple(lines), tuple(filled_remarks))


def _published(table: PaperTable, row: TableRow) -> list[FilledLine]:
    """As published, and as corrected where something is known to be wrong."""
    if not row.paper:
        return []
    digits = {}
    for column in table.columns:
        digits[column.id] = column.digits
    printed = {}
    for c in row.cells:
        # With the digits that the paper prints: 0.90 and 0.9 are not the same claim.
        printed[c.column] = f"{c.published:.{digits[c.column] if c.digits is None else c.digits}f}"
    values = {}
    for cell in row.cells:
        values[cell.column] = cell.published
    lines = [FilledLine("published", "as published", _paper_cells(table, printed), figures=values)]
    better = {}
    for cell in row.cells:
        if cell.corrected is not None:
            better[cell.column] = cell.corrected
    if better:
        texts = printed | {column: f"{value:g}" for column, value in better.items()}
        lines.append(FilledLine("corrected", "as corrected", _paper_cells(table, texts), figures=values | better))
    return lines


def _paper_cells(table: PaperTable, texts: Mapping[str, str]) -> tuple[str, ...]:
    cells = []
    for column in table.columns:
        cells.append("" if column.ours else texts.get(column.id, NOTHING))
    return tuple(cells)


def _ours(
    table: PaperTable, block: TableBlock, method: str, results: Sequence[Results], names: Names
) -> list[FilledLine]:
    """A line for every version of the pictures that has figures; one that says so where none has any."""
    lines = []
    for version in expand(block.versions, results[0].figures):
        line = _line(table.columns, method, version, results, names)
        if line.figures:
            lines.append(line)
    if not lines:
        blank = (NOTHING,) * len(table.columns)
        lines.append(FilledLine("ours", f"ours: {method}, nothing measured here", blank, method=method))
    return lines


def _line(
    columns: Sequence[TableColumn], method: str, version: str, results: Sequence[Results], names: Names
) -> FilledLine:
    cells = []
    intervals = []
    figures: dict[str, float] = {}
    for column in columns:
        wanted = figures_of(column, version, names)
        texts = []
        bounds = []
        for name in wanted:
            values = [result.figures[name] for result in results if name in result.figures]
            if not values:
                texts.append(NOTHING)
                continue
            figures[name] = sum(values) / len(values)
            texts.append(f"{figures[name]:.{column.digits}f}")
            if (between := _between(name, values, results)) is not None:
                bounds.append(f"{between[0]:.{column.digits}f} to {between[1]:.{column.digits}f}")
        if any(text != NOTHING for text in texts):
            cells.append(" / ".join(texts))
        else:
            cells.append(NOTHING)
        intervals.append(" / ".join(bounds))
    label = f"ours: {method}"
    trainings = []
    if len(results) > 1:
        label += f", {len(results)} trainings"
        for one in results:
            trainings.append({name: one.figures[name] for name in figures if name in one.figures})
    # Every JPEG quality is a line of its own, and the label says which.
    level = version.removeprefix("recovered/jpeg")
    if level != version:
        what = f"JPEG {level}"
    else:
        what = VERSIONS.get(version, "")
    if what:
        label += f", {what}"
    return FilledLine("ours", label, tuple(cells), tuple(intervals), figures, method, version, tuple(trainings))


def _between(name: str, values: Sequence[float], results: Sequence[Results]) -> tuple[float, float] | None:
    """A figure's 95% interval; of several trainings their lowest and highest; None where it has none."""
    if len(values) > 1:
        return min(values), max(values)
    return results[0].ci.get(name)


def as_json(filled: FilledTable) -> dict[str, Any]:
    """The table as plain values: every line with its figures by name."""
    blocks = []
    for block in filled.blocks:
        rows = []
        for row in block.rows:
            lines = []
            for line in row.lines:
                plain: dict[str, Any] = {
                    "kind": line.kind,
                    "method": line.method,
                    "version": line.version,
                    "figures": line.figures,
                }
                if line.trainings:
                    plain["trainings"] = list(line.trainings)
                lines.append(plain)
            rows.append({"title": row.title, "remarks": list(row.remarks), "lines": lines})
        blocks.append({"title": block.title, "rows": rows})
    columns = []
    for c, head in zip(filled.spec.columns, filled.heads, strict=True):
        columns.append({"id": c.id, "title": head})
    return {
        "table": filled.spec.name,
        "paper": filled.spec.paper,
        "title": filled.spec.title,
        "source": filled.spec.source,
        "columns": columns,
        "blocks": blocks,
        "notes": list(filled.notes),
        "not_run": list(filled.not_run),
    }
