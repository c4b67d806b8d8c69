"""One self-contained HTML page on a test, or on several side by side."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from torch import Tensor

from faceanon.files import write_atomic
from faceanon.report.board import ARROWS, Board, Column, Line
from faceanon.report.figures import better, explain, format_value
from faceanon.report.plots import history_plot, similarity_plot
from faceanon.report.sheets import png_bytes, sheet
from faceanon.report.table import families
from faceanon.results import FILE_NAME, Results, dumps, run_meta, shown_command

# Of the levels of recovery the file's: it is what a user has.
HEADLINE = ("deid_rate", "self_verification", "recovery_rate/{}/file", "wrong_key_rate", "key_similarity")


def render(template: str, package: str = "faceanon.report", /, **values: object) -> bytes:
    """Fill a template; every value is escaped unless it is marked safe there.

    Args:
        template: A file in the folder `templates` of the package; it may extend a template of this one.
        package: Whose template it is.
        values: What the template shows, by name.
    """
    loader = jinja2.ChoiceLoader(list(map(jinja2.PackageLoader, (package, "faceanon.report"))))
    # Strict: a name that a template does not get is a mistake, not an empty place.
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown_command"] = shown_command
    return environment.get_template(template).render(**values).encode()


def data_uri(picture: bytes, kind: str = "png") -> str:
    """A PNG, or a picture of another kind, inside a page."""
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode()


def headline(results: Results) -> list[dict[str, str]]:
    """The five figures that decide, by the judge."""
    judge = results.meta.get("judge")
    names = []
    for part in HEADLINE:
        names.append(part.format(judge) if "{}" in part else f"{part}/{judge}")
    tiles = []
    for name in names:
        if name in results.figures:
            value = format_value(name, results.figures[name])
            tiles.append({"title": explain(name).title, "value": value, "better": better(name)})
    return tiles


def write_report(
    directory: str | Path,
    figures: Mapping[str, float],
    samples: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    reference: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
    ci: Mapping[str, tuple[float, float]] | None = None,
    history: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    scores: Mapping[str, Tensor | Sequence[float]] | None = None,
    skipped: Sequence[str] = (),
) -> Path:
    """Write `results.json`, `samples.png` and `report.html`, each atomically.

    Args:
        directory: Made if missing.
        figures: Value by metric name, as `Evaluation.compute` gives them.
        samples: `(N, 3, S, S)` in [-1, 1] by label; no sheet where empty.
        meta: `Evaluation.meta` and whatever else is worth knowing; versions and the command are added.
        reference: Figures of the shipped model.
        warnings: `Evaluation.warnings`.
        ci: `Evaluation.ci`.
        history: `(step, value)` curves of the training by name.
        scores: `Evaluation.scores`.
        skipped: `Evaluation.skipped`.

    Returns:
        Path of the page.

    Raises:
        UserError: The folder cannot be written, or the disk is full.
    """
    folder = Path(directory)
    results = Results(dict(figures), dict(ci or {}), {**run_meta(), **meta}, list(warnings), list(skipped))
    # Drawn before anything is written: samples that cannot be drawn leave no half report.
    png = png_bytes(sheet(samples)) if samples else None
    write_atomic(folder / FILE_NAME, dumps(results))
    if png is not None:
        write_atomic(folder / "samples.png", png)
    threshold = results.figures.get(f"threshold/{results.meta.get('judge')}")
    shown = families({"value": results}, reference)
    heads = [Column(title="value"), *([Column(title="shipped model")] if reference else [])]
    page = render(
        "report.html",
        results=results,
        headline=headline(results),
        families=[{**family, "board": Board(heads, family["lines"], "figure")} for family in shown],
        sheet=data_uri(png) if png is not None else None,
        similarity=similarity_plot(scores or {}, threshold),
        history=history_plot(history or {}),
    )
    write_atomic(folder / "report.html", page)
    return folder / "report.html"


def write_comparison(path: str | Path, results: Mapping[str, Results]) -> Path:
    """Write one page with the figures of several tests side by side.

    Args:
        path: The HTML file.
        results: Results by the label of their column.

    Raises:
        UserError: The folder cannot be written, or the disk is full.
    """
    lines = []
    for family in families(results):
        heading = f"{family['title']} {ARROWS[family['better'] or '']}".strip()
        lines += [Line(f"{heading}: {family['text']}"), *family["lines"]]
    board = Board([Column(title=label) for label in results], lines, "figure")
    write_atomic(Path(path), render("compare.html", results=results, board=board))
    return Path(path)
