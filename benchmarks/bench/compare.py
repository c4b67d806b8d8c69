"""Two runs side by side, whatever the machines were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from bench.record import BenchFigure, Run


@dataclass(frozen=True)
class Comparison:
    """One case in two runs.

    Args:
        name: Of the case.
        speed: How many times as fast as then, each against its own machine's peak; above 1 is faster.
        memory: Its memory by that of then; below 1 is less. None where either is unknown.
    """

    name: str
    speed: float
    memory: float | None


def compare(now: Run, then: Run) -> list[Comparison]:
    """The cases that both runs measured, in the order of the first."""
    former = {one.name: one for one in then.figures}
    pairs = []
    for one in now.figures:
        if one.name in former:
            pairs.append((one, former[one.name]))
    compared = []
    for pair in pairs:
        # Both by the clock of the newer run: a run on a GPU and one on a CPU are judged by different ones.
        if (comparison := _compared(*pair, now.clock)) is not None:
            compared.append(comparison)
    return compared


def _compared(now: BenchFigure, then: BenchFigure, clock: str) -> Comparison | None:
    cost = now.cost(clock)
    before = then.cost(clock)
    if not cost or not before:
        return None
    memory = now.largest("memory")
    memory_then = then.largest("memory")
    return Comparison(now.name, before / cost, memory / memory_then if memory and memory_then else None)


def slower(comparisons: Sequence[Comparison], below: float) -> list[Comparison]:
    """Those whose speed fell below a bound."""
    below_limit = []
    for one in comparisons:
        if one.speed < below:
            below_limit.append(one)
    return below_limit


def differences(now: Run, then: Run) -> list[str]:
    """Settings and versions in which the two runs differ: what else may explain a ratio."""
    pairs = []
    for one in fields(now.settings):
        pairs.append((one.name, getattr(now.settings, one.name), getattr(then.settings, one.name)))
    # The load differs between any two runs, and each is divided by the peak under its own.
    names = sorted((now.machine.keys() | then.machine.keys()) - {"load"})
    for name in names:
        pairs.append((name, now.machine.get(name), then.machine.get(name)))
    lines = []
    for name, value, then_value in pairs:
        if value != then_value:
            lines.append(f"{name}: {then_value} then, {value} now")
    return lines
