"""Measure what faceanon costs here: time, memory, FLOPs, and the share of what the machine can do.

  faceanon bench                                        all usual cases, on one thread
  faceanon bench --list                                 what there is
  faceanon bench 'generator*' stage2 --rounds 9         some of them, by name or pattern
  faceanon bench --device cuda --precision bf16 --compile
  faceanon bench --out docs/results/bench --page docs/results/bench.md
  faceanon bench stage2 --baseline docs/results/bench --fail-below 0.9
  faceanon bench --read NEW.json --baseline OLD.json    two former runs side by side; measures nothing

Every case runs in a process of its own, so that its memory is its own. A run goes in rounds through four cases at a
time, and right before each sample it measures a large float32 matrix product and a 3 x 3 convolution on as many
threads. The larger of the two is the machine's peak at that moment, and "of peak" and "cost" are relative to it: those
two compare across days and machines, times do not. On the CPU both go by processor time, so that other programs blur
them little.

--out writes one small JSON a run, after each four cases; a folder of them is a history. --baseline compares with one of
them, or with the newest of a folder; --read takes the other side from a JSON too. More in docs/reference/bench.md.
Exit code: 0 done, 1 a case could not be measured or is slower than --fail-below allows, 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faceanon.studies.bench.cases import Case
    from faceanon.studies.bench.record import Run
    from faceanon.studies.bench.settings import Settings


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
    warmup = "calls before the samples, beside a first one whose FLOPs are counted (default: %(default)s)"
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
    from faceanon.studies.bench.cases import choose, shipped
    from faceanon.studies.bench.record import load

    _check(args)
    cases = shipped()
    if args.list:
        print(*_listing(cases), sep="\n")
        return 0
    former = load(args.baseline) if args.baseline else None
    found = load(args.read) if args.read else _measured(choose(args.cases, cases), _settings(args), args)
    if args.page:
        _write_page(args.page, found, found.file_name if args.out or args.read else None, former)
    _show(found, former, args.json)
    return _verdict(found, former, args.fail_below)


def _check(args: argparse.Namespace) -> None:
    for name, least in (("rounds", 1), ("together", 1), ("warmup", 0)):
        if getattr(args, name) < least:
            raise UserError(f"--{name} {getattr(args, name)}: give at least {least}")
    if args.read and (args.cases or args.out):
        raise UserError("--read shows a former run: leave out cases and --out")
    if args.fail_below is not None and not args.baseline:
        raise UserError("--fail-below needs --baseline: the JSON of a former run")
    if args.fail_below is not None and args.fail_below <= 0:
        raise UserError(f"--fail-below {args.fail_below}: give a ratio above 0, such as 0.9")


def _listing(cases: Sequence[Case]) -> list[str]:
    """A line a case; * marks the usual ones."""
    width = max(len(case.name) for case in cases)
    lines = [f"{'*' if case.usual else ' '} {case.name:<{width}}  {case.about}" for case in cases]
    return [*lines, "", "* what faceanon bench measures when no case is named"]


def _settings(args: argparse.Namespace) -> Settings:
    """As typed.

    Raises:
        UserError: There is no such device, or a choice does not fit it.
    """
    from faceanon.methods import device
    from faceanon.studies.bench.settings import Settings

    if not args.device.startswith(("cpu", "cuda")):
        raise UserError(f"--device {args.device}: give cpu or cuda")
    settings = Settings(
        device=args.device,
        threads=args.threads,
        precision=args.precision,
        compile=args.compile,
        channels_last=args.channels_last,
        tf32=args.tf32,
    )
    device(args.device)
    return settings


def _measured(cases: Sequence[Case], settings: Settings, args: argparse.Namespace) -> Run:
    """Measure with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import Progress

    from faceanon.studies.bench.measure import measure, silent_keep
    from faceanon.studies.bench.record import write

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        return measure(
            cases,
            settings,
            args.rounds,
            args.warmup,
            args.together,
            progress=lambda what, done, of: bar.update(task, description=what, completed=done, total=of),
            keep=silent_keep if args.out is None else lambda run: write(run, args.out),
        )


def _write_page(page: Path, found: Run, source: str | None, former: Run | None) -> None:
    from faceanon.files import write_atomic
    from faceanon.studies.bench.page import markdown

    command = shlex.join(["faceanon", *sys.argv[1:]]) if sys.argv[1:2] == ["bench"] else "faceanon bench"
    try:
        write_atomic(page, markdown(found, command, source, former).encode())
    except OSError as error:
        raise UserError(f"cannot write {page} ({error.strerror}); give another --page") from error


def _show(found: Run, former: Run | None, as_json: bool) -> None:
    from faceanon.studies.bench.page import terminal
    from faceanon.studies.bench.record import dumps

    print(dumps(found).decode(), end="") if as_json else print(terminal(found, former))


def _verdict(found: Run, former: Run | None, below: float | None) -> int:
    """1 where a case failed or became slower than allowed; says so on standard error."""
    from faceanon.studies.bench.compare import compare, slower

    failed = [f"{one.name} could not be measured" for one in found.figures if one.failed]
    if former is not None and below is not None:
        ratios = compare(found, former)
        if not ratios:
            raise UserError("--fail-below: the baseline shares no measured case with this run; name its cases")
        failed += [f"{one.name} is {one.speed:.2f} times as fast as then" for one in slower(ratios, below)]
    for line in failed:
        print(f"faceanon bench: {line}", file=sys.stderr)
    return 1 if failed else 0
