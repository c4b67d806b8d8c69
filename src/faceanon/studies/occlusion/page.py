"""The occlusion report: a row a kind of occluder, a column a figure, and the faces themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from faceanon.files import write_atomic
from faceanon.report.board import Board, Cell, Column, Line
from faceanon.report.page import data_uri, render
from faceanon.report.sheets import png_bytes, sheet
from faceanon.results import Results, dumps

_C = Column
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


def occlusion_board(results: Results, detector: str = "mtcnn") -> Board:
    """The columns that have figures; a line a kind of occluder, `none` first.

    Args:
        results: Of an `OcclusionTest`.
        detector: Whose opinion is shown.
    """
    judge = str(results.meta["judge"])
    kinds = ["none", *results.meta["occluders"]]
    columns = []
    cells: dict[str, list[Cell]] = {kind: [] for kind in kinds}
    for column in COLUMNS:
        names = {}
        for kind in kinds:
            names[kind] = column.name.format(kind=kind, judge=judge, detector=detector)
        # A column that no kind of occluder has a figure for would be dashes alone.
        if any(name in results.figures for name in names.values()):
            columns.append(column)
            for kind, name in names.items():
                cells[kind].append(column.cell(results.figures.get(name), results.ci.get(name)))
    return Board(columns, [Line(kind, tuple(row)) for kind, row in cells.items()], "occluder")


def write_occlusion(directory: str | Path, results: Results, samples: Mapping[str, Tensor]) -> tuple[Path, str]:
    """Write `occlusion.json`, `occlusion.md`, `occlusion.png` and `occlusion.html`, each atomically.

    Args:
        directory: Made if missing.
        results: Of an `OcclusionTest`, its `faults` as warnings.
        samples: `(N, 3, S, S)` in [-1, 1] by `KIND: VERSION`; no sheets where empty.

    Returns:
        Path of the page, and the table as text.

    Raises:
        UserError: The folder cannot be written, or the disk is full.
    """
    folder = Path(directory)
    board = occlusion_board(results)
    # On its side, which a terminal can hold: a line a figure, a column a kind.
    turned = board.turned()
    write_atomic(folder / "occlusion.json", dumps(results))
    write_atomic(folder / "occlusion.md", turned.markdown().encode())
    if samples:
        write_atomic(folder / "occlusion.png", png_bytes(sheet(samples)))
    page = render("occlusion.html", "faceanon.studies.occlusion", results=results, board=board, sheets=_sheets(samples))
    write_atomic(folder / "occlusion.html", page)
    return folder / "occlusion.html", turned.text()


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
