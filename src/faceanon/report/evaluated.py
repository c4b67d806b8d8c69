"""What an evaluation leaves: JSON and page in a folder, and of `faceanon test` the table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faceanon.metrics.evaluation import Evaluation
from faceanon.models import shipped_figures
from faceanon.report.page import write_report
from faceanon.report.table import format_table


def publish(evaluation: Evaluation, figures: Mapping[str, float], folder: Path) -> None:
    """Write the report of an evaluation into `folder` and print its table, beside the shipped model's figures.

    Args:
        evaluation: After `compute`.
        figures: What it computed, by name.
        folder: Of the report.
    """
    shipped = shipped_figures(getattr(evaluation.bundle, "name", ""))
    page = write_evaluation(evaluation, figures, folder, reference=shipped)
    print(format_table(figures, shipped, evaluation.ci))
    print(f"report: {page.resolve()}")


def write_evaluation(
    evaluation: Evaluation,
    figures: Mapping[str, float],
    folder: Path,
    reference: Mapping[str, float] | None = None,
    pictures: bool = True,
    ci: Mapping[str, tuple[float, float]] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Path:
    """Write the report of an evaluation.

    Args:
        evaluation: After `compute`.
        figures: By name: what it computed, and perhaps more.
        folder: Of the report.
        reference: Figures of the shipped model.
        pictures: Whether with a sheet; one of photographs is not ours to spread.
        ci: Intervals of figures that are not the evaluation's own.
        meta: What else is worth knowing.

    Returns:
        Path of the page.
    """
    return write_report(
        folder,
        figures,
        evaluation.samples if pictures else {},
        {**evaluation.meta, **(meta or {})},
        reference=reference,
        warnings=evaluation.warnings,
        # The evaluation's own intervals come last, so that nothing given replaces them.
        ci={**(ci or {}), **evaluation.ci},
        scores=evaluation.scores,
        skipped=evaluation.skipped,
    )
