"""Who stays in a film, and when: each followed face is compared with the reference photos in all frames that cover it.

The decision is a person's, over all of her frames, and it fails closed: whoever is not surely the kept person is
hidden. A frame of a kept person shows her only if she is recognised in it and in the frames around it: where something
covers her, or where two faces crossed and one was followed on as the other, the face is hidden like all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from faceanon.manifest import CropGeometry
from faceanon.persona.cells import Array
from faceanon.photo.people import People, Reference, read_faces
from faceanon.pipeline.video.frames import read_frames
from faceanon.pipeline.video.passes import Progress
from faceanon.pipeline.video.tracks import Segment, Track

AROUND = 1  # frames before and after a shown one in which the person is recognised as well


@dataclass(frozen=True)
class Stay:
    """A person who is shown.

    Args:
        track: Number of her track.
        name: Of the reference photo that she is most like, or of the file of boxes that says so; empty where she is
            shown since others were selected.
        shown: Number of frames in which she is.
        frames: Number of frames in which she was followed.
        likeness: Mean cosine with the reference, over the frames that show her; None where a file of boxes decided.
    """

    track: int
    name: str
    shown: int
    frames: int
    likeness: float | None


@dataclass(frozen=True)
class _Seen:
    """What was read of one track: its frames `(n,)`, and cosines `(n, R)` with R references."""

    frames: Array
    cosines: Array


def left_to_stay(
    video: Path, tracks: Sequence[Track], people: People, progress: Progress
) -> tuple[tuple[Track, ...], tuple[Stay, ...]]:
    """The tracks without the frames in which a person stays as she is, and who stays.

    Args:
        video: The original.
        tracks: All that were followed.
        people: Whom to leave (`exclude`), or whom alone to change (`select`).
        progress: Told how far it is.
    """
    references = (*people.exclude, *people.select)
    seen = _compared(video, tracks, people, references, progress)
    left = []
    stays = []
    for track in tracks:
        if track.number not in seen:
            left.append(track)
            continue
        found = seen[track.number]
        shown, name, cosines = _shown(found, people)
        if shown.any():
            stays.append(Stay(track.number, name, int(shown.sum()), len(shown), float(cosines[shown].mean())))
            # Where she is lost between two sightings, she would be shown anyway.
            track = replace(track, missing=())
        left.append(replace(track, segments=tuple(_without(track.segments, set(found.frames[shown].tolist())))))
    return tuple(left), tuple(stays)


def between(tracks: Sequence[Track], first: int, stop: int) -> tuple[Track, ...]:
    """The tracks in the frames from `first` on and before `stop`; in all others their faces stay as they are."""
    left = []
    for track in tracks:
        shown: set[int] = set()
        for segment in track.segments:
            shown.update(range(segment.start, min(first, segment.stop)))
            shown.update(range(max(stop, segment.start), segment.stop))
        segments = tuple(_without(track.segments, shown))
        missing = []
        for start, end in track.missing:
            if max(first, start) < min(stop, end):
                missing.append((max(first, start), min(stop, end)))
        left.append(replace(track, segments=segments, missing=tuple(missing)))
    return tuple(left)


def _shown(found: _Seen, people: People) -> tuple[Array, str, Array]:
    """Which frames `(n,)` of a track show the person, the reference that decided, and the cosines `(n,)` with it."""
    threshold = people.likeness.threshold
    count = len(people.exclude)
    kept = found.cosines[:, :count]
    if count and len(kept):
        # The photos may show one person several times: the one that she is most like counts.
        best = int(kept.mean(0).argmax())
        cosines = kept[:, best]
        if cosines.mean() > threshold:
            people.met.add(people.exclude[best].name)
            return _surely(cosines > threshold, found.frames), people.exclude[best].name, cosines
    if not people.select:
        return np.zeros(len(found.frames), bool), "", np.zeros(len(found.frames), np.float32)
    wanted = found.cosines[:, count:].max(1)
    met = found.cosines[:, count:].mean(0) > threshold
    people.met.update(reference.name for reference, is_met in zip(people.select, met, strict=True) if is_met)
    # Whoever is like a selected person in any stretch of frames is hidden in all of them.
    unlike = not (_smoothed(wanted) > threshold).any()
    return np.full(len(wanted), unlike), "", wanted


def _surely(like: Array, frames: Array) -> Array:
    """Frames in which the person is recognised, and in all the neighbouring ones as well."""
    sure = like.copy()
    for step in range(1, AROUND + 1):
        # Frames follow each other but where the track has a gap, beyond which nothing is asked.
        before = np.ones_like(like)
        before[step:] = like[:-step] | (frames[step:] - frames[:-step] != step)
        after = np.ones_like(like)
        after[:-step] = like[step:] | (frames[step:] - frames[:-step] != step)
        sure &= before & after
    return sure


def _smoothed(cosines: Array) -> Array:
    """Means over a frame and those around it."""
    span = min(2 * AROUND + 1, len(cosines))
    means: Array = np.convolve(cosines, np.full(span, 1 / span), mode="valid")
    return means


def _compared(
    video: Path, tracks: Sequence[Track], people: People, references: Sequence[Reference], progress: Progress
) -> dict[int, _Seen]:
    """Every face of every frame beside the references, by track."""
    places: dict[int, list[tuple[int, CropGeometry]]] = {}
    for track in tracks:
        for segment in track.segments:
            for frame in range(segment.start, segment.stop):
                places.setdefault(frame, []).append((track.number, segment.at(frame)))
    if not places:
        return {}
    codes: Array = np.stack([reference.code for reference in references])
    frames: dict[int, list[int]] = {}
    cosines: dict[int, list[Array]] = {}
    last = max(places)
    for shot in read_frames(video, places):
        squares = [square for _, square in places[shot.index]]
        rows: Array = read_faces(people.likeness, shot.pixels, squares) @ codes.T
        for (number, _), row in zip(places[shot.index], rows, strict=True):
            frames.setdefault(number, []).append(shot.index)
            cosines.setdefault(number, []).append(row)
        progress("people", shot.index + 1, last + 1)
        if shot.index == last:
            break
    seen = {}
    for number, found in cosines.items():
        seen[number] = _Seen(np.array(frames[number]), np.stack(found))
    return seen


def _without(segments: Sequence[Segment], shown: set[int]) -> Iterator[Segment]:
    """The parts of segments that lie in other frames than these."""
    for segment in segments:
        start = None
        for frame in range(segment.start, segment.stop + 1):
            hidden = frame < segment.stop and frame not in shown
            if hidden and start is None:
                start = frame
            if not hidden and start is not None:
                yield Segment(segment.track, start, segment.places[start - segment.start : frame - segment.start])
                start = None
