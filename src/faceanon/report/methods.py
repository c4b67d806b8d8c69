"""One table on many methods: what each figure is over the seeds, as Markdown and as plain values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from faceanon.report.board import NOTHING, Board, Cell, Column, Line
from faceanon.report.figures import better, format_interval, format_value

COLUMNS = (
    Column("anonymity", "recognised, same picture", "deid_rate/{judge}"),
    Column("anonymity", "recognised, other picture", "deid_rate_gallery/{judge}"),
    Column("anonymity", "same, training recogniser", "deid_rate/{recogniser}"),
    Column("recovery", "recovered from the file", "recovery_rate/{judge}/file"),
    Column("recovery", "PSNR", "psnr/recovered/file"),
    Column("recovery", "bytes beside the picture", "carried_bytes"),
    Column("wrong key", "opened", "wrong_key_rate/{judge}"),
    Column("quality", "KID", "kid"),
    Column("quality", "landmarks moved", "landmark_distance/anonymized"),
    Column("quality", "parsing kept", "parsing_iou/anonymized"),
    Column("diversity", "two keys alike", "key_similarity/{judge}"),
    Column("cost", "training, CPU min", "cost/train_cpu_minutes"),
    Column("cost", "ms a face", "cost/milliseconds_per_face"),
    Column("cost", "parameters, M", "cost/parameters_millions"),
)


def named(judge: str, recogniser: str) -> list[Column]:
    """The columns with the bundle's names in them."""
    columns = []
    for column in COLUMNS:
        columns.append(replace(column, name=column.name.format(judge=judge, recogniser=recogniser)))
    return columns


def summary(runs: Sequence[Mapping[str, float]], columns: Sequence[Column]) -> dict[str, dict[str, float]]:
    """Mean over the seeds, and standard deviation where there are several, by metric; what no run has is left out.

    Args:
        runs: Value by metric name, a run each.
        columns: What is wanted.
    """
    table: dict[str, dict[str, float]] = {}
    for column in columns:
        values = []
        for run in runs:
            # One NaN in a mean would hide what the other seeds found.
            if column.name in run and math.isfinite(run[column.name]):
                values.append(run[column.name])
        if values:
            table[column.name] = {"mean": statistics.fmean(values)}
            if len(values) > 1:
                table[column.name]["std"] = statistics.stdev(values)
    return table


def markdown(methods: Mapping[str, Mapping[str, Mapping[str, float]]], columns: Sequence[Column]) -> str:
    """The table: a row a method, its `summary` in the cells.

    Args:
        methods: `summary` by method.
        columns: The columns, those of one group beside each other.
    """
    lines = []
    for name, figures in methods.items():
        cells = tuple(summary_cell(column.name, figures.get(column.name)) for column in columns)
        lines.append(Line(name, cells))
    directed = [replace(column, better=better(column.name)) for column in columns]
    return Board(directed, lines, "method").markdown()


def summary_cell(name: str, value: Mapping[str, float] | None, interval: tuple[float, float] | None = None) -> Cell:
    """Mean of a figure, with its standard deviation over the seeds, or the interval of a single run."""
    if value is None:
        return Cell(NOTHING)
    text = _number(name, value["mean"])
    if "std" in value:
        return Cell(text, f"± {_number(name, value['std'])}", value["mean"])
    return Cell(text, format_interval(name, interval), value["mean"])


def _number(name: str, value: float) -> str:
    # Costs are no figures of a test, so `report.figures` does not know their units.
    if name.startswith("cost/"):
        return f"{value:.1f}"
    return format_value(name, value)
