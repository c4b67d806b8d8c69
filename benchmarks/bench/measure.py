"""Measure cases: each in a process of its own, in rounds through all of a group, the machine's peak before each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields

from bench.cases import Case
from bench.peak import peaks
from bench.record import BenchFigure, Run, describe_machine, sources_changed
from bench.runners import Apart, CaseFailedError, Here, Runner
from bench.settings import Settings
from faceanon.errors import UserError

Progress = Callable[[str, int, int], None]
"""Told what is done now, how many steps are done, and how many there are."""


def silent(what: str, done: int, of: int) -> None:
    """A `Progress` that shows nothing."""


def silent_keep(run: Run) -> None:
    """Keeps nothing before the end."""


def measure(
    cases: Sequence[Case],
    settings: Settings,
    rounds: int = 5,
    warmup: int = 1,
    together: int = 4,
    apart: bool = True,
    progress: Progress = silent,
    keep: Callable[[Run], object] = silent_keep,
) -> Run:
    """Measure cases.

    Args:
        cases: What; a case that fails is recorded with the reason, and the others are still measured.
        settings: How.
        rounds: Samples of each case; in every round each case of a group is measured once, right behind the peaks.
        warmup: Calls before the first sample, beside the one whose FLOPs are counted.
        together: Cases of a group, all in memory at once; heavy ones stay alone.
        apart: Whether each case gets a process of its own, without which its memory is not told apart.
        progress: Called before each step.
        keep: Called with what there is so far behind each group, for runs that may be interrupted.

    Raises:
        UserError: No rounds, or the peaks cannot be measured on this device.
    """
    if rounds < 1 or together < 1:
        raise UserError(f"rounds is {rounds} and together {together}; give at least 1 of each")
    # One step more than there are rounds: each case is also built.
    steps = _Steps(progress, len(cases) * (rounds + 1))
    make = Apart if apart else Here
    figures = {}
    for one in cases:
        figures[one.name] = _blank(one, settings)
    run = Run(settings, [], rounds, describe_machine(settings), changed=sources_changed())
    with ExitStack() as stack:
        # The peaks stay in memory to the end, since they are measured again beside every case.
        base = []
        for case in peaks(settings):
            base.append(_Peak(case, make(case, settings, warmup), stack))
        for group in groups(cases, together):
            # Processes of a group end before the next one starts: they hold memory, even while they wait.
            with ExitStack() as inner:
                ready = _prepared(group, figures, lambda case: make(case, settings, warmup), inner, steps)
                for number in range(rounds):
                    _round(ready, base, figures, number, steps)
            measured = []
            # Cases of later groups have neither yet, and must not stand in the file that `keep` writes.
            for figure in figures.values():
                if figure.samples or figure.failed:
                    measured.append(figure)
            run.figures = measured
            keep(run)
    return run


def groups(cases: Sequence[Case], together: int) -> Iterator[list[Case]]:
    """Neighbours that are measured in turns; heavy cases alone."""
    group: list[Case] = []
    for case in cases:
        if case.heavy:
            # A group that a heavy case cuts short is measured before it, so that the order of the listing stays.
            yield from ([group] if group else [])
            yield [case]
            group = []
            continue
        group.append(case)
        if len(group) == together:
            yield group
            group = []
    yield from ([group] if group else [])


class _Steps:
    """Counts finished steps and reports them."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.total = total
        self.done = 0

    def next(self, what: str) -> None:
        self.progress(what, self.done, self.total)
        self.done += 1


class _Peak:
    """A measurement of peak speed that is warmed up and ready to sample."""

    def __init__(self, case: Case, runner: Runner, stack: ExitStack) -> None:
        # Before it is built, so that the process of a case that cannot be built ends too.
        stack.callback(runner.close)
        self.name = case.name
        self.runner = runner
        try:
            self.gflop = float(runner.prepare()["gflop"])
        except CaseFailedError as error:
            raise UserError(f"cannot measure what the machine can do ({case.name}): {error}") from error

    def measure(self, into: BenchFigure) -> None:
        sample = self.runner.sample()
        rates = into.peaks.setdefault(self.name, {"wall": [], "cpu": []})
        rates["wall"].append(self.gflop / sample.wall)
        # A call may be over before the processor's clock moves.
        rates["cpu"].append(self.gflop / max(sample.cpu, 1e-9))


def _blank(case: Case, settings: Settings) -> BenchFigure:
    """A figure without samples, which knows what the case does not use."""
    # The same device, so that it does not count as asked for here; below it counts where it is a GPU.
    usual = Settings(device=settings.device)
    asked = []
    for one in fields(settings):
        if getattr(settings, one.name) != getattr(usual, one.name):
            asked.append(one.name)
    ignored = []
    for name in asked:
        # These are set in every process, whatever runs in it.
        if name not in case.uses | {"threads", "seed", "tf32"}:
            ignored.append(name)
    if settings.cuda and "device" not in case.uses:
        ignored += ["device"]
    return BenchFigure(case.name, case.about, case.unit, ignored=ignored)


def _prepared(
    group: Sequence[Case],
    figures: dict[str, BenchFigure],
    make: Callable[[Case], Runner],
    stack: ExitStack,
    steps: _Steps,
) -> dict[str, Runner]:
    """The runners of a group that could be built."""
    ready = {}
    for case in group:
        steps.next(f"{case.name}: building")
        runner = make(case)
        # Before it is built, as in `_Peak`.
        stack.callback(runner.close)
        figure = figures[case.name]
        try:
            facts = runner.prepare()
        except CaseFailedError as error:
            figure.failed = str(error)
            continue
        figure.gflop = facts["gflop"]
        figure.images = facts["images"]
        figure.repeats = facts["repeats"]
        ready[case.name] = runner
    return ready


def _round(
    ready: dict[str, Runner], base: Sequence[_Peak], figures: dict[str, BenchFigure], number: int, steps: _Steps
) -> None:
    """One sample of each case of a group."""
    # A copy, since a case that fails leaves the later rounds.
    for name, runner in list(ready.items()):
        steps.next(f"{name}: round {number + 1}")
        # Just before the case's own sample: other programs on the machine then slow both down alike.
        for peak in base:
            peak.measure(figures[name])
        try:
            figures[name].samples.append(runner.sample())
        except CaseFailedError as error:
            figures[name].failed = str(error)
            del ready[name]
