"""Faces of a film as a file of boxes says them: followed faces into boxes on key frames, and back into tracks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from faceanon.errors import UserError
from faceanon.photo.align import framed_square
from faceanon.photo.boxes import (
    Choice,
    DecidedBox,
    DecidedPhoto,
    Decisions,
    detections,
    points_of_a_box,
    said_of_people,
)
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.video.frames import VideoInfo, read_frames
from faceanon.pipeline.video.passes import Progress, silent
from faceanon.pipeline.video.staying import Stay
from faceanon.pipeline.video.tracks import Track, Tracker, TrackOptions

ENDLESS = 3600.0  # s; between two boxes of one face nobody is uncovered, however far apart they are


def decided_film(name: str, info: VideoInfo, tracks: Sequence[Track]) -> tuple[DecidedPhoto, ...]:
    """Followed faces as boxes on the frames in which they were detected, for a person to change.

    Args:
        name: Of the film.
        info: Of the film.
        tracks: As followed. One that is lost in between is several faces here; one that is not hidden stays.
    """
    frames: dict[int, list[DecidedBox]] = {}
    number = -1
    for track in tracks:
        begins = [stop for _, stop in track.missing]
        last = -1
        for frame, face in zip(track.seen, track.found, strict=True):
            if last < 0 or any(last < begin <= frame for begin in begins):
                number += 1
            last = frame
            choice: Choice = "stranger" if track.segments else "keep"
            box = DecidedBox(face.box, choice, score=face.score, points=face.points, track=number)
            frames.setdefault(frame, []).append(box)
    photos = []
    for frame, boxes in sorted(frames.items()):
        photos.append(DecidedPhoto(name, info.width, info.height, tuple(boxes), frame))
    return tuple(photos)


def follow_decided(
    pipeline: Pipeline,
    source: Path,
    info: VideoInfo,
    options: TrackOptions,
    decisions: Decisions,
    progress: Progress = silent,
) -> tuple[tuple[Track, ...], list[float], tuple[Stay, ...]]:
    """The tracks that a file of boxes says, when each frame is shown, in seconds, and who stays.

    Between two boxes of one face the face is where the straight line between them is. A face whose boxes all say `keep`
    has no segment.

    Raises:
        UserError: If the file says nothing of the film, or names a frame that it does not have.
    """
    given = decisions.of_film(str(source), info.width, info.height)
    tracker = Tracker(info.rate, replace(options, max_gap=ENDLESS))
    framing = pipeline.method.framing
    times: list[float] = []
    for frame in read_frames(source):
        times.append(float(frame.pts * frame.time_base))
        # Asked for its look at cuts: what follows one is another face.
        tracker.wants(frame.index, frame.pixels)
        boxes = given.get(frame.index, ())
        for box, face in zip(boxes, detections(boxes, frame.pixels, pipeline.finder), strict=True):
            if not np.isfinite(face.points).all():
                face = replace(face, points=points_of_a_box(face.box))
            assert box.track is not None
            tracker.add_given(frame.index, box.track, face, framed_square(face.points, framing))
        progress("boxes", len(times), info.frames)
    if given and max(given) >= len(times):
        raise UserError(f"{decisions.name} names frame {max(given)} of {source}, which has {len(times)} frames")
    said = said_of_people(given.values())
    left = []
    stays = []
    for track in tracker.finish(len(times), info.width, info.height):
        hidden, stranger = said[track.given]
        if hidden:
            left.append(replace(track, stranger=stranger))
        else:
            stays.append(Stay(track.number, decisions.name, track.covered, track.covered, None))
            left.append(replace(track, segments=(), missing=()))
    return tuple(left), [time - times[0] for time in times], tuple(stays)
