"""Measure what faceanon costs here: time, memory, FLOPs, and the share of what the machine can do.

  python benchmarks/measure.py                                        all usual cases, on one thread
  python benchmarks/measure.py --list                                 what there is
  python benchmarks/measure.py 'generator*' stage2 --rounds 9         some of them, by name or pattern
  python benchmarks/measure.py --device cuda --precision bf16 --compile
  python benchmarks/measure.py --out notebook/bench --page notebook/bench.md
  python benchmarks/measure.py stage2 --baseline notebook/bench --fail-below 0.9
  python benchmarks/measure.py --read NEW.json --baseline OLD.json    two former runs side by side; measures nothing

Every case runs in a process of its own, so that its memory is its own. A run goes in rounds through four cases at a
time, and right before each sample it measures a large float32 matrix product and a 3 x 3 convolution on as many
threads. The larger of the two is the machine's peak at that moment, and "of peak" and "cost" are relative to it: those
two compare across days and machines, times do not. On the CPU both go by processor time, so that other programs blur
them little.

--out writes one small JSON a run, after each four cases; a folder of them is a history. --baseline compares with one of
them, or with the newest of a folder; --read takes the other side from a JSON too. More in benchmarks/README.md.
Exit code: 0 done, 1 a case could not be measured or is slower than --fail-below allows, 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from faceanon.commands._typed import typed
from faceanon.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.cases import Case
    from bench.record import Run
    from bench.settings import Settings


@dataclass(frozen=True)
class BenchOptions:
    """What is measured, how, and what becomes of the figures.

    Args:
        cases: Names or patterns; none for the usual ones.
        list: Whether the cases are listed and nothing is measured.
        device: Where the cases compute.
        threads: CPU threads.
        precision: `32`, `bf16` or `16`.
        compile: Whether networks go through torch.compile.
        channels_last: Whether pictures and weights are laid out channels last.
        tf32: Whether float32 products on CUDA use TF32.
        rounds: Samples of each case.
        warmup: Calls before the samples.
        together: Cases that take turns.
        read: JSON of a former run, shown instead of measuring.
        out: Folder of runs that this one is added to.
        page: Markdown file to write.
        json: Whether the JSON is printed instead of the table.
        baseline: JSON of a former run to compare with, or a folder with them.
        fail_below: Smallest speed, relative to the baseline, that is no failure.
    """

    cases: Sequence[str]
    list: bool
    device: str
    threads: int
    precision: Literal["32", "bf16", "16"]
    compile: bool
    channels_last: bool
    tf32: bool
    rounds: int
    warmup: int
    together: int
    read: Path | None
    out: Path | None
    page: Path | None
    json: bool
    baseline: Path | None
    fail_below: float | None


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and show; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    try:
        return run(parser.parse_args(words))
    except UserError as error:
        print(f"measure.py: {error}", file=sys.stderr)
        return 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Cases, how they run, and what becomes of the figures."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names or patterns (default: the usual ones)")
    parser.add_argument("--list", action="store_true", help="say which cases there are")
    how = parser.add_argument_group("how")
    how.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    how.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: %(default)s)")
    how.add_argument("--precision", choices=("32", "bf16", "16"), default="32", help="(default: %(default)s)")
    how.add_argument("--compile", action="store_true", help="send networks through torch.compile")
    how.add_argument("--channels-last", action="store_true", help="lay pictures and weights out channels last")
    how.add_argument("--tf32", action="store_true", help="let float32 products on CUDA use TF32")
    how.add_argument("--rounds", type=int, default=5, metavar="N", help="samples of each case (default: %(default)s)")
    warmup = "calls before the samples, in addition to a first one whose FLOPs are counted (default: %(default)s)"
    how.add_argument("--warmup", type=int, default=1, metavar="N", help=warmup)
    how.add_argument("--together", type=int, default=4, metavar="N", help="cases in turns (default: %(default)s)")
    then = parser.add_argument_group("then")
    then.add_argument("--read", type=Path, metavar="FILE", help="show this JSON of a former run, measure nothing")
    then.add_argument("--out", type=Path, metavar="FOLDER", help="add the run to this history, as one JSON")
    then.add_argument("--page", type=Path, metavar="FILE", help="write the table as Markdown")
    then.add_argument("--json", action="store_true", help="print the JSON instead of the table")
    then.add_argument("--baseline", type=Path, metavar="FILE", help="compare with this JSON, or a folder's newest")
    then.add_argument(
        "--fail-below", type=float, metavar="X", help="exit with 1 where a case is less than X times as fast"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and show.

    Raises:
        UserError: No such case or device, wrong numbers, or files that cannot be read or written.
    """
    from bench.cases import choose, shipped
    from bench.record import load

    options = typed(BenchOptions, args)
    _check(options)
    cases = shipped()
    if options.list:
        print(*_listing(cases), sep="\n")
        return 0
    # Before anything is measured: a damaged baseline should not cost minutes.
    former = load(options.baseline) if options.baseline else None
    measured = (
        load(options.read) if options.read else _measured(choose(options.cases, cases), _settings(options), options)
    )
    if options.page:
        # The page names a JSON only where there is one on the disk.
        source = measured.file_name if options.out or options.read else None
        _write_page(options.page, measured, source, former)
    _show(measured, former, options.json)
    return _verdict(measured, former, options.fail_below)


