"""A filled table for the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from faceanon.studies.tables.filled import FilledTable


def text(filled: FilledTable, facts: Sequence[str] = ()) -> str:
    """The table and its notes for the terminal.

    Args:
        filled: The table.
        facts: Sentences on how ours came about.
    """
    lines = ["", f"{filled.spec.paper}: {filled.spec.title} ({filled.spec.name})"]
    for block in filled.blocks:
        lines += [block.title, filled.board(block).text()]
    return "\n".join([*lines, *_listed([*facts, *_notes(filled)])])


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
        lines += [f"## {block.title}", "", filled.board(block).markdown()]
    return "\n".join([*lines, *_listed(_notes(filled))]) + "\n"


def _listed(texts: Sequence[str]) -> list[str]:
    return [f"- {text}" for text in texts]


def _notes(filled: FilledTable) -> list[str]:
    """Notes on the table, remarks on its rows, each once, and the source."""
    remarks = []
    for block in filled.blocks:
        for row in block.rows:
            for remark in row.remarks:
                remarks.append(f"{row.title}: {remark}")
    return [*filled.notes, *dict.fromkeys(remarks), f"Source: {filled.spec.source}"]
