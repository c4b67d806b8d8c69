"""A run over a folder that can be killed at any moment and resumed.

A photo is written atomically, and noted in the journal when it is there. The same command again skips what is
noted and does the rest under the salt of the first time, so a person stays the same stranger throughout. Films come
after the photos, one after another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from faceanon.errors import NoRoomError, UserError
from faceanon.files import clear_unfinished
from faceanon.key import KdfParameters, Password, Secret
from faceanon.landmarks.album import Album
from faceanon.lock import Lock
from faceanon.photo.decode import decode_bytes
from faceanon.photo.file import load_photo
from faceanon.photo.manifests import manifest_of
from faceanon.photo.metadata import check_beside, encode, sidecar_of, vault_of
from faceanon.pipeline.many.engine import run_tasks
from faceanon.pipeline.many.journal import JOURNAL_NAME, History, Journal, read_run
from faceanon.pipeline.many.meeting import casting, meet
from faceanon.pipeline.many.sealed_album import opened_album, sealed_album
from faceanon.pipeline.steps import Outcome, Steps
from faceanon.pipeline.tasks import Task
from faceanon.sealed.envelope import WrongPasswordError
from faceanon.sealed.openers import Openers, openers

if TYPE_CHECKING:
    from faceanon.photo.policy import Face
    from faceanon.pipeline.photo import Pipeline

Job = tuple[Path, Path]
MakeTask = Callable[[Path, Path, bytes | None, KdfParameters | None], Task]
FULL = "float32"  # where a backbone or a journal says nothing of its precision


@dataclass(frozen=True)
class FilmOutcome:
    """What was done to a film.

    Args:
        source: The film.
        faces: How many were followed through it.
        frames: Number of frames.
        notes: What else there is to say.
    """

    source: Path
    faces: int
    frames: int
    notes: tuple[str, ...] = ()


Result = Outcome | FilmOutcome | UserError
Told = Callable[[str, int, int], None]  # what is being done, frames done, frames in all
MakeFilm = Callable[[Path, Path, Openers, Told], FilmOutcome]


@dataclass
class FolderPlan:
    """A run that was checked and has not begun.

    Args:
        source: Folder of the originals.
        target: Folder of the results.
        jobs: Which file becomes which.
        settings: What decides the results; a run is resumed under the same ones only.
        history: What an earlier run did, or None.
        whole: Good bytes of its journal.
        films: Which film becomes which.
    """

    source: Path
    target: Path
    jobs: Sequence[Job]
    settings: dict[str, Any]
    history: History | None = None
    whole: int = 0
    films: Sequence[Job] = ()

    def name(self, path: Path) -> str:
        """What the journal calls a source."""
        return path.relative_to(self.source).as_posix()

    def finished(self, job: Job) -> bool:
        """Whether an earlier run has done this, and both files are as it left them."""
        source, target = job
        return (
            self.history is not None
            and target.is_file()
            and self.history.finished(self.name(source), fingerprint(source))
        )


def fingerprint(path: Path) -> str:
    """Changes when the file does; tells nothing of its size or time by itself."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:16]


def plan_folder(
    source: Path,
    target: Path,
    jobs: Sequence[Job],
    settings: Mapping[str, Any],
    overwrite: bool,
    films: Sequence[Job] = (),
) -> FolderPlan:
    """Check a run against what is in the target folder already.

    Raises:
        UserError: If there is a run with other settings, or an output exists that no run of ours wrote.
    """
    if overwrite:
        history = None
        whole = 0
    else:
        history, whole = read_run(target / JOURNAL_NAME)
    plan = FolderPlan(source, target, jobs, dict(settings), history, whole, films)
    if history is not None:
        _check_settings(history.head.get("settings"), plan.settings, target)
    ours = set() if history is None else history.begun
    for _, output in (*jobs, *films):
        if not overwrite and output.relative_to(target).as_posix() not in ours:
            if output.exists():
                raise UserError(f"{output} exists; give --overwrite to replace it")
            check_beside(output)
    return plan


def _check_settings(theirs: object, ours: Mapping[str, Any], target: Path) -> None:
    if not isinstance(theirs, dict):
        raise UserError(f"{target / JOURNAL_NAME} is damaged; give --overwrite to start again")
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            was = f"{name} {theirs.get(name)!s:.60}, not {ours.get(name)!s:.60}"
            raise UserError(f"{target} holds a run with {was}; give the same again, or --overwrite to start anew")


