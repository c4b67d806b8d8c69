"""A filled table in the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from faceanon.report.table import pipe
from faceanon.studies.tables.filled import FilledBlock, FilledLine, FilledTable

STYLES = {"published": "", "corrected": "italic", "ours": "bold", "not run": "dim"}


def print_table(filled: FilledTable, facts: Sequence[str] = (), console: Console | None = None) -> None:
    """Print the table and its notes; a file or a pipe gets it in full width.

    Args:
        filled: The table.
        facts: Sentences on how ours came about.
        console: Where to; standard output when None.
    """
    console = console or Console()
    heading = f"\n{filled.spec.paper}: {filled.spec.title} ({filled.spec.name})"
    console.print(heading, style="bold", markup=False, highlight=False, soft_wrap=True)
    for block in filled.blocks:
        drawn = _rich(filled, block)
        wanted = console.measure(drawn, options=console.options.update(max_width=10_000)).maximum
        # A pipe has no width, and rich takes 80 columns for it.
        if console.width < wanted and not console.is_terminal:
            console.width = wanted
        console.print(drawn)
    for note in (*facts, *filled.notes, *_remarks(filled), f"Source: {filled.spec.source}"):
        console.print(f"- {note}", markup=False, highlight=False, soft_wrap=True)


def _rich(filled: FilledTable, block: FilledBlock) -> Table:
    table = Table(title=block.title, title_justify="left")
    table.add_column("method", overflow="fold")
    table.add_column("whose", overflow="fold")
    for head, arrow in zip(filled.heads, block.arrows, strict=True):
        table.add_column(f"{head} {arrow}".strip(), justify="right", overflow="fold")
    for row in block.rows:
        for number, line in enumerate(row.lines):
            table.add_row("" if number else row.title, line.label, *line.cells, style=STYLES[line.kind])
        table.add_section()
    return table


def _remarks(filled: FilledTable) -> list[str]:
    """Remarks on rows, each once."""
    lines = []
    for block in filled.blocks:
        for row in block.rows:
            for remark in row.remarks:
                lines.append(f"{row.title}: {remark}")
    return list(dict.fromkeys(lines))


def markdown(filled: FilledTable, facts: Sequence[str] = ()) -> str:
    """The table, its notes, and facts about how ours came about.

    Args:
        filled: The table.
        facts: Sentences: protocol, bundle, command, deviations.
    """
    lines = [f"# {filled.spec.paper}: {filled.spec.title}", ""]
    if facts:
        lines += [*facts, ""]
    for block in filled.blocks:
        heads = []
        for head, arrow in zip(filled.heads, block.arrows, strict=True):
            heads.append(f"{head} {arrow}".strip())
        lines += [f"## {block.title}", "", pipe(["method", "whose", *heads])]
        lines.append(pipe(["---", "---"] + ["---:"] * len(heads)))
        for row in block.rows:
            for number, line in enumerate(row.lines):
                lines.append(_md_line("" if number else row.title, line))
        lines.append("")
    for note in (*filled.notes, *_remarks(filled), f"Source: {filled.spec.source}"):
        lines.append(f"- {note}")
    return "\n".join(lines) + "\n"


def _md_line(title: str, line: FilledLine) -> str:
    bold = "**" if line.kind == "ours" else ""
    cells = []
    for number, cell in enumerate(line.cells):
        text = f"{bold}{cell}{bold}" if cell else ""
        if line.intervals and line.intervals[number]:
            text += f"<br>{line.intervals[number]}"
        cells.append(text)
    return pipe([title, line.label, *cells])
