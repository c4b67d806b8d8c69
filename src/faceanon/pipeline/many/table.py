"""What was done to which face, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faceanon.files import clear_unfinished, write_atomic

COLUMNS = ("source", "target", "status", "face", "x1", "y1", "x2", "y2", "score", "done_by", "note")


def write_table(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """One row a face, or one for a film, a recovered photo or a file that was skipped, in the given order.

    Args:
        path: The file; appears complete or not at all.
        lines: `done` and `failed` lines of a journal.

    Raises:
        UserError: If it cannot be written.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for line in lines:
        table.writerows(_rows(line))
    clear_unfinished(path)
    # Names of files need not be valid text.
    write_atomic(path, text.getvalue().encode("utf-8", "backslashreplace"))


def _rows(line: Mapping[str, Any]) -> Iterator[list[Any]]:
    notes = "; ".join(line.get("notes", ()))
    if line["event"] != "done":
        yield [line["source"], "", "skipped", *[""] * 7, line["error"]]
        return
    head = [line["source"], line["target"], "done"]
    if "film" in line:
        yield [*head, *[""] * 6, "film", f"{line['film']}; {notes}" if notes else line["film"]]
    elif not line["faces"]:
        count = f"{line['by_model']} face(s)"
        yield [*head, *[""] * 6, "recovered", f"{count}; {notes}" if notes else count]
    for face in line["faces"]:
        parts = []
        for part in (face["why"], notes):
            if part:
                parts.append(part)
        note = "; ".join(parts)
        yield [*head, face["number"], *face["box"], face["score"], face["by"], note]
