"""What a GPU makes of a training: stage 2 against the released pattern, a profile, and every method on real faces.

  python benchmarks/gpu_report.py --root FOLDER --bundle runs/testbed128 --size 128 --minutes 5   # everything
  python benchmarks/gpu_report.py --only speed profile                                            # no faces needed
  python benchmarks/gpu_report.py --rehearse --out runs/gpu_rehearsal   # tiny, on a CPU, in a minute or two

speed: DBAF's stage 2 at 256 px, random networks of the public size: images per second, memory, share of the bf16 peak;
  the released pattern in float32, then ours in float32, in bf16, with fused optimizer and layout, compiled, with graphs
profile: the largest remaining costs of one compiled step
train: the bundle's prior, then every trained method, each stage for --minutes, and its test (gpu_trainings.py)

Writes report.json and report.md into --out, behind each group of cases and each part, so that a run which is cut short
leaves what it measured. Models and sheets, which may show persons, stay in --work.
Exit code: 0 done, 1 a case or a method failed (the report says why), 2 wrong usage, or no GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bench import gpu
from bench.measure import measure
from bench.record import BF16_PEAK, Run
from bench.settings import Settings
from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.report.board import pipe
from faceanon.results import run_meta, to_json

PARTS = ("speed", "profile", "train")
COMPILED = ("-fast", "-graphs")  # ends of names of cases that compile first
TOP = 3


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("notebook/gpu"), help="folder of the report")
    parser.add_argument("--work", type=Path, default=Path("runs/gpu_report"), help="folder of models and sheets")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts (default: all)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, nargs="+", default=list(gpu.SIZES[256]), help="batches of the speed cases")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each case, in turns")
    parser.add_argument(
        "--one-process", action="store_true", help="all cases in this process: sooner, but memory is not told apart"
    )
    parser.add_argument("--root", nargs="+", help="folders of aligned faces, one folder a person in them")
    parser.add_argument("--bundle", type=Path, help="bundle of that size; its prior is trained where missing")
    parser.add_argument("--size", type=int, default=128, help="side of the faces of the trainings, in px")
    parser.add_argument("--minutes", type=float, default=5.0, help="of each stage of each training")
    parser.add_argument("--train-batch", type=int, default=32, help="faces in a batch of the trainings")
    parser.add_argument("--methods", nargs="+", help="presets to train (default: all that are trained)")
    parser.add_argument("--rehearse", action="store_true", help="everything, tiny, on the CPU; figures mean nothing")
    return parser


def speed(args: argparse.Namespace, settings: Settings, size: int) -> Iterator[Run]:
    """All ways beside each other: what was measured so far, behind every group of cases.

    Ways that compile are groups of their own. Compiling may take longer than a machine is lent.
    """
    of_size = {case.name: case for case in gpu.CASES}
    groups = []
    for batch in args.batch:
        names = [gpu.case_name(size, batch, way) for way in ["reference", *_ways(args.rehearse)]]
        if any(name not in of_size for name in names):
            raise UserError(f"--batch {args.batch}: at {size} px give some of {gpu.SIZES[size]}")
        together = [name for name in names if not name.endswith(COMPILED)]
        groups.append([of_size[name] for name in together])
        for name in names:
            if name not in together:
                groups.append([of_size[name]])
    so_far = Run(settings, [], args.rounds)
    apart = not (args.rehearse or args.one_process)
    for group in groups:
        run = measure(group, settings, args.rounds, together=len(group), apart=apart, progress=_tell)
        so_far.machine = run.machine
        so_far.figures += run.figures
        yield so_far


def _ways(rehearse: bool) -> list[str]:
    return ["fp32", "fast"] if rehearse else [way.name for way in gpu.ways()]


def _tell(what: str, done: int, of: int) -> None:
    print(f"[gpu] {done}/{of} {what}", flush=True)


def speed_table(run: Run) -> list[str]:
    """Images per second, and how many times as many as the released pattern of the same batch."""
    found = {one.name: one.summary() for one in run.figures}
    head = ["case", "images/s", "times the reference", "memory, MB", "of the bf16 peak"]
    lines = [pipe(head), pipe(["---"] * len(head))]
    for one in run.figures:
        rate, base = found[one.name]["per_second"], found.get(f"{one.name.rpartition('-')[0]}-reference", {})
        times = rate / other if rate and (other := base.get("per_second")) else None
        share = one.fraction("wall", [BF16_PEAK])
        memory = found[one.name]["memory_mb"]
        cells = [_cell(rate, ".3g"), _cell(times, ".2f"), _cell(memory, ".0f"), _cell(share, ".3f")]
        lines.append(pipe([one.name, *([f"failed: {one.failed}", "", "", ""] if one.failed else cells)]))
    return lines


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def profile_lines(costs: list[gpu.Cost]) -> list[str]:
    """The three largest."""
    head = ["work", "share of the step", "ms", "calls"]
    rows = [
        [f"`{one.name[:90]}`", f"{one.share:.2f}", f"{one.milliseconds:.2f}", str(one.calls)] for one in costs[:TOP]
    ]
    return [pipe(row) for row in [head, ["---"] * len(head), *rows]]


def report(args: argparse.Namespace, settings: Settings, size: int) -> bool:
    """Measure and train what was asked for, and write the report anew behind each part; whether all went well."""
    content: dict[str, Any] = {"schema": 1, "rehearsal": args.rehearse, "meta": run_meta()}
    lines = [_head(args, settings)]
    good = True
    if "speed" in args.only:
        title = ["", f"## Stage 2, {size} px", ""]
        table: list[str] = []
        for run in speed(args, settings, size):
            figures = [{**asdict(one), "summary": one.summary()} for one in run.figures]
            content["speed"] = {"machine": run.machine, "figures": figures}
            table = speed_table(run)
            write(args.out, content, [*lines, *title, *table])
            good = not any(one.failed for one in run.figures)
        lines += [*title, *table]
    if "profile" in args.only:
        way = next(way for way in gpu.ways() if way.name == "fast")
        costs = gpu.profile(settings, size, args.batch[-1], way)
        content["profile"] = [asdict(one) for one in costs[:20]]
        lines += ["", f"## The largest costs of one step, batch {args.batch[-1]}", "", *profile_lines(costs)]
        write(args.out, content, lines)
    if "train" in args.only:
        from gpu_trainings import train_all

        rows, table, fine = train_all(args)
        content["trainings"] = rows
        lines += ["", f"## Every trained method, {args.size} px, {args.minutes:g} minutes a stage", "", *table]
        good &= fine
    write(args.out, content, lines)
    return good


def write(folder: Path, content: dict[str, Any], lines: list[str]) -> None:
    """The report as it is so far."""
    write_atomic(folder / "report.json", to_json(content))
    write_atomic(folder / "report.md", ("\n".join(lines) + "\n").encode())


def _head(args: argparse.Namespace, settings: Settings) -> str:
    device = torch.cuda.get_device_name(settings.device) if settings.cuda else "CPU"
    meta = run_meta()
    commit = str(meta["commit"])[:7]
    command = f"`{meta['command']}`, commit {commit} or a later one, torch {meta['torch']}, on {device}."
    return f"# GPU report\n\n{'**A rehearsal: the figures mean nothing.** ' if args.rehearse else ''}{command}"


def checked(args: argparse.Namespace) -> Settings:
    """The device.

    Raises:
        UserError: There is no GPU, or faces or bundle for the trainings are not named.
    """
    if args.rehearse:
        from gpu_trainings import rehearsal

        args.batch, args.rounds = list(gpu.SIZES[64]), 1
        rehearsal(args)
        return Settings(threads=torch.get_num_threads())
    if not torch.cuda.is_available():
        raise UserError("no GPU here: run this on a machine with one, or give --rehearse to try the script on a CPU")
    if "train" in args.only and not (args.root and args.bundle):
        raise UserError("the trainings need --root FOLDER... and --bundle FOLDER; or give --only speed profile")
    return Settings(device=args.device, threads=torch.get_num_threads(), tf32=False)


def main(words: list[str] | None = None) -> int:
    """Measure, train, write."""
    args = arguments().parse_args(words)
    try:
        settings = checked(args)
        good = report(args, settings, 64 if args.rehearse else 256)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"[gpu] done; the report is {args.out / 'report.md'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    raise SystemExit(main())
