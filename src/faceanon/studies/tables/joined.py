"""All tables of a folder on one page of Markdown, and its methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from faceanon.files import write_atomic
from faceanon.report.methods import markdown, named, summary
from faceanon.results import Results
from faceanon.studies.tables.spec import known_tables

TABLES = "tables.md"
METHODS = "methods.md"


def write_joined(folder: Path, results: Mapping[str, Sequence[Results]], judge: str, recogniser: str) -> None:
    """Write `tables.md`, the tables that lie in the folder, and `methods.md`, this run's methods beside each other.

    Args:
        folder: With `NAME.md` of one table or more, of this run or earlier ones.
        results: By method, one a training.
        judge: Name of the recogniser that judges.
        recogniser: Of the training's, or "".
    """
    texts = {}
    for name in known_tables():
        if (path := folder / f"{name}.md").is_file():
            texts[name] = path.read_text(encoding="utf-8")
    columns = named(judge, recogniser)
    rows = {}
    for name, trainings in results.items():
        rows[name] = summary([one.figures for one in trainings], columns)
    used = []
    for column in columns:
        if any(column.name in row for row in rows.values()):
            used.append(column)
    write_atomic(folder / TABLES, joined(texts).encode())
    write_atomic(folder / METHODS, markdown(rows, used).encode())


def joined(tables: Mapping[str, str]) -> str:
    """Markdown of many tables as one text: headings a level deeper, and what the first says of ours said once.

    Args:
        tables: What `tables.text.markdown` gave, by the table's name.
    """
    said: list[str] = []
    parts: list[str] = []
    for name, text in tables.items():
        title, *rest = text.splitlines()
        first = len(rest)
        for number, line in enumerate(rest):
            if line.startswith("## "):
                first = number
                break
        facts = []
        for line in rest[:first]:
            if line:
                facts.append(f"- {line}")
        # What the first table says of ours stands above all; the others add what differs.
        said = said or facts
        own = []
        for fact in facts:
            if fact not in said:
                own.append(fact)
        body = []
        for line in rest[first:]:
            body.append(f"#{line}" if line.startswith("## ") else line)
        parts += [f"## `{name}`: {title.removeprefix('# ')}", "", *own, *([""] if own else []), *body, ""]
    return "\n".join([*said, "", *parts]).strip() + "\n"
