"""`anonymize` and `recover` on videos."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from faceanon.commands._files import FileOptions, check_target
from faceanon.commands._metadata import UNMARKED, MetadataOptions
from faceanon.errors import UserError
from faceanon.paths import is_video

if TYPE_CHECKING:
    from faceanon.photo.boxes import DecidedPhoto
    from faceanon.pipeline.many.folder import FilmOutcome, MakeFilm, Told
    from faceanon.pipeline.photo import Pipeline
    from faceanon.pipeline.video.anonymize import VideoOptions, VideoOutcome
    from faceanon.pipeline.video.staying import Stay
    from faceanon.pipeline.video.tracks import Track, TrackOptions
    from faceanon.pipeline.video.writer import Quality
    from faceanon.sealed.openers import Openers

OUTPUTS = frozenset({".mkv", ".mov", ".mp4"})
# What fits one kind of file only, and its value where nothing was typed: argparse's own defaults would not tell whether
# something was, and an option without an effect is a mistake worth a line.
VIDEOS_ONLY: dict[str, Any] = {
    "crf": 10,
    "full_colour": False,
    "lossless": False,
    "every": None,
    "max_gap": 1.0,
    "strict": False,
    "between": None,
}
EVERY_HELP = "look for faces on every Nth frame of a video (default: 8 times a second, oftener where they move fast)"
ONLY_BETWEEN = "only between {:g} s and {:g} s are faces hidden; in all other frames they are shown"
PHOTOS_ONLY: dict[str, Any] = {
    "aligned": False,
    "small_faces": "blur",
    "quality": None,
    "like": None,
    "vault": False,
    "carry": None,
    "again": False,
    "exact": False,
    "force": False,
    "format": "png",
    "workers": None,  # see `pipeline.many.engine.usual_workers`
    "csv": None,
    "on_error": "skip",
}


@dataclass(frozen=True)
class QualityOptions:
    """How a video is written.

    Args:
        crf: 0 (best, largest) to 40.
        full_colour: Whether colour keeps full resolution.
        lossless: Whether every pixel is kept exactly.
    """

    crf: int
    full_colour: bool
    lossless: bool


@dataclass(frozen=True)
class FollowOptions:
    """How faces are followed through a video.

    Args:
        every: Faces are looked for on every so many frames; None for eight times a second and oftener where needed.
        max_gap: Seconds for which a face that is lost and found again stays covered.
        strict: Whether nothing is written if a followed face is uncovered in some frame.
        between: Seconds from the film's beginning between which faces are hidden; None: in all of it.
    """

    every: int | None
    max_gap: float
    strict: bool
    between: Sequence[float] | None

    def __post_init__(self) -> None:
        """Refuse a part that ends before it begins.

        Raises:
            UserError: It does.
        """
        if self.between is None:
            return
        start, stop = self.between
        if start >= stop:
            raise UserError(f"--between ends at {stop:g} s and begins at {start:g} s; give the earlier time first")


def has_videos(folder: Path) -> bool:
    """Whether videos lie in a folder."""
    return any(is_video(path) for path in folder.rglob("*"))


def settled(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments, those of photos or of videos with the values they have where nothing was typed.

    Raises:
        UserError: If an option was typed that IN's kind does not have.
    """
    kind, others = ("photos", PHOTOS_ONLY) if is_video(args.input) else ("videos", VIDEOS_ONLY)
    # A camera's folder holds both kinds.
    if has_videos(Path(args.input)):
        others = {}
    typed = []
    for name in others:
        # An option of `store_true` that nobody typed is False, every other one None.
        if (value := getattr(args, name, None)) is not None and value is not False:
            typed.append(name)
    if typed:
        flags = []
        for name in typed:
            flags.append(f"--{name.replace('_', '-')}")
        options = ", ".join(flags)
        raise UserError(f"{options}: for {kind} only; leave {'them' if typed[1:] else 'it'} away for {args.input}")
    values = dict(vars(args))
    for name, default in {**VIDEOS_ONLY, **PHOTOS_ONLY}.items():
        # `recover` has fewer options than `anonymize`, so not every name is there.
        if name in values and values[name] is None:
            values[name] = default
    return argparse.Namespace(**values)


def add_video_arguments(parser: argparse.ArgumentParser, follow: bool) -> None:
    """Add what only videos need; with `follow` also whether each face has to be followed."""
    group = parser.add_argument_group("videos (IN and OUT are .mp4, .mov or .mkv; IN also .webm, .avi and others)")
    group.add_argument(
        "--crf",
        type=int,
        metavar="N",
        help="0 (best, largest, recovers best) to 40 (default: 10)",
    )
    if follow:
        group.add_argument(
            "--between",
            nargs=2,
            type=seconds,
            metavar=("TIME", "TIME"),
            help="hide faces in this part only, as in 0:30 1:15",
        )
        group.add_argument(
            "--strict",
            action="store_true",
            help="exit 1 and write nothing if a followed face is uncovered in some frame",
        )


