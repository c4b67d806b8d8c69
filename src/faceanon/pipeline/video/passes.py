"""Passes over the frames of a video that both directions make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from faceanon.errors import UserError
from faceanon.manifest import CropGeometry
from faceanon.persona.cells import Array
from faceanon.photo.crop_paste import crop
from faceanon.pipeline.threads import in_order, threads
from faceanon.pipeline.video.faces import Change, IdentityMeans, Replaced, replace_faces
from faceanon.pipeline.video.frames import Frame, VideoInfo, read_frames
from faceanon.pipeline.video.record import VideoRecord
from faceanon.pipeline.video.writer import VideoWriter
from faceanon.weights.shipped import usual_threads

Seen = Callable[[int, int, Array, Array, bytes | None], None]  # told of each changed face, as `Replaced` has it
Progress = Callable[[str, int, int], None]  # what is being done, frames done, frames in all (0: unknown)
MEANS_FROM = 24  # faces of a track whose identity codes are averaged
CHUNK_BYTES = 200_000_000


def silent(stage: str, done: int, total: int) -> None:
    """Take reports of progress and show none."""


def ignore_frame(frame: Frame) -> None:
    """A changed frame of which nobody wants to know."""


def ignore_face(frame: int, track: int, before: Array, after: Array, code: bytes | None) -> None:
    """A changed face of which nobody wants to know."""


def spread(record: VideoRecord, most: int) -> dict[int, list[tuple[int, CropGeometry]]]:
    """Up to `most` faces of each track, evenly over its time: frame to track and square."""
    wanted: dict[int, list[tuple[int, CropGeometry]]] = {}
    for track in sorted({part.track for part in record.segments}):
        parts = []
        for segment in record.segments:
            if segment.track == track:
                parts.append(segment)
        frames: list[int] = []
        for segment in parts:
            frames.extend(range(segment.start, segment.stop))
        # A set, since of few frames rounding takes some twice.
        chosen = set()
        for at in np.linspace(0, len(frames) - 1, min(most, len(frames))):
            chosen.add(frames[round(at)])
        for frame in sorted(chosen):
            for part in parts:
                if part.start <= frame < part.stop:
                    wanted.setdefault(frame, []).append((track, part.at(frame)))
                    break
    return wanted


def mean_identities(video: Path, change: Change, record: VideoRecord, progress: Progress) -> dict[int, Array]:
    """Each track's mean identity code; empty for a method without such codes, or that recovers without them."""
    if not change.pipeline.method.works_through_codes or (change.inverse and change.pipeline.method.sealed):
        return {}
    wanted = spread(record, MEANS_FROM)
    last_of = {}
    for frame_number in sorted(wanted):
        for track, _ in wanted[frame_number]:
            last_of[track] = frame_number
    means = IdentityMeans(change)
    last = max(wanted)
    size = change.pipeline.method.face_sizes[0]
    for frame in read_frames(video, wanted):
        faces = []
        tracks = []
        for track, square in wanted[frame.index]:
            faces.append(crop(frame.pixels, square, size))
            tracks.append(track)
        means.add(np.stack(faces), tracks)
        # Faces are kept until then.
        for track in tracks:
            if last_of[track] == frame.index:
                means.finish(track)
        progress("identities", frame.index + 1, last + 1)
        # What follows would be decoded for nothing.
        if frame.index == last:
            break
    return means.result()


def write_changed(
    source: Path,
    writer: VideoWriter,
    change: Change,
    record: VideoRecord,
    means: dict[int, Array],
    seen: Seen,
    done: Callable[[Frame], None],
    progress: Progress,
) -> None:
    """Write all frames of `source` with their faces changed.

    Args:
        source: The video.
        writer: Where to; opened, and finished here.
        change: What to do.
        record: Where the faces are.
        means: Mean identity codes by track.
        seen: Told frame, track, the face before and after, and the code of the original or None.
        done: Told every changed frame.
        progress: Told how far it is.

    Raises:
        UserError: If the video has not as many frames as the record.
    """

    def changed(chunk: list[Frame]) -> tuple[list[Frame], list[Replaced]]:
        copies = []
        places = []
        for frame in chunk:
            copies.append(replace(frame, pixels=frame.pixels.copy()))
            places.append(record.at(frame.index))
        # Faces are pasted into the copies.
        replaced = replace_faces(change, [frame.pixels for frame in copies], places, means, chunk[0].index)
        return copies, replaced

    cores = usual_threads()
    # On the processor the frames of a chunk are one thread's, on one core: the cores then wait for nobody.
    count = cores if change.pipeline.on_processor else 1
    chunks = _chunks(read_frames(source), change.pipeline.batch, writer.info)
    written = 0
    with threads("faceanon-video", count, cores // count) as pool:
        for frames, replaced in in_order(pool, changed, chunks, count + 1):
            for face in replaced:
                seen(*face)
            for frame in frames:
                done(frame)
                writer.write(frame)
            written += len(frames)
            progress("faces", written, record.frames)
    if written != record.frames:
        raise UserError(f"{source} has {written} frames but its faceanon data speak of {record.frames}; was it cut?")
    writer.finish()


def _chunks(frames: Iterable[Frame], most: int, info: VideoInfo) -> Iterator[list[Frame]]:
    """Neighbouring frames, as many as a batch has faces and the memory allows."""
    # Each frame is held as it was read and as it is changed, with 3 bytes a pixel.
    size = max(1, min(most, CHUNK_BYTES // (info.width * info.height * 6)))
    chunk: list[Frame] = []
    for frame in frames:
        chunk.append(frame)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
