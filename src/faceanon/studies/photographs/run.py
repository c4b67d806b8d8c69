"""The study from end to end: make the pictures, look at them, put the figures into one file and one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.errors import RunError, UserError
from faceanon.files import write_atomic
from faceanon.landmarks.album import Album
from faceanon.metrics.recognition import chance
from faceanon.photo.detect import Detector
from faceanon.pipeline.photo import Pipeline
from faceanon.report.sheets import png_bytes
from faceanon.results import Results, dumps, git_commit, run_meta
from faceanon.studies.photographs.figures import (
    Figures,
    file_and_detector_figures,
    judge_figures,
    mesh_figures,
)
from faceanon.studies.photographs.judges import FAR, Judge
from faceanon.studies.photographs.page import contact_sheet, markdown
from faceanon.studies.photographs.people import Person, Picture
from faceanon.studies.photographs.pictures import (
    Passwords,
    PhotographsSetting,
    cache_name,
    failures,
    make_pictures,
    meet_everybody,
)
from faceanon.studies.photographs.readings import (
    Measured,
    Mesh,
    PictureReading,
    collect,
    detector_reading,
    judge_reading,
    mesh_reading,
    read_person,
)
from faceanon.studies.photographs.telling import telling_figures

RESULTS = "results.json"
TABLE = "table.md"
SHEET = "sheet.png"
CACHE = "cache"
ABOUT = "about.json"
SECONDS = "seconds.json"


@dataclass(frozen=True)
class Tools:
    """What a study works with; a process that helps builds its own.

    Args:
        pipeline: The model.
        judges: At least one; their names differ.
        mesh: Finds the 468 points of a face.
        detector: Says whether a face is found; None leaves that out.
        round_trip: A pipeline over `RoundTrip`, for the network that tells drawn from real; None leaves it out.
    """

    pipeline: Pipeline
    judges: tuple[Judge, ...]
    mesh: Mesh
    detector: Detector | None
    round_trip: Pipeline | None

    def readings(self, setting: PhotographsSetting) -> list[PictureReading]:
        """All ways in which pictures are looked at."""
        readings = []
        for judge in self.judges:
            readings.append(judge_reading(judge, setting))
        readings.append(mesh_reading(self.mesh, setting, self.round_trip is not None))
        if self.detector is not None:
            readings.append(detector_reading(self.detector, setting))
        return readings


MakeTools = Callable[[], Tools]


@dataclass(frozen=True)
class Helper:
    """What a process does to one person after another.

    Args:
        tools: Of this process.
        setting: Which versions of a picture there are.
        passwords: As many as the setting says.
        cache: The study's cache.
        albums: Who becomes whom, one a password; None where each picture decides for itself.
    """

    tools: Tools
    setting: PhotographsSetting
    passwords: Passwords
    cache: Path
    albums: Sequence[Album] | None = None

    def work(self, person: Person) -> dict[str, float]:
        """Make and read a person's pictures; gives back seconds and numbers by step."""
        tools = self.tools
        spent = make_pictures(
            person, tools.pipeline, tools.round_trip, self.setting, self.passwords, self.cache, self.albums
        )
        read_person(person, tools.readings(self.setting), self.cache)
        return spent


def check_numbers(side: int, passwords: int, jobs: int, tell_steps: int) -> None:
    """Refuse numbers with which there is no study; for whoever does long work before it, such as trained attackers.

    Args:
        side: Side of the pictures in the files, in pixels.
        passwords: Number of passwords.
        jobs: Processes that make and read pictures.
        tell_steps: Training batches of the network that tells drawn from real.

    Raises:
        UserError: One of them is out of range.
    """
    if jobs < 1:
        raise UserError(f"{jobs} jobs: give 1 or more")
    if tell_steps < 0:
        raise UserError(f"{tell_steps} training batches: give 0 or more")
    # Built for its errors.
    PhotographsSetting(side, passwords)


