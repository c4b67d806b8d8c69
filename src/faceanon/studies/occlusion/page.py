"""The occlusion report: a row a kind of occluder, a column a figure, and the faces themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from faceanon.files import write_atomic
from faceanon.report.figures import ARROWS, Better
from faceanon.report.page import data_uri, render
from faceanon.report.sheets import png_bytes, sheet
from faceanon.report.table import pipe
from faceanon.results import Results, dumps


@dataclass(frozen=True)
class OcclusionColumn:
    """A column of the table.

    Args:
        group: What it is about.
        title: Heading.
        name: Metric name; `{kind}`, `{judge}` and `{detector}` are filled in.
        about: What it means, in a sentence.
        better: Which direction is good.
        unit: Appended to the value; "%" also multiplies by 100.
        digits: Decimals printed.
    """

    group: str
    title: str
    name: str
    about: str
    better: Better = ""
    unit: str = ""
    digits: int = 2


_C = OcclusionColumn
_PERCENT = ("%", 1)
KEPT = "occluder kept"
FACE = "face around it"
HIDDEN = "anonymity"
BACK = "recovery"
JUDGE = "how far to trust the judge"
COLUMNS = (
    _C(KEPT, "PSNR", "occluder_psnr/{kind}/anonymized", "Fidelity of the pixels that the occluder covers, in the "
       "anonymized picture.", "higher", " dB", 1),
    _C(KEPT, "PSNR, recovered", "occluder_psnr/{kind}/recovered", "The same in the recovered picture.", "higher",
       " dB", 1),
    _C(KEPT, "parsing IoU", "occluder_parsing_iou/{kind}/anonymized", "Inside the true mask, agreement of the parser "
       "on the anonymized picture with the parser on the original.", "higher"),
    _C(KEPT, "mask found", "occluder_mask_iou/{kind}/anonymized", "IoU of the true mask with what the parser calls "
       "an occluder in the anonymized picture.", "higher"),
    _C(KEPT, "mask found, original", "occluder_mask_iou/{kind}/original", "The same in the original: more cannot be "
       "asked for.", "higher"),
    _C(FACE, "landmarks moved", "landmark_distance/{kind}", "Mean distance of the landmarks that stay uncovered to "
       "those of the original.", "lower", " px"),
    _C(FACE, "same ones, bare face", "landmark_distance/{kind}/bare", "The same landmarks where nothing covers the "
       "face.", "lower", " px"),
    _C(FACE, "found", "detection_rate/{detector}/{kind}/anonymized", "Share of anonymized pictures in which the "
       "detector finds a face.", "higher", *_PERCENT),
    _C(FACE, "found in the original", "detection_rate/{detector}/{kind}/original", "The same before.", "higher",
       *_PERCENT),
    _C(HIDDEN, "recognised, same picture", "deid_rate/{judge}/{kind}", "Share of anonymized faces still accepted as "
       "the person in the very picture they were made from, which wears the occluder too.", "lower", *_PERCENT),
    _C(HIDDEN, "recognised, other picture", "deid_rate_gallery/{judge}/{kind}", "Share accepted as the person in "
       "another picture, without an occluder.", "lower", *_PERCENT),
    _C(BACK, "recovered", "recovery_rate/{judge}/{kind}", "Share of faces that the right key brings back from the "
       "saved file.", "higher", *_PERCENT),
    _C(BACK, "opened by a wrong key", "wrong_key_rate/{judge}/{kind}", "Share of faces that a wrong key brings back.",
       "lower", *_PERCENT),
    _C(JUDGE, "sees through", "through_rate/{judge}/{kind}", "Share of originals that the judge still recognises with "
       "the occluder. Where this is low, so is what it can say about anonymity.", "higher", *_PERCENT),
    _C(JUDGE, "other people accepted", "impostor_rate/{judge}/{kind}", "Share of pairs of two people that it takes for "
       "one, both with the occluder; by its threshold the false accept rate without.", "lower", *_PERCENT),
)  # fmt: skip


def occlusion_rows(
    results: Results, detector: str = "mtcnn"
) -> tuple[list[OcclusionColumn], dict[str, list[dict[str, str]]]]:
    """The columns that have figures, and by kind of occluder (`none` first) a cell with value and interval for each.

    Args:
        results: Of an `OcclusionTest`.
        detector: Whose opinion is shown.
    """
    judge = str(results.meta["judge"])
    kinds = ["none", *results.meta["occluders"]]
    columns = []
    rows: dict[str, list[dict[str, str]]] = {kind: [] for kind in kinds}
    for column in COLUMNS:
        names = {}
        for kind in kinds:
            names[kind] = column.name.format(kind=kind, judge=judge, detector=detector)
        # A column that no kind of occluder has a figure for would be dashes alone.
        if any(name in results.figures for name in names.values()):
            columns.append(column)
            for kind in kinds:
                rows[kind].append(_cell(column, results, names[kind]))
    return columns, rows


def _cell(column: OcclusionColumn, results: Results, name: str) -> dict[str, str]:
    if name not in results.figures:
        return {"value": "-", "interval": ""}
    interval = results.ci.get(name)
    if interval is None:
        ends = ""
    else:
        ends = " to ".join(_number(column, end) for end in interval)
    space = " " if column.unit == "%" else ""
    return {"value": f"{_number(column, results.figures[name])}{space}{column.unit}", "interval": ends}


def _number(column: OcclusionColumn, value: float) -> str:
    if column.unit == "%":
        value = value * 100
    return f"{value:.{column.digits}f}"


def occlusion_markdown(columns: Sequence[OcclusionColumn], rows: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """The table turned on its side, which a terminal can hold: a line a figure, a column a kind."""
    lines = [["", *rows], ["---"] + ["---:"] * len(rows)]
    for position, column in enumerate(columns):
        cells = [row[position] for row in rows.values()]
        texts = []
        for cell in cells:
            if cell["interval"]:
                texts.append(f"{cell['value']} ({cell['interval']})")
            else:
                texts.append(cell["value"])
        lines.append([f"{column.group}: {column.title} {ARROWS[column.better]}".strip(), *texts])
    widths = []
    for number in range(len(lines[0])):
        widths.append(max(len(line[number]) for line in lines))
    padded = []
    for line in lines:
        aligned = [line[0].ljust(widths[0])]
        for text, width in zip(line[1:], widths[1:], strict=True):
            aligned.append(text.rjust(width))
        padded.append(pipe(aligned))
    return "\n".join(padded) + "\n"


def write_occlusion(directory: str | Path, results: Results, samples: Mapping[str, Tensor]) -> tuple[Path, str]:
    """Write `occlusion.json`, `occlusion.md`, `occlusion.png` and `occlusion.html`, each atomically.

    Args:
        directory: Made if missing.
        results: Of an `OcclusionTest`, its `faults` as warnings.
        samples: `(N, 3, S, S)` in [-1, 1] by `KIND: VERSION`; no sheets where empty.

    Returns:
        Path of the page, and the table as Markdown.

    Raises:
        UserError: The folder cannot be written, or the disk is full.
    """
    folder = Path(directory)
    columns, rows = occlusion_rows(results)
    table = occlusion_markdown(columns, rows)
    write_atomic(folder / "occlusion.json", dumps(results))
    write_atomic(folder / "occlusion.md", table.encode())
    if samples:
        write_atomic(folder / "occlusion.png", png_bytes(sheet(samples)))
    groups = Counter(column.group for column in columns)
    page = render(
        "occlusion.html", "faceanon.studies.occlusion", results=results, columns=columns, groups=groups, rows=rows,
        sheets=_sheets(samples), arrows=ARROWS,
    )  # fmt: skip
    write_atomic(folder / "occlusion.html", page)
    return folder / "occlusion.html", table


def _sheets(samples: Mapping[str, Tensor]) -> dict[str, str]:
    """One embedded sheet a kind."""
    kinds: dict[str, dict[str, Any]] = {}
    for label, row in samples.items():
        # Labels are `KIND: VERSION`, and a page has a sheet for each kind.
        kind, _, version = label.partition(": ")
        kinds.setdefault(kind, {})[version] = row
    uris = {}
    for name, rows in kinds.items():
        uris[name] = data_uri(png_bytes(sheet(rows, scale=1)))
    return uris
