"""One photo or a folder of photos through a function, with a progress bar, a summary and named failures."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.pipeline import Outcome, Pipeline

Job = tuple[Path, Path]
MODEL_HELP = (
    "folder of a trained model, or a .ckpt of your own training (default: dbaf_synth64, for procedural faces only: "
    "good for trying faceanon out and for synth64 pictures; train on photographs before you use it on people)"
)


@dataclass
class Tally:
    """What a run has done so far."""

    photos: int = 0
    faces: int = 0
    coarse: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one finished photo."""
        self.photos += 1
        self.faces += outcome.faces
        self.coarse += outcome.coarse

    def report(self, console: Console, verb: str, target: Path) -> None:
        """Name the failures, then sum up in one line."""
        for failure in self.failures:
            console.print(f"skipped: {failure}", markup=False, highlight=False, soft_wrap=True)
        line = f"{verb} {self.faces} face(s) in {self.photos} photo(s) -> {target}"
        if self.coarse:
            line += f"; {self.coarse} smaller than the model's faces, so recovered less exactly"
        if self.failures:
            line += f"; {len(self.failures)} file(s) skipped"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def add_file_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    """Add IN, OUT and how to treat files."""
    parser.add_argument("input", metavar="IN", help=f"{what}, or a folder of them (searched through and through)")
    parser.add_argument("output", metavar="OUT", help="PNG to write, or the folder to mirror IN's tree in, as PNG")
    parser.add_argument("--model", metavar="PATH", help=MODEL_HELP)
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--overwrite", action="store_true", help="replace outputs that exist")
    parser.add_argument(
        "--on-error",
        choices=("skip", "stop"),
        default="skip",
        help="folders: name a bad file and go on, or stop at it (default: skip)",
    )


def plan(source: Path, target: Path, suffixes: frozenset[str], overwrite: bool) -> list[Job]:
    """Which file becomes which, checked before any work is done.

    Raises:
        UserError: If there is nothing to do, or an output exists, is no PNG, or would be written twice.
    """
    if source.is_dir():
        jobs = _plan_folder(source, target, suffixes)
    elif source.is_file():
        jobs = [(source, target / f"{source.stem}.png" if target.is_dir() else target)]
    else:
        raise UserError(f"no such file or folder: {source}")
    _check(jobs, overwrite)
    return jobs


def _plan_folder(source: Path, target: Path, suffixes: frozenset[str]) -> list[Job]:
    if target.is_file():
        raise UserError(f"{source} is a folder but {target} is a file; name a folder to write to")
    if target.resolve().is_relative_to(source.resolve()):
        raise UserError(f"{target} lies in {source}; write to a folder outside, or outputs would be taken for inputs")
    found = sorted(path for path in source.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    if not found:
        raise UserError(f"no pictures in {source} ({', '.join(sorted(suffixes))})")
    return [(path, (target / path.relative_to(source)).with_suffix(".png")) for path in found]


def _check(jobs: Sequence[Job], overwrite: bool) -> None:
    for target, count in Counter(target for _, target in jobs).items():
        if count > 1:
            names = ", ".join(source.name for source, other in jobs if other == target)
            raise UserError(f"{names} would all become {target}; rename all but one")
    for source, target in jobs:
        if target.suffix.lower() != ".png":
            raise UserError(
                f"{target}: the output must end in .png, which keeps pixels exact and carries recovery data"
            )
        if target.exists() and target.samefile(source):
            raise UserError(f"{target} is the input itself; write to another file")
        if target.exists() and not overwrite:
            raise UserError(f"{target} exists; give --overwrite to replace it")


def load_pipeline(model: str | None, device: str) -> Pipeline:
    """The pipeline of `--model` on `--device`.

    Raises:
        UserError: If there is no such model or device.
    """
    import torch

    from faceanon.pipeline import Pipeline
    from faceanon.weights.store import default_model

    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"cannot compute on {device!r}: {str(error).splitlines()[0]}") from error
    return Pipeline.load(default_model() if model is None else model, device=place)


def run_jobs(jobs: Sequence[Job], work: Callable[[Path, Path], Outcome], skip: bool) -> Tally:
    """Do the jobs one after another.

    Args:
        jobs: From `plan`.
        work: Source and target to what was done.
        skip: Note a bad file and go on, instead of raising.

    Raises:
        UserError: At the first bad file unless `skip`, or if no file could be done.
    """
    tally = Tally()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=len(jobs) == 1) as progress:
        task = progress.add_task("photos", total=len(jobs))
        for source, target in jobs:
            try:
                tally.add(work(source, target))
            except UserError as error:
                if not skip:
                    raise
                tally.failures.append(str(error))
            progress.advance(task)
    return tally


def finish(tally: Tally, verb: str, target: Path) -> int:
    """Print the summary; 0 if anything was done, else 2."""
    tally.report(Console(), verb, target)
    return 0 if tally.photos else 2
