"""One photo, or a folder, also by several processes: progress bar, summary, table, and named failures."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from faceanon.commands._files import FileOptions
from faceanon.commands._folder import TABLE_NAME, Plan
from faceanon.commands._secret import PasswordOptions
from faceanon.commands._video import told_to
from faceanon.errors import NoRoomError, UserError

if TYPE_CHECKING:
    from faceanon.pipeline.many.folder import FilmOutcome, FolderPlan, FolderRun, MakeFilm, MakeTask
    from faceanon.pipeline.photo import Pipeline
    from faceanon.pipeline.steps import Outcome
    from faceanon.sealed.openers import Openers

LEFT_OUT = 3  # exit code
DEVICES = ("cpu", "cuda")  # of which several processes can each have one


@dataclass
class Tally:
    """What a run has done so far."""

    photos: int = 0
    faces: int = 0
    coarse: int = 0
    hidden: int = 0
    left: int = 0
    redetected: int = 0
    kept: int = 0
    people: int = 0
    before: int = 0
    films: int = 0
    film_faces: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unmet: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one finished photo, its faces and its notes."""
        self.photos += 1
        for name in ("faces", "coarse", "hidden", "left", "redetected", "kept"):
            setattr(self, name, getattr(self, name) + int(getattr(outcome, name)))
        for note in outcome.photo.notes:
            self.notes.append(f"{outcome.photo.name}: {note}")

    def add_film(self, outcome: FilmOutcome) -> None:
        """Count one finished film, its faces and its notes."""
        self.films += 1
        self.film_faces += outcome.faces
        for note in outcome.notes:
            self.notes.append(f"{outcome.source}: {note}")

    def __add__(self, other: Tally) -> Tally:
        """What two processes have done; `before` is common to both, and unmet is who neither has met."""
        added = {}
        for item in fields(self):
            added[item.name] = getattr(self, item.name) + getattr(other, item.name)
        unmet = []
        for name in self.unmet:
            if name in other.unmet:
                unmet.append(name)
        return Tally(**added | {"before": self.before, "unmet": unmet})

    def look_back(self, pipeline: Pipeline) -> None:
        """Remember which of the persons in `--select` and `--exclude` nobody was like."""
        self.unmet = [] if pipeline.people is None else pipeline.people.unmet()

    def report(self, console: Console, verb: str, target: Path, hidden: int = 0) -> None:
        """Name the failures, then sum up in one line; `hidden` files were passed over."""
        which = "done this time" if self.before else "of this run"
        notes = list(self.notes)
        for name in self.unmet:
            notes.append(f"nobody in the photos {which} is like {name}")
        lines = []
        for note in notes:
            lines.append(f"note: {note}")
        for name in self.failures:
            lines.append(f"skipped: {name}")
        for line in lines:
            console.print(_printable(line), markup=False, highlight=False, soft_wrap=True)
        films = f" and {self.film_faces} in {self.films} film(s)" if self.films else ""
        parts = [f"{verb} {self.faces} face(s) in {self.photos} photo(s){films} -> {target}"]
        # With a vault nothing is gone: recover --exact brings hidden faces back as well.
        how = "otherwise" if self.kept else "for good instead"
        counted = (
            (self.coarse, "smaller than the model's faces, so recovered less exactly"),
            (self.hidden, f"hidden {how}, too small or unfit for the model"),
            (self.kept, "photo(s) with their original faces in a vault"),
            (self.left, "left readable, as asked"),
            (self.people, "person(s) met in several photos, each of them one stranger"),
            (self.redetected, "photo(s) without recovery data: faces detected again, recovered less exactly"),
            (self.before, "file(s) were done before"),
            (len(self.failures), "file(s) skipped, exit code 3"),
            (hidden, "hidden or system file(s) not looked at"),
        )
        for count, what in counted:
            if count:
                parts.append(f"{count} {what}")
        console.print(_printable("; ".join(parts)), markup=False, highlight=False, soft_wrap=True)