def run_study(
    people: Sequence[Person],
    make_tools: MakeTools,
    side: int,
    passwords: int,
    folder: Path,
    jobs: int = 1,
    tell_steps: int = 600,
    further: Figures | None = None,
    same_stranger: bool = False,
) -> Results:
    """Measure a model on photographs and write results.json, table.md and sheet.png.

    Pictures and readings are kept under `folder/cache`. The same call resumes an interrupted one.

    Args:
        people: Persons whom no training saw.
        make_tools: Builds the model and everything that looks; a picklable function where `jobs` is above 1.
        side: Side of the pictures in the files, in pixels.
        passwords: Number of passwords.
        folder: Where to write; real persons' pictures go there, so it lies outside what git tracks.
        jobs: Processes that make and read pictures.
        tell_steps: Training batches of the network that tells drawn from real; 0 leaves it out.
        further: Figures measured elsewhere that belong into the table, such as those of trained attackers.
        same_stranger: Whether all pictures are anonymized as one folder in which a person becomes one stranger.

    Raises:
        UserError: A picture cannot be used, numbers are out of range, or the folder cannot be written.
        RunError: A helping process was killed.
    """
    check_numbers(side, passwords, jobs, tell_steps)
    tools = make_tools()
    backbone = tools.pipeline.backbone
    setting = PhotographsSetting(side, passwords, backbone.reversible, backbone.sealed, same_stranger)
    cache = folder / CACHE / cache_name(tools.pipeline, setting)
    # Before the first picture: a study that goes on at a later commit has to find the first one's.
    began = _remember_commit(cache)
    right = Passwords(passwords)
    albums = meet_everybody(people, tools.pipeline, setting, right, cache)
    helper = Helper(tools, setting, right, cache, albums)
    if jobs == 1:
        work = partial(_alone, helper)
    else:
        # The helper itself is not sent: networks and judges do not pass to other processes, which make their own.
        work = partial(_shared, make_tools, setting, cache, jobs, albums)
    pictures = sum(len(person.pictures) for person in people)
    with tqdm(total=pictures, desc="photographs", unit="photo") as bar:
        for person, spent in work(people):
            # After each person, so that an interrupted study keeps what it has taken.
            _add_seconds(cache / SECONDS, spent)
            bar.update(len(person.pictures))

    measured = collect(people, tools.judges, setting, cache, tools.detector, tools.round_trip is not None)
    figures = _figures(tools, measured)
    if tell_steps and tools.round_trip is not None:
        telling_figures(people, setting, cache, backbone.image_size, tell_steps, figures, tools.pipeline.device)
    if further is not None:
        figures.values |= further.values
        figures.intervals |= further.intervals
    meta = _meta(tools, setting, people, cache, tell_steps)
    results = Results(figures.values, figures.intervals, meta, _warnings(began, people, setting, cache))
    write_atomic(folder / RESULTS, dumps(results))
    write_atomic(folder / TABLE, markdown(results).encode())
    write_atomic(folder / SHEET, png_bytes(contact_sheet(people, setting, cache)))
    return results


def _figures(tools: Tools, measured: Measured) -> Figures:
    figures = Figures()
    for judge in tools.judges:
        judge_figures(judge, measured, figures)
    figures.values["rank1_chance"] = chance(measured.person)
    file_and_detector_figures(measured, figures)
    mesh_figures(measured, figures)
    return figures


def _alone(helper: Helper, people: Sequence[Person]) -> Iterator[tuple[Person, dict[str, float]]]:
    for person in people:
        yield person, helper.work(person)


def _shared(
    make_tools: MakeTools,
    setting: PhotographsSetting,
    cache: Path,
    jobs: int,
    albums: Sequence[Album] | None,
    people: Sequence[Person],
) -> Iterator[tuple[Person, dict[str, float]]]:
    """The same by several processes, persons in the order in which they are done."""
    with _pool(make_tools, setting, cache, jobs, albums) as pool:
        # The persons with most pictures first, so that no process is left alone with one of them at the end.
        ordered = sorted(people, key=lambda person: -len(person.pictures))
        running = {}
        for one in ordered:
            running[pool.submit(_help, one)] = one
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BrokenProcessPool as error:
            raise RunError(
                "a process of the study was killed, perhaps for lack of memory; the same command resumes it, "
                "and needs less with a lower --jobs"
            ) from error