def add_rare_video_arguments(group: argparse._ArgumentGroup, follow: bool) -> None:
    """Add how a video is written; with `follow` also how faces are followed."""
    group.add_argument("--full-colour", action="store_true", help="of a video: better recovery; few players show it")
    group.add_argument("--lossless", action="store_true", help="of a video: keep every pixel; large files")
    if not follow:
        return
    group.add_argument("--every", type=int, metavar="N", help=EVERY_HELP)
    group.add_argument(
        "--max-gap",
        type=float,
        metavar="S",
        help="cover a face that a video loses for up to so many seconds (default: 1)",
    )


def check_video(files: FileOptions) -> tuple[Path, Path]:
    """IN and OUT, checked before any work is done.

    Raises:
        UserError: If IN is missing, or OUT exists, has another ending or is IN.
    """
    from faceanon.files import check_name

    if files.output is None:
        raise UserError("name OUT, the video to write")
    source = files.source
    target = files.target
    if not source.is_file():
        raise UserError(f"no such file: {source}")
    if target.is_dir():
        target = target / f"{source.stem}.mp4"
    if target.suffix.lower() not in OUTPUTS:
        raise UserError(f"{target}: a video is written as .mp4, .mov or .mkv; name OUT so")
    check_name(target)
    check_target(source, target, files.overwrite)
    return source, target


def quality_of(options: QualityOptions) -> Quality:
    """How to write, for the writer of videos."""
    from faceanon.pipeline.video.writer import Quality

    return Quality(options.crf, options.lossless, options.full_colour)


def _options(quality: QualityOptions, follow: FollowOptions, metadata: MetadataOptions) -> VideoOptions:
    from faceanon.pipeline.video.anonymize import VideoOptions

    return VideoOptions(
        _tracking(follow),
        quality_of(quality),
        follow.strict,
        metadata.sidecar,
        span=_span(follow),
        mark=metadata.mark,
        keep=metadata.kinds,
        credentials=metadata.credentials,
    )


def _tracking(follow: FollowOptions) -> TrackOptions:
    from faceanon.pipeline.video.tracks import TrackOptions

    return TrackOptions(follow.every, follow.max_gap)


def _span(follow: FollowOptions) -> tuple[float, float] | None:
    if follow.between is None:
        return None
    start, stop = follow.between
    return start, stop


def seconds(text: str) -> float:
    """A time such as 90, 1:30 or 0:01:30.5, in seconds.

    Raises:
        ValueError: It is none, for argparse to say so.
    """
    total = 0.0
    for part in text.split(":"):
        value = float(part)
        # Also refuses nan.
        if not 0 <= value < 1e6:
            raise ValueError(text)
        total = 60 * total + value
    return total


def list_followed(film: Path, name: str, follow: FollowOptions, pipeline: Pipeline) -> tuple[DecidedPhoto, ...]:
    """Say who is in a film, and give the boxes of everybody.

    Args:
        film: The film.
        name: Of it, for the boxes.
        follow: How faces are followed.
        pipeline: With the detector.
    """
    from faceanon.pipeline.video.anonymize import VideoOptions
    from faceanon.pipeline.video.anonymize import follow as followed_in
    from faceanon.pipeline.video.decided import decided_film
    from faceanon.pipeline.video.frames import read_info

    info = read_info(film)
    with _progress() as told:
        found = followed_in(pipeline, film, info, VideoOptions(_tracking(follow), span=_span(follow)), told)
    for line in who(found.tracks, found.stays, found.unmet):
        _say(f"  {line}")
    return decided_film(name, info, found.tracks)


def anonymize_one(
    quality: QualityOptions,
    follow: FollowOptions,
    metadata: MetadataOptions,
    paths: tuple[Path, Path],
    pipeline: Pipeline,
    openers: Openers,
) -> int:
    """Anonymize a video and say what was done; 1 if `--strict` refused."""
    from faceanon.pipeline.video.anonymize import UncoveredError, anonymize_video
    from faceanon.pipeline.video.mark import holds_mark

    options = _options(quality, follow, metadata)
    try:
        with _progress() as told:
            outcome = anonymize_video(pipeline, *paths, openers, options, told)
    except UncoveredError as error:
        # Exit code 1, not 2: neither the video nor an option is wrong.
        print(f"faceanon: {error}; raise --max-gap, or leave --strict away and look there", file=sys.stderr)
        return 1
    if options.span is not None:
        _say(ONLY_BETWEEN.format(*options.span))
    if metadata.mark and not holds_mark(paths[1]):
        _say(f"note: {paths[1].suffix} has no place for the mark; write .mp4 or .mov where it is needed")
    for line in summary(outcome, paths[1]):
        _say(line)
    return 0


