"""What `python benchmarks/measure.py` found, as a table for the terminal and as a page."""

from __future__ import annotations

from bench.compare import compare, differences
from bench.record import BF16_PEAK, BenchFigure, Run
from faceanon.report.board import NOTHING as UNKNOWN
from faceanon.report.board import Board, Cell, Column, Line

LEGEND = (
    "`per s` is of wall time, `per CPU-s` of processor time (of all threads); `spread` is the quartiles' distance by "
    "the median. `of peak` is the case's GFLOP/s by the larger one of a float32 matrix product and a 3 x 3 convolution "
    "measured right before each of its samples; GFLOP are those of convolutions, products and attention, by torch's "
    "formulas. `cost` is what that peak does in the time of one unit, so it compares across machines. `memory` "
    "is the most above the process as it was before the case was built (weights and optimizer states included), "
    "`working` above what it held before the call."
)


def cases(run: Run) -> Board:
    """The table of all cases that were measured; a run on a GPU has one column more."""
    titles = ["per s", "per CPU-s", "spread", "GFLOP/unit", "of peak"]
    if run.settings.cuda:
        titles += ["of bf16 peak"]
    titles += ["cost, GFLOP", "memory, MB", "working, MB"]
    lines = []
    for one in run.figures:
        if not one.failed:
            lines.append(Line(one.name, tuple(map(Cell, row(one, run)))))
    return Board([Column(title="unit", left=True), *(Column(title=title) for title in titles)], lines, "case")


def row(one: BenchFigure, run: Run) -> list[str]:
    """The cells of one case, in the order of the columns of `cases`."""
    summary = one.summary()
    clock = run.clock
    cells = [one.unit, number(summary["per_second"]), number(summary["per_cpu_second"])]
    cells += [
        percent(summary[f"spread_{clock}"]),
        number(summary["gflop_per_image"]),
        percent(summary[f"fraction_{clock}"]),
    ]
    if run.settings.cuda:
        cells += [percent(one.fraction("wall", [BF16_PEAK]))]
    return [*cells, number(one.cost(clock)), number(summary["memory_mb"]), number(summary["working_mb"])]


def number(value: float | None) -> str:
    """A number in three significant digits; whole from 100 on."""
    if value is None:
        return UNKNOWN
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def percent(value: float | None) -> str:
    """A share as whole percent, or the sign for an unknown value."""
    if value is None:
        return UNKNOWN
    return f"{value:.0%}"


def facts(run: Run) -> list[str]:
    """How it was measured: settings, machine, peaks."""
    one = run.settings
    machine = run.machine
    where = machine.get("gpu") or machine.get("cpu")
    choices = [f"{one.threads} thread" + "s" * (one.threads > 1), f"precision {one.precision}"]
    for word, on in (("compiled", one.compile), ("channels last", one.channels_last)):
        if on:
            choices.append(word)
    if one.cuda:
        choices += [f"TF32 {'on' if one.tf32 else 'off'}"]
    commit = (run.commit or "installed")[:7]
    if run.changed:
        commit += " with changes"
    load = machine.get("load")
    lines = [
        f"{one.device} ({where}, {machine.get('cores')} cores), {', '.join(choices)}; {run.rounds} rounds",
        f"torch {machine.get('torch')}, faceanon {machine.get('faceanon')} at {commit}, {run.when}",
    ]
    peaks = []
    for figure in run.figures:
        if (value := figure.peak(run.clock)) is not None:
            peaks.append(f"{value:.0f}")
    if peaks:
        # As texts, 90 would be larger than 100.
        low = min(peaks, key=float)
        high = max(peaks, key=float)
        unit = "GFLOP per CPU-second"
        if run.clock == "wall":
            unit = "GFLOP/s"
        lines.append(
            f"peak beside the cases: {low} to {high} {unit}" + (f"; load {load[0]} at the start" if load else "")
        )
    return lines


def remarks(run: Run) -> list[str]:
    """Cases that failed, and settings that a case did not use."""
    lines = []
    for one in run.figures:
        if one.failed:
            lines.append(f"{one.name}: not measured: {one.failed}")
    for one in run.figures:
        if one.ignored:
            lines.append(f"{one.name} does not use {', '.join(one.ignored)}")
    return lines


def terminal(run: Run, former: Run | None = None) -> str:
    """The table in plain text."""
    lines = [*facts(run), ""]
    board = cases(run)
    if board.lines:
        lines.append(board.text())
    if remarks(run):
        lines += ["", *remarks(run)]
    if former is not None:
        lines += ["", *comparison(run, former)]
    return "\n".join(lines)


def comparison(run: Run, former: Run) -> list[str]:
    """Ratios to a former run."""
    comparisons = compare(run, former)
    if not comparisons:
        return ["the baseline shares no case with this run"]
    lines = [f"against {former.when} at {(former.commit or 'installed')[:7]}, each by its own machine's peak:"]
    rows = []
    for one in comparisons:
        memory = UNKNOWN if one.memory is None else f"{one.memory:.2f}"
        rows.append(Line(one.name, (Cell(f"{one.speed:.2f}"), Cell(memory))))
    lines.append(Board([Column(title="times as fast"), Column(title="memory")], rows, "case").text())
    for line in differences(run, former):
        lines.append(f"  {line}")
    return lines


def markdown(run: Run, command: str, source: str | None = None, former: Run | None = None) -> str:
    """The page.

    Args:
        run: What was found.
        command: That made it.
        source: Name of the run's JSON, if it was written.
        former: A run to compare with.
    """
    lines = [
        "# Speed and memory",
        "",
        f"Made by `{command}`; every run is a small JSON in `bench/` beside this page.",
        "",
    ]
    for line in facts(run):
        lines.append(f"- {line}")
    if source:
        lines += [f"- data: `{source}`"]
    if run.settings.device == "cpu" and _was_shared(run):
        lines.append("- The machine was shared with other work: read `per CPU-s`, `of peak` and `cost`, not `per s`.")
    lines += ["", cases(run).markdown().rstrip()]
    lines += ["", LEGEND, ""]
    for line in remarks(run):
        lines.append(f"- {line}")
    lines += ["", "## The cases", ""]
    for one in run.figures:
        lines.append(f"- `{one.name}`: {one.about}")
    if former is not None:
        lines += ["", "## Before", "", "```", *comparison(run, former), "```"]
    return "\n".join(lines).rstrip() + "\n"


def _was_shared(run: Run) -> bool:
    """Whether a case that keeps its threads busy got much less processor time than that."""
    shares = []
    for one in run.figures:
        # A case without FLOPs may wait for files or processes, however idle the machine is.
        if one.gflop and (share_of_wall := one.summary()["cpu_per_wall"]) is not None:
            shares.append(share_of_wall)
    return any(share < 0.9 * run.settings.threads for share in shares)
