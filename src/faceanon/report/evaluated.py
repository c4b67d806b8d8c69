"""What `faceanon test` leaves: the table in the terminal, JSON and page in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from faceanon.metrics.evaluation import Evaluation
from faceanon.report.page import write_report
from faceanon.report.table import format_table
from faceanon.weights.store import shipped_figures


def publish(evaluation: Evaluation, figures: Mapping[str, float], folder: Path) -> None:
    """Write the report of an evaluation into `folder` and print its table, beside the shipped model's figures.

    Args:
        evaluation: After `compute`.
        figures: What it computed, by name.
        folder: Of the report.
    """
    shipped = shipped_figures()
    page = write_report(
        folder,
        figures,
        evaluation.samples,
        evaluation.meta,
        reference=shipped,
        warnings=evaluation.warnings,
        ci=evaluation.ci,
        scores=evaluation.scores,
        skipped=evaluation.skipped,
    )
    print(format_table(figures, shipped, evaluation.ci))
    print(f"report: {page.resolve()}")
