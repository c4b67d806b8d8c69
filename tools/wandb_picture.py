"""A picture of what W&B holds of some runs, drawn from the files that they leave offline.

  python tools/wandb_picture.py picture.webp runs/wandb/offline-run-*

One column a run: the terms of its losses, its figures of validation, its last sheet of samples, and of a test some
rows of its table. Nothing is sent anywhere; `wandb sync FOLDER` would send the same files to a server.
"""

from __future__ import annotations

import json
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from wandb.proto.wandb_internal_pb2 import HistoryItem, Record  # type: ignore[attr-defined]

# Layout of a .wandb file: a header, then blocks, in which records lie whole or in parts, as in LevelDB's log.
HEADER = 7
BLOCK = 32768
BEFORE_PART = struct.Struct("<IHB")  # checksum, length, kind
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
STEP = "trainer/global_step"
KINDS = {"train/": "terms of the losses", "val": "validation"}  # of curves, by how their names begin
# Of a test's table that are shown.
SHOWN = (
    "deid_rate/",
    "self_verification/",
    "recovery_rate/",
    "wrong_key_rate/",
    "key_similarity/",
    "psnr/recovered/file",
    "kid",
)


@dataclass
class Run:
    """What a run logged.

    Args:
        title: Its name and kind.
        curves: By name, pairs of step and value.
        sheet: The last picture of samples; None without one.
        table: Rows of the last table: name, figure, value.
    """

    title: str = ""
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    sheet: Path | None = None
    table: list[list[str]] = field(default_factory=list)


def records(file: Path) -> Iterator[Record]:
    """The records of a .wandb file, in order; a part that the run had no time to write is left out."""
    content = file.read_bytes()
    place = HEADER
    whole = b""
    while place + BEFORE_PART.size <= len(content):
        left = BLOCK - place % BLOCK
        if left < BEFORE_PART.size:
            # No part begins in the last bytes of a block.
            place += left
            continue
        _, length, kind = BEFORE_PART.unpack_from(content, place)
        start = place + BEFORE_PART.size
        part = content[start : start + length]
        place = start + length
        whole = part if kind in (WHOLE, FIRST) else whole + part
        if kind in (WHOLE, LAST) and len(part) == length:
            record = Record()
            record.ParseFromString(whole)
            yield record


def read_run(folder: Path) -> Run:
    """What the files of an offline run hold."""
    (file,) = folder.glob("*.wandb")
    run = Run()
    for record in records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.title = f"{record.run.display_name}, {record.run.job_type or 'fit'}"
        elif kind == "history":
            _add_row(run, folder / "files", _items(record.history.item))
    return run


def _items(items: Iterable[HistoryItem]) -> dict[str, Any]:
    """Values by name; those of one thing, such as a picture, are a dictionary."""
    row: dict[str, Any] = {}
    for item in items:
        *above, name = item.nested_key or [item.key]
        place = row
        for part in above:
            place = place.setdefault(part, {})
        place[name] = json.loads(item.value_json)
    return row


def _add_row(run: Run, files: Path, row: dict[str, Any]) -> None:
    """Add one row of a run's history."""
    step = row.get(STEP, row.get("_step", 0))
    for name, value in row.items():
        if isinstance(value, dict) and value.get("_type") == "images/separated":
            run.sheet = files / value["filenames"][-1]
        elif isinstance(value, dict) and value.get("_type") == "table-file":
            run.table = json.loads((files / value["path"]).read_text())["data"]
        elif isinstance(value, int | float) and not name.startswith(("_", "trainer/", "epoch")):
            run.curves[name].append((float(step), float(value)))


def draw(runs: list[Run]) -> Figure:
    """One column a run, one row a kind of content that any of them has."""
    kinds = []
    for prefix in KINDS:
        if any(curves_of(run, prefix) for run in runs):
            kinds.append(prefix)
    heights = [3] * len(kinds) + [5]
    figure = Figure(figsize=(6.5 * len(runs), 1.2 * sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), len(runs), squeeze=False, height_ratios=heights)
    for column, run in enumerate(runs):
        grid[0, column].set_title(run.title)
        for row, prefix in enumerate(kinds):
            draw_curves(grid[row, column], run, prefix)
        below = grid[-1, column]
        below.axis("off")
        if run.sheet is not None:
            below.imshow(Image.open(run.sheet))
        elif run.table:
            draw_table(below, run)
    return figure


def curves_of(run: Run, prefix: str) -> dict[str, list[tuple[float, float]]]:
    """The curves whose names begin so; a test's single values are none."""
    found = {}
    for name, points in sorted(run.curves.items()):
        if name.startswith(prefix) and len(points) > 1:
            found[name] = points
    return found


def draw_curves(axes: Axes, run: Run, prefix: str) -> None:
    """The curves whose names begin so."""
    curves = curves_of(run, prefix)
    if not curves:
        axes.axis("off")
        return
    for name, points in curves.items():
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, linewidth=1, label=name.removeprefix("train/"))
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(KINDS[prefix])
    axes.set_yscale("symlog", linthresh=0.1)
    axes.legend(fontsize=7, ncols=2)


def draw_table(axes: Axes, run: Run) -> None:
    """Some rows of a test's table."""
    cells = []
    for name, title, value in run.table:
        if name.startswith(SHOWN):
            cells.append([name, title, "-" if value is None else f"{float(value):.3f}"])
    table = axes.table(cells, colLabels=["name", "figure", "value"], colWidths=[0.45, 0.45, 0.1], loc="upper center")
    table.auto_set_font_size(False)
    table.set_fontsize(9)


def main() -> None:
    """Draw what the command line says."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    runs = []
    for folder in sys.argv[2:]:
        runs.append(read_run(Path(folder)))
    with rc_context({"font.size": 9}):
        figure = draw(runs)
        kept = BytesIO()
        figure.savefig(kept, format="png", dpi=90)
    Image.open(kept).convert("RGB").save(sys.argv[1], quality=85)


if __name__ == "__main__":
    main()
