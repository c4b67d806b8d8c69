"""One table on many methods: what each figure is over the seeds, as Markdown and as plain values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faceanon.report.figures import ARROWS, better, format_value
from faceanon.report.table import pipe


@dataclass(frozen=True)
class MethodsColumn:
    """A column of the table.

    Args:
        group: What it is about.
        title: Heading.
        name: Metric name; `{judge}` and `{recogniser}` stand for the bundle's.
    """

    group: str
    title: str
    name: str


COLUMNS = (
    MethodsColumn("anonymity", "recognised, same picture", "deid_rate/{judge}"),
    MethodsColumn("anonymity", "recognised, other picture", "deid_rate_gallery/{judge}"),
    MethodsColumn("anonymity", "same, training recogniser", "deid_rate/{recogniser}"),
    MethodsColumn("recovery", "recovered from the file", "recovery_rate/{judge}/file"),
    MethodsColumn("recovery", "PSNR", "psnr/recovered/file"),
    MethodsColumn("recovery", "bytes beside the picture", "carried_bytes"),
    MethodsColumn("wrong key", "opened", "wrong_key_rate/{judge}"),
    MethodsColumn("quality", "KID", "kid"),
    MethodsColumn("quality", "landmarks moved", "landmark_distance/anonymized"),
    MethodsColumn("quality", "parsing kept", "parsing_iou/anonymized"),
    MethodsColumn("diversity", "two keys alike", "key_similarity/{judge}"),
    MethodsColumn("cost", "training, CPU min", "cost/train_cpu_minutes"),
    MethodsColumn("cost", "ms a face", "cost/milliseconds_per_face"),
    MethodsColumn("cost", "parameters, M", "cost/parameters_millions"),
)


def named(judge: str, recogniser: str) -> list[MethodsColumn]:
    """The columns with the bundle's names in them."""
    columns = []
    for c in COLUMNS:
        columns.append(MethodsColumn(c.group, c.title, c.name.format(judge=judge, recogniser=recogniser)))
    return columns


def summary(runs: Sequence[Mapping[str, float]], columns: Sequence[MethodsColumn]) -> dict[str, dict[str, float]]:
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


def markdown(methods: Mapping[str, Mapping[str, Mapping[str, float]]], columns: Sequence[MethodsColumn]) -> str:
    """The table: a row a method, its `summary` in the cells.

    Args:
        methods: `summary` by method.
        columns: The columns, those of one group beside each other.
    """
    heads = []
    for column in columns:
        heads.append(f"{column.group}: {column.title} {ARROWS[better(column.name)]}".strip())
    rows = [["method", *heads], ["---"] + ["---:"] * len(columns)]
    for name, figures in methods.items():
        cells = []
        for column in columns:
            cells.append(_cell(column.name, figures.get(column.name)))
        rows.append([name, *cells])
    return "\n".join(map(pipe, rows)) + "\n"


def _cell(name: str, value: Mapping[str, float] | None) -> str:
    if value is None:
        return "-"
    text = _number(name, value["mean"])
    if "std" in value:
        return f"{text} ± {_number(name, value['std'])}"
    return text


def _number(name: str, value: float) -> str:
    # Costs are no figures of a test, so `report.figures` does not know their units.
    if name.startswith("cost/"):
        return f"{value:.1f}"
    return format_value(name, value)