class _Rate(ProgressColumn):
    """Column of the progress bar: photos done in a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s")


def _printable(line: str) -> str:
    """File names need not be valid text."""
    return line.encode("utf-8", "backslashreplace").decode()


def quiet_pictures() -> None:
    """Let no library print about odd files; what matters is in our own lines."""
    warnings.filterwarnings("ignore", module=r"PIL\.")


def check_shares(files: FileOptions, password: PasswordOptions | None, folder: bool) -> None:
    """Refuse what cannot be shared, before anything is started.

    Raises:
        UserError: If a number is below one, or one photo, a single device, or a password from the terminal is to be
            shared.
    """
    for option, value in (("--devices", files.devices), ("--nodes", files.nodes)):
        if not 1 <= value <= 1024:
            raise UserError(f"{option} must be 1 to 1024, not {value}")
    if not files.shared:
        return
    if not folder:
        raise UserError("--devices and --nodes share a folder; this is one file")
    if files.device not in DEVICES:
        raise UserError(
            f"--devices and --nodes give out the devices themselves: --device cpu or cuda, not {files.device}"
        )
    if password is not None and password.asks:
        raise UserError(
            "several processes cannot ask for a password; set FACEANON_PASSWORD, or give --password-env NAME or "
            "--password-file FILE"
        )
    if password is not None and password.pipe:
        raise UserError(
            "several processes cannot read the password from one pipe; set FACEANON_PASSWORD, or let --password-file "
            "name a file on the disk"
        )


def prepare_folder(
    files: FileOptions, password: PasswordOptions | None, whole: Plan, settings: Mapping[str, Any]
) -> FolderPlan | None:
    """Check the arguments of a run over a folder, before a password is asked for; None where IN is one photo.

    Raises:
        UserError: If there are too few workers, or the folder holds what must not be replaced, or films alone for
            several processes.
    """
    from faceanon.pipeline.many.folder import plan_folder

    folder = files.source.is_dir()
    check_shares(files, password, folder)
    if files.workers is not None and not 1 <= files.workers <= 256:
        raise UserError(f"--workers must be 1 to 256, not {files.workers}")
    if not folder:
        if files.csv is not None:
            raise UserError("--csv is for folders; anonymize --list-faces shows the faces of one photo")
        return None
    # Else it would show when all photos are done.
    if files.csv is not None and Path(files.csv).is_dir():
        raise UserError(f"--csv {files.csv} is a folder; name a file in it")
    if files.shared:
        whole.leave_films("films are not shared; give the command again without --devices and --nodes")
        whole.check_work(files.source)
    return plan_folder(files.source, files.target, whole.jobs, settings, files.overwrite, whole.films)


def run_jobs(
    files: FileOptions,
    whole: Plan,
    folder: FolderPlan | None,
    pipeline: Pipeline,
    openers: Openers,
    make: MakeTask,
    film: MakeFilm,
    verb: str,
) -> int:
    """Do one photo, or a folder of photos and films, and say what was done.

    Args:
        files: What was typed.
        whole: Which file becomes which.
        folder: The run, as `prepare_folder` gives it.
        pipeline: The model.
        openers: For whom, or with what.
        make: Makes the task of a photo; salt and cost are those of `openers` where they are None.
        film: Does a film.
        verb: What is done, in the past tense.

    Returns:
        0 if all was done, 3 if something was left out, 2 if nothing was done.

    Raises:
        UserError: If the photo, or the run, cannot be done.
    """
    from faceanon.pipeline.tasks import run_task

    if folder is not None:
        return _run_folder(files, whole, folder, pipeline, openers, make, film, verb)
    tally = Tally()
    tally.notes = [*whole.notes]
    # A single photo draws a salt of its own; only a folder has one to share.
    tally.add(run_task(make(*whole.jobs[0], None, None)))
    tally.look_back(pipeline)
    tally.report(Console(), verb, whole.jobs[0][1])
    return 0


def _run_folder(
    files: FileOptions,
    whole: Plan,
    plan: FolderPlan,
    pipeline: Pipeline,
    openers: Openers,
    make: MakeTask,
    film: MakeFilm,
    verb: str,
) -> int:
    """Do what is left of a run; see `run_jobs`.

    Raises:
        UserError: If the run cannot be resumed, or at the first bad file with `--on-error stop`.
    """
    from faceanon.pipeline.many.engine import usual_workers
    from faceanon.pipeline.many.folder import FolderRun

    run = FolderRun(plan, pipeline, openers, make, files.workers or usual_workers(), film)
    tally = Tally(before=run.before)
    stop = files.on_error == "stop"
    if files.shared:
        shared = _share(files, run, tally, stop)
        if shared is None:
            return 0  # another process reports
        tally = shared
    full = False
    try:
        if not files.shared:
            _work(run, tally, stop)
            tally.look_back(pipeline)
        # The processes hand failures over as lines. The first one stands for the run, as it would in one process.
        elif stop and tally.failures:
            raise UserError(tally.failures[0])
    except NoRoomError:
        # The table would find no room either, and its error would hide this one.
        full = True
        raise
    finally:
        # In `finally`: a run that stops at a bad file, or by Ctrl+C, leaves the table of what it has done too.
        if not full and (run.anything_done or files.csv):
            _write_table(run, whole, Path(files.csv) if files.csv else plan.target / TABLE_NAME)
    tally.people = run.people
    tally.notes = [*whole.notes, *tally.notes]
    for path, why in whole.left.items():
        tally.failures.append(f"{path}: {why}")
    tally.report(Console(), verb, plan.target, whole.hidden)
    if not (tally.photos or tally.films or tally.before):
        return 2
    return LEFT_OUT if tally.failures else 0


def _share(files: FileOptions, run: FolderRun, own: Tally, stop: bool) -> Tally | None:
    """Do a run with several processes.

    Args:
        files: How many processes there are.
        run: The run.
        own: Counts what this process does; nothing but what was done before stands in it yet.
        stop: Whether each process stops at its first bad file.

    Returns:
        What all processes have done; None in all but the first, which is the one that reports.

    Raises:
        UserError: If the run cannot be resumed, or there are too few devices.
    """
    from faceanon.pipeline.many.processes import folder_trainer, is_first, run_shares

    def report(result: Outcome | UserError) -> bool:
        if isinstance(result, UserError):
            own.failures.append(str(result))
            return not stop
        own.add(result)
        return True

    def summary() -> Tally:
        own.look_back(run.pipeline)
        return own

    trainer = folder_trainer(files.devices, files.nodes, files.device)
    # Every process comes by here; one of them speaks for all.
    if is_first(trainer):
        print(f"{len(run.todo)} photo(s) for {files.devices * files.nodes} processes", file=sys.stderr)
    summaries = run_shares(trainer, run, report, summary)
    if not summaries:
        return None
    whole: Tally = reduce(add, summaries)
    return whole


def _work(run: FolderRun, tally: Tally, stop: bool) -> None:
    from faceanon.pipeline.steps import Outcome

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn()
    # On standard error, so that a pipe gets the summary alone.
    console = Console(stderr=True)
    # A bar that nobody watches leaves an empty line behind.
    few = len(run.todo) < 2 and not run.films
    hidden = few or not console.is_terminal
    with (
        Progress(*columns, console=console, transient=True, disable=hidden) as progress,
        # Closed also where the loop ends early: then the threads stop, and the journal is closed.
        closing(run.results()) as results,
    ):

        def watch(photos: int) -> Callable[[], object]:
            looked_at = progress.add_task("who is who", total=photos)
            return lambda: progress.advance(looked_at)

        run.watch = watch
        run.told = lambda name: told_to(progress, name)
        files = len(run.plan.jobs) + len(run.plan.films)
        task = progress.add_task("files", total=files, completed=tally.before)
        for _, result in results:
            if isinstance(result, UserError):
                if stop:
                    raise result
                tally.failures.append(str(result))
            elif isinstance(result, Outcome):
                tally.add(result)
            else:
                tally.add_film(result)
            progress.advance(task)


def _write_table(run: FolderRun, whole: Plan, path: Path) -> None:
    from faceanon.pipeline.many.table import write_table

    lines = dict(run.lines)
    sources = list(whole.left)
    for source, why in whole.left.items():
        name = run.plan.name(source)
        lines[name] = {"event": "failed", "source": name, "error": why}
    for source, _ in (*run.plan.jobs, *run.plan.films):
        sources.append(source)
    # Results came as threads finished; the table keeps the folder's order.
    rows = []
    for source in sorted(sources):
        name = run.plan.name(source)
        if name in lines:
            rows.append(lines[name])
    write_table(path, rows)