def _check(options: BenchOptions) -> None:
    numbers = (("--rounds", options.rounds, 1), ("--together", options.together, 1), ("--warmup", options.warmup, 0))
    for name, value, least in numbers:
        if value < least:
            raise UserError(f"{name} {value}: give at least {least}")
    if options.read and (options.cases or options.out):
        raise UserError("--read shows a former run: leave out cases and --out")
    if options.fail_below is not None and not options.baseline:
        raise UserError("--fail-below needs --baseline: the JSON of a former run")
    if options.fail_below is not None and options.fail_below <= 0:
        raise UserError(f"--fail-below {options.fail_below}: give a ratio above 0, such as 0.9")


def _listing(cases: Sequence[Case]) -> list[str]:
    """A line a case; * marks the usual ones."""
    width = max(len(case.name) for case in cases)
    lines = []
    for case in cases:
        lines.append(f"{'*' if case.usual else ' '} {case.name:<{width}}  {case.about}")
    return [*lines, "", "* what python benchmarks/measure.py measures when no case is named"]


def _settings(options: BenchOptions) -> Settings:
    """As typed.

    Raises:
        UserError: There is no such device, or a choice does not fit it.
    """
    from bench.settings import Settings
    from faceanon.methods import device

    if not options.device.startswith(("cpu", "cuda")):
        raise UserError(f"--device {options.device}: give cpu or cuda")
    settings = Settings(
        device=options.device,
        threads=options.threads,
        precision=options.precision,
        compile=options.compile,
        channels_last=options.channels_last,
        tf32=options.tf32,
    )
    # Only so that a device that is not there is refused here; each case runs in a process of its own.
    device(options.device)
    return settings


def _measured(cases: Sequence[Case], settings: Settings, options: BenchOptions) -> Run:
    """Measure with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import Progress

    from bench.measure import measure, silent_keep
    from bench.record import write

    keep: Callable[[Run], object] = silent_keep
    # `measure` keeps the run after each group of cases, so that an interrupt loses little.
    if options.out is not None:
        keep = partial(write, folder=options.out)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        return measure(
            cases,
            settings,
            options.rounds,
            options.warmup,
            options.together,
            progress=lambda what, done, of: bar.update(task, description=what, completed=done, total=of),
            keep=keep,
        )


def _write_page(page: Path, found: Run, source: str | None, former: Run | None) -> None:
    from bench.page import markdown
    from faceanon.files import write_atomic

    # A page names the command that made it.
    command = shlex.join(["python", "benchmarks/measure.py", *sys.argv[1:]])
    write_atomic(page, markdown(found, command, source, former).encode())


def _show(found: Run, former: Run | None, as_json: bool) -> None:
    from bench.page import terminal
    from bench.record import dumps

    print(dumps(found).decode(), end="") if as_json else print(terminal(found, former))


def _verdict(found: Run, former: Run | None, below: float | None) -> int:
    """1 where a case failed or became slower than allowed; says so on standard error."""
    from bench.compare import compare, slower

    failed = []
    for one in found.figures:
        if one.failed:
            failed.append(f"{one.name} could not be measured")
    if former is not None and below is not None:
        ratios = compare(found, former)
        if not ratios:
            raise UserError("--fail-below: the baseline shares no measured case with this run; name its cases")
        for ratio in slower(ratios, below):
            failed.append(f"{ratio.name} is {ratio.speed:.2f} times as fast as then")
    for line in failed:
        print(f"measure.py: {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