@dataclass
class FolderRun:
    """A run under way; `results` does it.

    Args:
        plan: What is to be done.
        pipeline: The model.
        password: Of the run; its salt is used if the run is new. Or recipients, or an identity.
        make: Makes a task from source, target, salt and cost of the derivation.
        workers: Threads beside the backbone.
        film: Does a film under a password of the run's salt, or for the run's recipients; None where there are none
            to be done.
        told: Gives, for the name of a film, what is told how far it is.
        watch: With `same_stranger` in the settings: is told how many photos are looked at before any is changed, and
            gives what to call after each.
    """

    plan: FolderPlan
    pipeline: Pipeline
    password: Password | Openers = field(repr=False)
    make: MakeTask
    workers: int
    film: MakeFilm | None = None
    told: Callable[[str], Told] = lambda name: lambda stage, done, total: None
    watch: Callable[[int], Callable[[], object]] = lambda photos: lambda: None
    lines: dict[str, dict[str, Any]] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict, init=False)
    people: int = field(default=0, init=False)  # in the album
    openers: Openers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.openers = openers(self.password)
        history = self.plan.history
        precision = str(getattr(self.pipeline.backbone, "precision", FULL))
        own = {
            "weights": self.pipeline.weights,
            "precision": precision,
            "salt": self.openers.salt.hex(),
            "kdf": self.openers.kdf.to_dict(),
        }
        self.adopt({"settings": self.plan.settings, **own} if history is None else history.head)
        if not self.pipeline.made(str(self.head.get("weights"))):
            raise UserError(f"{self.plan.target} holds a run of another model; give that one, or --overwrite")
        if (before := self.head.get("precision", FULL)) != precision:
            was = f"{before!s:.60}, not {precision}"
            raise UserError(f"{self.plan.target} holds a run of the model in {was}; give that one, or --overwrite")
        self.todo = self._left(self.plan.jobs)
        self.films = self._left(self.plan.films)
        self.lines.update({} if history is None else history.last)

    @property
    def before(self) -> int:
        """How many photos and films an earlier run has done."""
        return len(self.plan.jobs) + len(self.plan.films) - len(self.todo) - len(self.films)

    def _left(self, jobs: Sequence[Job]) -> list[Job]:
        """Those that no earlier run has done."""
        left = []
        for job in jobs:
            if not self.plan.finished(job):
                left.append(job)
        return left

    def results(self) -> Generator[tuple[Path, Result], None, None]:
        """Do what is left; every finished photo or film is in the journal before it is yielded.

        Raises:
            UserError: If the run is resumed under another password, or the journal or a photo cannot be written for
                lack of room.
        """
        with self.open() as journal:
            try:
                for task, result in self.work(journal, self.todo):
                    yield task.source, result
                yield from self._work_films(journal)
            finally:
                # A journal without a finished photo would only bind the next run to these settings.
                if not self.anything_done:
                    journal.discard()
                self.use(None)

    def open(self) -> Journal:
        """The journal, for this run alone; what a kill left is cleared away.

        Raises:
            UserError: If the run is resumed under another password, or the journal cannot be written.
        """
        if self.todo:
            # First: the photo that is done again to check the password follows the album too.
            self.use(self._known())
        if self.before and (self.todo or self.films):
            self._check_password()
        whole = None
        if self.plan.history is not None:
            whole = self.plan.whole
        journal = Journal(self.plan.target / JOURNAL_NAME, self.head, whole)
        try:
            self.lines |= journal.take_parts(self.head if whole else None)
            self._clean()
            self._meet(journal)
        except BaseException:
            journal.close()
            raise
        return journal

    def work(self, journal: Journal, jobs: Sequence[Job]) -> Generator[tuple[Task, Outcome | UserError], None, None]:
        """Do some of the photos; every finished one is in `journal` before it is yielded.

        Raises:
            NoRoomError: At the first photo for which the disk has no room. It is not noted as failed: nothing is wrong
                with it, and all that come after it would be lost in the same way.
        """
        if not jobs:
            return
        rows = min(self.pipeline.batch, len(self.plan.jobs))  # of all, so that a share's results are those of the whole
        # One by one: the engine takes a task when there is room for its photo.
        tasks = (_Noted(self._task(job), self, journal) for job in jobs)
        # Closed at once, so that after an error no thread goes on with photos that nobody waits for.
        with closing(run_tasks(self.pipeline, tasks, self.workers, rows)) as finished:
            for task, result in finished:
                if isinstance(result, NoRoomError):
                    raise NoRoomError(f"{result}; the same command then does what is left") from result
                if isinstance(result, UserError):
                    name = self.plan.name(task.source)
                    self.note(journal, {"event": "failed", "source": name, "error": str(result)})
                yield task, result

    def _work_films(self, journal: Journal) -> Iterator[tuple[Path, Result]]:
        """Do the films that are left.

        Raises:
            NoRoomError: As `work`.
        """
        for source, target in self.films:
            result: Result
            try:
                result = self._film(journal, source, target)
            except NoRoomError as error:
                raise NoRoomError(f"{error}; the same command then does what is left") from error
            except UserError as error:
                result = error
                self.note(journal, {"event": "failed", "source": self.plan.name(source), "error": str(error)})
            yield source, result

    def _film(self, journal: Journal, source: Path, target: Path) -> FilmOutcome:
        assert self.film is not None
        stamp = fingerprint(source)
        name = target.relative_to(self.plan.target).as_posix()
        own = self.openers.of_run(self.salt, self.kdf)
        # As for photos: a kill leaves no file that the journal does not know.
        journal.write({"event": "begin", "target": name}, durable=True)
        outcome = self.film(source, target, own, self.told(source.name))
        line = {"event": "done", "source": self.plan.name(source), "target": name, "stamp": stamp, "faces": []}
        done = f"{outcome.faces} face(s) in {outcome.frames} frame(s)"
        self.note(journal, {**line, "by_model": outcome.faces, "hidden": 0, "film": done, "notes": [*outcome.notes]})
        return outcome

    def adopt(self, head: dict[str, Any]) -> None:
        """Take salt and cost from another process of the same run.

        Raises:
            UserError: If the head is damaged.
        """
        self.head = head
        try:
            self.salt = bytes.fromhex(head["salt"])
            self.kdf = KdfParameters.from_dict(head["kdf"])
        except (KeyError, TypeError, ValueError) as error:
            line = f"{self.plan.target / JOURNAL_NAME} is damaged; give --overwrite to start again"
            raise UserError(line) from error

    @property
    def anything_done(self) -> bool:
        """Whether this run or an earlier one has done a photo."""
        return any(line["event"] == "done" for line in self.lines.values())

    def note(self, journal: Journal, line: dict[str, Any]) -> None:
        """Remember how a photo ended."""
        journal.write(line)
        self.lines[line["source"]] = line

    @property
    def same_stranger(self) -> bool:
        """Whether a person is to become one stranger in all photos."""
        return bool(self.plan.settings.get("same_stranger"))

    @property
    def album(self) -> Album | None:
        """Who becomes whom; None where each photo decides for itself."""
        return casting(self.pipeline).album if self.same_stranger else None

    def use(self, album: Album | None) -> None:
        """Have the model follow an album, or none."""
        if self.same_stranger:
            casting(self.pipeline).album = album
        if album is not None:
            self.people = len(album)

    def _known(self) -> Album | None:
        """The album of an earlier run.

        Raises:
            UserError: If the password is another.
        """
        history = self.plan.history
        if history is None or history.album is None:
            return None
        path = self.plan.target / JOURNAL_NAME
        try:
            return opened_album(history.album["sealed"], self._secret(), str(self.head["weights"]), str(path))
        except WrongPasswordError:
            raise UserError(
                f"{self.plan.target} was begun with another password; give that one, or --overwrite to start anew"
            ) from None

    def _meet(self, journal: Journal) -> None:
        """Look at all photos, if there are some that the album was not made of, and note who becomes whom."""
        if not self.same_stranger or not self.todo:
            return
        stamps = []
        for source, _ in self.plan.jobs:
            stamps.append(f"{self.plan.name(source)} {fingerprint(source)}")
        photos = hashlib.sha256("\n".join(stamps).encode()).hexdigest()[:16]
        history = self.plan.history
        if history is not None and history.album is not None and history.album["of"] == photos:
            return
        album = meet(
            self.pipeline,
            [source for source, _ in self.plan.jobs],
            self._secret(),
            bool(self.plan.settings.get("aligned")),
            self.workers,
            self.album,
            self.watch(len(self.plan.jobs)),
        )
        # As it will be read when the run is resumed: stored numbers are rounded.
        self.use(Album.from_bytes(album.to_bytes()))
        pieces = sealed_album(album, self._secret(), str(self.head["weights"]))
        journal.write({"event": "album", "of": photos, "sealed": pieces}, durable=True)

    def _secret(self) -> Secret:
        return self.openers.of_run(self.salt, self.kdf).secret()

    def _task(self, job: Job) -> Task:
        return self.make(*job, self.salt, self.kdf)

    def _clean(self) -> None:
        """Remove what a kill left of files that were being written."""
        if self.plan.history is None:
            begun = set()
        else:
            begun = self.plan.history.begun
        for _, output in (*self.todo, *self.films):
            if output.relative_to(self.plan.target).as_posix() in begun:
                for file in (output, sidecar_of(output), vault_of(output)):
                    clear_unfinished(file)

    def _check_password(self) -> None:
        """Do one finished photo again: nothing stored tells a right password from a wrong one, but a result does.

        Where films alone are done, their sealed codes tell; where files have keys of their own, the sealed key does.
        """
        if self.openers.own_keys:
            self._check_sealed_keys()
            return
        for job in self.plan.jobs:
            line = self.lines.get(self.plan.name(job[0]), {})
            if self.plan.finished(job) and line.get("by_model", 0):
                task = self._task(job)
                steps, secret = task.start()
                outcome = self.pipeline.drive(steps, secret, task.inverse)
                if not _agree(outcome, job):
                    raise _another_password(job[1])
                return
        for job in self.plan.films:
            if self.plan.finished(job) and sidecar_of(job[1]).is_file():
                self._check_film(job[1])
                return

    def _check_sealed_keys(self) -> None:
        """Open the key of one finished file by the password; without one there is nothing to be mistaken about."""
        if self.openers.password is None:
            return
        for job in (*self.plan.jobs, *self.plan.films):
            if self.plan.finished(job):
                try:
                    self.openers.open(_lock_of(job, self.plan.films), str(job[1]))
                except WrongPasswordError:
                    raise _another_password(job[1]) from None
                return

    def _check_film(self, film: Path) -> None:
        from faceanon.pipeline.video.codes import stored_codes
        from faceanon.pipeline.video.record import read_record

        record = read_record(film, None)
        if record.body is None:
            return
        try:
            with stored_codes(film, record, self.openers.open(record.shared.lock, str(film))) as codes:
                codes.check()
        except WrongPasswordError:
            raise _another_password(film) from None