@contextmanager
def _pool(
    make_tools: MakeTools, setting: PhotographsSetting, cache: Path, jobs: int, albums: Sequence[Album] | None
) -> Iterator[ProcessPoolExecutor]:
    threads = max(1, torch.get_num_threads() // jobs)
    begin = partial(_begin, make_tools, setting, cache, threads, albums)
    # Not forked: a child would inherit torch's threads in the middle of their work, and hang.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=begin)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


_helper: Helper | None = None  # of this process


def _begin(
    make_tools: MakeTools, setting: PhotographsSetting, cache: Path, threads: int, albums: Sequence[Album] | None
) -> None:
    """Set up a process: its share of the threads, tools of its own, and an end when its parent is gone."""
    from faceanon.training.ranks import ParentWatch

    global _helper
    torch.set_num_threads(threads)
    ParentWatch(0, "the study that started this process is gone; the same command resumes it").start()
    _helper = Helper(make_tools(), setting, Passwords(setting.passwords), cache, albums)


def _help(person: Person) -> dict[str, float]:
    if _helper is None:
        raise RuntimeError("this process was not set up by _begin")
    return _helper.work(person)


def _remember_commit(cache: Path) -> str | None:
    """The commit at which the cache was begun; None where it is not known."""
    path = cache / ABOUT
    if not path.is_file():
        write_atomic(path, json.dumps({"commit": git_commit()}).encode())
    try:
        commit: str | None = json.loads(path.read_text(encoding="utf-8"))["commit"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: delete {cache} and start again") from error
    return commit


def _warnings(began: str | None, people: Sequence[Person], setting: PhotographsSetting, cache: Path) -> list[str]:
    """What a reader of the figures has to know."""
    warnings = []
    if began != git_commit():
        warnings.append(
            f"some pictures were made at commit {str(began)[:12]}, and the figures at {str(git_commit())[:12]}; "
            "delete the folder `cache` to make all of them again"
        )
    pictures: list[Picture] = []
    for person in people:
        pictures += person.pictures
    for kind, reasons in failures(cache, pictures, setting).items():
        # A reason begins with the path of the file, which says nothing to whoever reads the table.
        reason = reasons[0].rsplit("/", 1)[-1]
        warnings.append(f"{len(reasons)} pictures of the kind {kind!r} could not be made; the first: {reason}")
    return warnings


def _add_seconds(path: Path, spent: Mapping[str, float]) -> None:
    """Add to what the study has taken so far, also before it was interrupted."""
    known = _read_seconds(path)
    for name, value in spent.items():
        known[name] = known.get(name, 0.0) + value
    write_atomic(path, json.dumps(known).encode())


def _read_seconds(path: Path) -> dict[str, float]:
    if not path.is_file():
        return {}
    try:
        seconds = {}
        for name, value in json.loads(path.read_text(encoding="utf-8")).items():
            seconds[str(name)] = float(value)
        return seconds
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: delete it and run the study again") from error


def _meta(
    tools: Tools, setting: PhotographsSetting, people: Sequence[Person], cache: Path, tell_steps: int
) -> dict[str, Any]:
    """Everything that the figures depend on."""
    pipeline = tools.pipeline
    spent = _read_seconds(cache / SECONDS)
    steps = []
    for name in spent:
        # Seconds and numbers lie side by side; a step is what has both.
        if f"{name}/pictures" in spent:
            steps.append(name)
    judges = []
    for judge in tools.judges:
        judges.append(
            {"name": judge.name, "digest": judge.digest, "similarity": judge.similarity, "white_box": judge.white_box}
        )
    seconds = {}
    for step in steps:
        seconds[step] = spent[step] / spent[f"{step}/pictures"]
    return {
        **run_meta(),
        "study": "photographs",
        "model": pipeline.name,
        "method": pipeline.backbone.method,
        "weights": pipeline.weights,
        "image_size": pipeline.backbone.image_size,
        "side": setting.side,
        "passwords": setting.passwords,
        "same_stranger": setting.same_stranger,
        "people": len(people),
        "pictures": sum(len(person.pictures) for person in people),
        "far": FAR,
        "judges": judges,
        "detector": None if tools.detector is None else type(tools.detector).__name__,
        "tell_steps": tell_steps,
        "seconds": seconds,
        "device": str(pipeline.device),
        "threads": torch.get_num_threads(),
    }
