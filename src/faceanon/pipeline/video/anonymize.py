"""A video in, a video out from which the password brings the faces back.

Three passes, none of which keeps the frames: find the faces and join them to tracks; read each track's identity code
off a few of its faces; draw. Where people are chosen by photos, one more says who stays (`staying`). One key and one
identity code a track: one stranger from beginning to end. Sealed codes are not kept either: each goes into a file when
its face is drawn.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.key import Password
from faceanon.persona.cells import Array
from faceanon.photo.align import framed_square
from faceanon.photo.c2pa import Credentials
from faceanon.photo.detect import Detection
from faceanon.photo.metadata import sidecar_of
from faceanon.pipeline.photo import NoFaceError, Pipeline
from faceanon.pipeline.video.codes import CodeWriter, new_codes
from faceanon.pipeline.video.decided import follow_decided
from faceanon.pipeline.video.faces import Change
from faceanon.pipeline.video.flicker import FlickerMeter
from faceanon.pipeline.video.frames import Frame, VideoInfo, read_frames, read_info
from faceanon.pipeline.video.passes import Progress, ignore_frame, mean_identities, silent, write_changed
from faceanon.pipeline.video.probe import Probe
from faceanon.pipeline.video.record import VideoRecord, fits_inside, holds_record
from faceanon.pipeline.video.staying import Stay, between, left_to_stay
from faceanon.pipeline.video.tracks import Segment, Track, Tracker, TrackOptions
from faceanon.pipeline.video.writer import Quality, VideoWriter
from faceanon.sealed.openers import Openers, openers


class UncoveredError(Exception):
    """A track has frames in which its face would stay readable; nothing was written."""


@dataclass(frozen=True)
class VideoOptions:
    """How a video is anonymized.

    Args:
        follow: How faces are found and followed.
        quality: How the video is written.
        strict: Refuse to write if a track has uncovered frames.
        sidecar: Write what recovery needs beside the video instead of into it.
        probe: Measure what compression costs recovery, on a few faces.
        span: Seconds from the film's beginning between which faces are hidden; None: in all of it.
        mark: Say in the file that trained algorithms made a part of it (`faceanon.pipeline.video.mark`).
        keep: `time` and `place`, where the film's recording time and place stay.
        credentials: Sign the file, by C2PA.
    """

    follow: TrackOptions = field(default_factory=TrackOptions)
    quality: Quality = field(default_factory=Quality)
    strict: bool = False
    sidecar: bool = False
    probe: bool = True
    span: tuple[float, float] | None = None
    mark: bool = True
    keep: frozenset[str] = frozenset()
    credentials: Credentials | None = None


@dataclass(frozen=True)
class TrackReport:
    """What was done to one track.

    Args:
        track: The track.
        flicker: Frame-to-frame change of the drawn face over the original's; None where the original stood still.
    """

    track: Track
    flicker: float | None


@dataclass(frozen=True)
class VideoOutcome:
    """What was done to a video.

    Args:
        frames: Number of frames.
        tracks: What was done to each track.
        flicker: Over all tracks.
        recovery: PSNR in dB of recovered against original faces, from frames not yet compressed and from the written
            file; None where it was not measured.
        sidecar: The file beside the video that recovery needs, or None.
        dropped: Streams that were not copied.
        stays: Who is shown, where people were chosen.
        unmet: Names of the reference photos that nobody was like.
    """

    frames: int
    tracks: tuple[TrackReport, ...]
    flicker: float | None
    recovery: tuple[float, float] | None
    sidecar: Path | None
    dropped: tuple[str, ...]
    stays: tuple[Stay, ...] = ()
    unmet: tuple[str, ...] = ()


def anonymize_video(
    pipeline: Pipeline,
    source: Path,
    target: Path,
    password: Password | Openers,
    options: VideoOptions | None = None,
    progress: Progress = silent,
) -> VideoOutcome:
    """Replace every face of a video file.

    Args:
        pipeline: The model.
        source: The video.
        target: The video to write: .mp4, .mov or .mkv.
        password: Brings the faces back; its salt goes into the file. Or recipients, for whom the key is sealed.
        options: How.
        progress: Told what is being done, frames done and frames in all.

    Raises:
        UserError: If the source cannot be read or was anonymized before, nobody is left to be hidden, or the target
            cannot be written.
        NoFaceError: If no frame shows a face; nothing is written.
        UncoveredError: If `strict` and a track has uncovered frames; nothing is written.
    """
    options = options or VideoOptions()
    info = read_info(source)
    if holds_record(source, info.comment):
        raise UserError(f"{source} was anonymized by faceanon already; recover it first, or take the original video")
    followed = follow(pipeline, source, info, options, progress)
    tracks = followed.tracks
    frames = followed.frames
    # Here, before the passes that take longest.
    if options.strict and any(track.missing for track in tracks):
        raise UncoveredError(f"{source}: {describe_missing(tracks)}; nothing was written (--strict)")
    shared = pipeline.manifest(info.width, info.height)
    secret, lock = openers(password).new_key()
    shared = replace(shared.locked(lock), encoding=str(options.quality))
    segments: list[Segment] = []
    for track in tracks:
        segments.extend(track.segments)
    record = VideoRecord(shared, frames, tuple(segments))
    text = record.to_json()
    sealed = pipeline.method.sealed
    # Codes are known when the frames are written, and the comment is written before them.
    inside = fits_inside(target, text) and not options.sidecar and not sealed
    strangers = {track.number: track.stranger for track in tracks if track.stranger}
    if strangers and pipeline.method.reversible and not sealed:
        raise UserError(f"{source}: {pipeline.name} gives each key one stranger; recovery would not find another")
    change = Change(pipeline, secret, strangers=strangers)
    meter = FlickerMeter()
    means = mean_identities(source, change, record, progress)
    probe = None
    if options.probe and pipeline.method.reversible:
        probe = Probe.of(record, pipeline)

    with ExitStack() as stack:
        comment = text if inside else None
        writer = stack.enter_context(
            VideoWriter(target, source, info, options.quality, comment, options.mark, options.keep, options.credentials)
        )
        codes: CodeWriter | None = None
        # After the video, whose writer makes the folder.
        if sealed:
            codes = stack.enter_context(new_codes(target, record, secret))

        # Called frame after frame and track after track, from this thread alone: the order of the codes.
        def seen(frame: int, track: int, before: Array, after: Array, code: bytes | None) -> None:
            meter.add(track, frame, before, after)
            if codes is not None and code is not None:
                codes.add(frame, track, code)
            if probe is not None:
                probe.before(frame, track, before)

        write_changed(source, writer, change, record, means, seen, probe.pasted if probe else ignore_frame, progress)
        recovery = None
        if probe:
            back = replace(change, inverse=True)
            if codes is not None:
                back = replace(back, codes=codes.stored(str(target)))
            recovery = probe.measure(writer.temporary, back)
        # Before the video has its name, so that no video stands there without what recovers it.
        if codes is not None:
            codes.save()
        elif not inside:
            write_atomic(sidecar_of(target), text.encode())
        writer.publish()
    # One of an earlier run would describe another video.
    if inside:
        sidecar_of(target).unlink(missing_ok=True)
    reports = tuple(TrackReport(track, meter.of(track.number)) for track in tracks)
    sidecar = None if inside else sidecar_of(target)
    return VideoOutcome(
        frames, reports, meter.overall(), recovery, sidecar, info.dropped, followed.stays, followed.unmet
    )


@dataclass(frozen=True)
class Followed:
    """Who is in a film, and who of them stays.

    Args:
        tracks: Everybody; of who stays, without the frames in which she is shown.
        frames: Number of frames of the film.
        stays: Who stays, where people were chosen.
        unmet: Names of the reference photos that nobody was like.
    """

    tracks: tuple[Track, ...]
    frames: int
    stays: tuple[Stay, ...] = ()
    unmet: tuple[str, ...] = ()


def follow(
    pipeline: Pipeline, source: Path, info: VideoInfo, options: VideoOptions, progress: Progress = silent
) -> Followed:
    """Find everybody in a film, or read who the pipeline's file of boxes says is in it, and decide who stays.

    Raises:
        UserError: If the film cannot be read, or nobody is left to be hidden.
        NoFaceError: If no frame shows a face.
    """
    stays: tuple[Stay, ...] = ()
    unmet: tuple[str, ...] = ()
    if pipeline.boxes is None:
        tracks, times = find_tracks(pipeline, source, info, options.follow, progress)
    else:
        tracks, times, stays = follow_decided(pipeline, source, info, options.follow, pipeline.boxes, progress)
    if options.span is not None:
        tracks = between(tracks, *frames_between(times, options.span))
        if not any(track.segments for track in tracks):
            raise NoFaceError(f"no face found in that part of {source}; nothing was written")
    if pipeline.people is not None:
        # Of this film alone: a folder's films share the references.
        people = replace(pipeline.people, met=set())
        tracks, known = left_to_stay(source, tracks, people, progress)
        stays += known
        unmet = tuple(people.unmet())
    if not any(track.segments for track in tracks):
        raise UserError(f"{source}: everybody in it is to be left, so there is nothing to do")
    return Followed(tracks, len(times), stays, unmet)


def find_tracks(
    pipeline: Pipeline, source: Path, info: VideoInfo, options: TrackOptions, progress: Progress = silent
) -> tuple[tuple[Track, ...], list[float]]:
    """Find and follow the faces; also when each frame is shown, in seconds after the first one.

    Raises:
        UserError: If the video cannot be read.
        NoFaceError: If no frame shows a face.
    """
    tracker = Tracker(info.rate, options)
    times: list[float] = []
    framing = pipeline.method.framing

    def add(frame: Frame, found: list[Detection]) -> None:
        squares = []
        for face in found:
            squares.append(framed_square(face.points, framing))
        tracker.add(frame.index, found, squares)

    # Frames since the last one that was looked at, while it may turn out that they have to be looked at as well.
    skipped: list[Frame] = []
    for frame in read_frames(source):
        times.append(float(frame.pts * frame.time_base))
        if tracker.wants(frame.index, frame.pixels):
            found = pipeline.detector.detect(frame.pixels)
            if skipped and not tracker.steady(frame.index, found):
                for earlier in skipped:
                    add(earlier, pipeline.detector.detect(earlier.pixels))
            add(frame, found)
            skipped = []
        elif options.every is None:
            skipped.append(frame)
        progress("detection", len(times), info.frames)
    tracks = tracker.finish(len(times), info.width, info.height)
    if not any(track.segments for track in tracks):
        raise NoFaceError(f"no face found in {source}; nothing was written")
    return tracks, [time - times[0] for time in times]


def frames_between(times: list[float], span: tuple[float, float]) -> tuple[int, int]:
    """The first frame that is on the screen in a part of a film, and the first one after it.

    Args:
        times: When each frame comes, in seconds, rising.
        span: Begin and end of the part, in seconds.

    Examples:
        >>> from faceanon.pipeline.video.anonymize import frames_between
        >>> frames_between([0, 10, 20, 28, 32, 40], (30, 35))  # the fourth stays from 28 to 32
        (3, 5)
    """
    start, end = span
    # The last frame stays as long as any other at most.
    if start > times[-1] + max(np.diff(times), default=0):
        return len(times), len(times)
    # The frame that is shown at the beginning came before it, and stays until the next one.
    return max(0, int(np.searchsorted(times, start, "right")) - 1), int(np.searchsorted(times, end))


def describe_missing(tracks: tuple[Track, ...], most: int = 5) -> str:
    """One line that names the tracks with uncovered frames."""
    open_ = []
    for track in tracks:
        if track.missing:
            open_.append(track)
    spans = []
    for track in open_:
        for start, stop in track.missing:
            spans.append(f"{start}-{stop - 1} (face {track.number})")
    rest = ""
    if len(spans) > most:
        rest = f" and {len(spans) - most} more"
    count = 0
    for track in open_:
        for start, stop in track.missing:
            count += stop - start
    return f"{len(open_)} face(s) not covered in {count} frame(s): {', '.join(spans[:most])}{rest}"