def film_anonymizer(
    quality: QualityOptions, follow: FollowOptions, metadata: MetadataOptions, pipeline: Pipeline
) -> MakeFilm:
    """What anonymizes the films of a folder, one after another."""

    def film(source: Path, target: Path, openers: Openers, told: Told) -> FilmOutcome:
        from faceanon.pipeline.many.folder import FilmOutcome
        from faceanon.pipeline.video.anonymize import UncoveredError, anonymize_video, describe_missing

        options = _options(quality, follow, metadata)
        try:
            outcome = anonymize_video(pipeline, source, target, openers, options, told)
        except UncoveredError as error:
            raise UserError(str(error)) from error
        tracks = tuple(report.track for report in outcome.tracks)
        notes = []
        if options.span is not None:
            notes.append(ONLY_BETWEEN.format(*options.span))
        if any(track.missing for track in tracks):
            notes.append(f"{describe_missing(tracks)}; look there, or raise --max-gap")
        if outcome.dropped:
            notes.append(f"not copied: {', '.join(outcome.dropped)}")
        for stay in outcome.stays:
            notes.append(f"face {stay.track} stays in {stay.shown} of {stay.frames} frame(s)")
        for name in outcome.unmet:
            notes.append(f"nobody in this film is like {name}")
        hidden = sum(bool(track.segments) for track in tracks)
        return FilmOutcome(source, hidden, outcome.frames, tuple(notes))

    return film


def film_recoverer(quality: QualityOptions, deniable: bool, pipeline: Pipeline) -> MakeFilm:
    """What recovers the films of a folder, as `film_anonymizer`."""

    def film(source: Path, target: Path, openers: Openers, told: Told) -> FilmOutcome:
        from faceanon.pipeline.many.folder import FilmOutcome
        from faceanon.pipeline.video.recover import recover_video

        done = recover_video(pipeline, source, target, openers, quality_of(quality), told, deniable)
        return FilmOutcome(source, done.tracks, done.frames)

    return film


def recover_one(
    quality: QualityOptions, deniable: bool, paths: tuple[Path, Path], pipeline: Pipeline, openers: Openers
) -> int:
    """Recover a video and say what was done."""
    from faceanon.pipeline.video.recover import recover_video

    with _progress() as told:
        done = recover_video(pipeline, *paths, openers, quality_of(quality), told, deniable)
    if deniable:
        _say(f"note: {UNMARKED}")
    _say(
        f"recovered {done.tracks} face(s), {done.faces} times in {done.frames} frames -> {paths[1]}; from a file"
        f" written as {done.written}"
    )
    return 0


def summary(outcome: VideoOutcome, target: Path) -> Iterator[str]:
    """What was done to a video, in lines."""
    flicker = {}
    for report in outcome.tracks:
        if report.flicker is not None:
            flicker[report.track.number] = report.flicker
    tracks = tuple(report.track for report in outcome.tracks)
    yield from who(tracks, outcome.stays, outcome.unmet, flicker)
    if outcome.recovery is not None:
        before, after = outcome.recovery
        # Compression can come out ahead by a hair, and a negative loss would read as a mistake.
        loss = max(before - after, 0)
        yield f"recovery: {after:.1f} dB PSNR from this file, {loss:.1f} dB less than without compression"
    if outcome.dropped:
        yield f"not copied: {', '.join(outcome.dropped)}"
    if outcome.sidecar is not None:
        yield f"recovery needs {outcome.sidecar} beside the video"
    hidden = sum(bool(track.segments) for track in tracks)
    yield f"anonymized {hidden} face(s) in {outcome.frames} frame(s) -> {target}"


def who(
    tracks: tuple[Track, ...], stays: Sequence[Stay], unmet: Sequence[str], flicker: Mapping[int, float] | None = None
) -> Iterator[str]:
    """Who is in a film and who of them stays, in lines.

    Args:
        tracks: Everybody.
        stays: Who stays.
        unmet: Names of the reference photos that nobody was like.
        flicker: Of the drawn faces, by the track's number, where they were drawn.
    """
    from faceanon.pipeline.video.anonymize import describe_missing

    for stay in stays:
        why = f"as {stay.name} says"
        if stay.likeness is not None:
            why = f"like {stay.name or 'nobody selected'}, {stay.likeness:.2f}"
        yield f"face {stay.track} stays: shown in {stay.shown} of {stay.frames} frame(s) ({why})"
    for name in unmet:
        yield f"note: nobody in the film is like {name}"
    for track in tracks:
        if not track.segments:
            continue
        first = track.segments[0].start
        last = track.segments[-1].stop - 1
        line = f"face {track.number}: {track.covered} frame(s), {first} to {last}, seen in {len(track.seen)}"
        if flicker and track.number in flicker:
            line += f", flicker {flicker[track.number]:.2f}"
        yield line
    if any(track.missing for track in tracks):
        yield f"warning: {describe_missing(tracks)}; look there, or raise --max-gap"


def _say(line: str) -> None:
    Console().print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _progress() -> Iterator[Told]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    # A bar that nobody watches leaves an empty line behind.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield told_to(bars)


def told_to(bars: Progress, name: str = "") -> Told:
    """What shows each stage of a video as a bar, with the video's name before it."""
    known: dict[str, TaskID] = {}

    def told(stage: str, done: int, total: int) -> None:
        if stage not in known:
            # Not every file says how many frames it has; 0 stands for that.
            known[stage] = bars.add_task(f"{name} {stage}".strip(), total=total or None)
        bars.update(known[stage], completed=done)

    return told