def _lock_of(job: Job, films: Sequence[Job]) -> Lock:
    """What a finished file says of its key."""
    from faceanon.pipeline.video.record import record_of

    if job in films:
        return record_of(job[1])[0].shared.lock
    return manifest_of(job[1])[0].lock


def _another_password(made: Path) -> UserError:
    return UserError(f"{made} was made with another password; give that one, or --overwrite to start anew")


def _agree(outcome: Outcome, job: Job) -> bool:
    """Whether a result is the one on the disk, up to the rounding of another batch or the noise of its format."""
    photo = outcome.photo
    before = load_photo(job[0]).pixels.astype(int)
    there = load_photo(job[1]).pixels.astype(int)
    again = decode_bytes(encode(photo.pixels, photo.alpha, photo.icc, job[1])).pixels.astype(int)
    if again.shape != there.shape:
        return False
    # Only what was anonymized is compared: elsewhere every password leaves the original.
    changed = np.abs(again - before).max(-1) > 8
    other = (np.abs(again - there).max(-1) > 24) & changed
    return bool(other.sum() <= 0.05 * changed.sum())


class _Noted:
    """A task that notes in the journal when it begins to write and when it has written."""

    def __init__(self, task: Task, run: FolderRun, journal: Journal) -> None:
        self.task = task
        self.run = run
        self.journal = journal
        self.pipeline = task.pipeline
        self.source = task.source
        self.target = task.target
        self.inverse = task.inverse
        self.fingerprint = fingerprint(task.source)
        self.pixels = 0

    def start(self) -> tuple[Steps, Secret]:
        started = self.task.start()
        self.pixels = self.task.pixels
        return started

    def finish(self, outcome: Outcome) -> Outcome:
        plan = self.run.plan
        target = self.target.relative_to(plan.target).as_posix()
        # On the disk before the file is, so that a kill leaves no file that the journal does not know.
        self.journal.write({"event": "begin", "target": target}, durable=True)
        outcome = self.task.finish(outcome)
        line: dict[str, Any] = {
            "event": "done",
            "source": plan.name(self.source),
            "target": target,
            "stamp": self.fingerprint,
        }
        # Of an anonymized photo `faces` counts those hidden for good too; of a recovered one it does not.
        line |= {"by_model": outcome.faces - (0 if self.inverse else outcome.hidden), "hidden": outcome.hidden}
        line |= {"faces": [_face(face) for face in outcome.records], "notes": list(outcome.photo.notes)}
        self.run.note(self.journal, line)
        return outcome


def _face(face: Face) -> dict[str, Any]:
    box = []
    for edge in face.box:
        box.append(round(edge, 1))
    return {
        "number": face.number,
        "box": box,
        "score": round(face.score, 4),
        "by": face.treatment,
        "why": face.reason,
    }
