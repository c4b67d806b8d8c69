"""Videos in through PyAV, frame by frame: never more than a few frames in memory."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.filter import Graph
from av.video.stream import VideoStream
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.photo.decode import MAX_PIXELS

HDR = (16, 18)  # transfer functions of BT.2100, by their numbers in H.273: PQ and HLG


@dataclass(frozen=True)
class VideoInfo:
    """What is known of a video before its frames are read.

    Args:
        width: Of the upright frames, in pixels.
        height: Of the upright frames, in pixels.
        rate: Frames a second, on average.
        frames: Number of frames as the file says, perhaps wrongly; 0 where it does not.
        comment: The file's comment, or None.
        dropped: What is not copied, for people: other streams, the range of HDR.
        hdr: Whether the film is HDR, so that its frames come in the colours of SDR.
    """

    width: int
    height: int
    rate: float
    frames: int
    comment: str | None
    dropped: tuple[str, ...]
    hdr: bool = False


@dataclass(frozen=True)
class Frame:
    """One frame.

    Args:
        index: Counts from 0, in the order of showing.
        pixels: RGB `(H, W, 3)` uint8, upright; of an HDR film in the colours of BT.709, as SDR films have them.
        pts: When it is shown, in units of `time_base` seconds.
        time_base: That unit.
    """

    index: int
    pixels: NDArray[np.uint8]
    pts: int
    time_base: Fraction


def read_info(path: Path) -> VideoInfo:
    """Look into a video file.

    Raises:
        UserError: If it is missing, no video, empty or too large.
    """
    with _opened(path) as container:
        stream = video_of(container, path)
        with readable(path):
            # Only a decoded frame shows that the file can be read, and how it is turned.
            first = next(container.decode(stream), None)
        if first is None:
            raise UserError(f"{path} has no frame that can be shown; the file is damaged or cut short")
        if first.width * first.height > MAX_PIXELS:
            raise UserError(f"{path} has frames of more than {MAX_PIXELS // 1_000_000} million pixels; make it smaller")
        turned = _turns(first) % 2 == 1
        if turned:
            width = first.height
            height = first.width
        else:
            width = first.width
            height = first.height
        comments = []
        for name, text in container.metadata.items():
            # Matroska writes the names of its tags in capitals.
            if name.lower() == "comment":
                comments.append(text)
        dropped = _dropped(container, stream)
        hdr = first.color_trc in HDR
        if hdr:
            dropped += ("the range of HDR (the colours are those of SDR now, BT.709)",)
        comment = comments[0] if comments else None
        return VideoInfo(width, height, _rate(stream), stream.frames, comment, dropped, hdr)


def read_frames(path: Path, wanted: Container[int] | None = None) -> Iterator[Frame]:
    """The frames of a video, turned upright, with strictly rising times.

    Args:
        path: The video.
        wanted: Numbers of the frames to give; None for all. The others are decoded, which those after them need, but
            not converted.

    Raises:
        UserError: If the file is damaged, or its frames change their size.
    """
    with _opened(path) as container, readable(path):
        stream = video_of(container, path)
        stream.thread_type = "AUTO"
        # MPEG's clock, where the file names none.
        unit = stream.time_base or Fraction(1, 90_000)
        # The usual time of one frame, for frames that say no time of their own.
        step = max(1, round(1 / (Fraction(_rate(stream)).limit_denominator(100_000) * unit)))
        last = None
        shape = None
        to_sdr = None
        for index, frame in enumerate(container.decode(stream)):
            if frame.is_corrupt:
                raise UserError(f"{path} is damaged at frame {index}; repair or cut it first")
            if shape not in (None, (frame.height, frame.width)):
                raise UserError(f"{path} changes its picture size at frame {index}; convert it to one size first")
            shape = (frame.height, frame.width)
            if frame.pts is not None:
                time = frame.pts
            elif last is None:
                time = 0
            else:
                time = last + step
            # Containers refuse times that do not rise.
            last = time if last is None else max(time, last + 1)
            if wanted is not None and index not in wanted:
                continue
            turns = _turns(frame)
            shown = frame
            if frame.color_trc in HDR:
                to_sdr = to_sdr or _sdr_graph(stream)
                to_sdr.vpush(frame)
                shown = to_sdr.vpull()
            # `rot90` gives a view of negative strides, which torch does not take.
            pixels = np.ascontiguousarray(np.rot90(shown.to_ndarray(format="rgb24"), turns), dtype=np.uint8)
            yield Frame(index, pixels, last, unit)


def _sdr_graph(stream: VideoStream) -> Graph:
    """Makes of a frame of HDR the RGB of an SDR screen.

    White paper, 203 cd/m2 in HDR (ITU-R BT.2408), becomes white; so does what is brighter still, as lamps are.
    """
    graph = Graph()
    colours = "out_transfer=bt709:out_primaries=bt709:out_color_matrix=bt709:intent=relative_colorimetric"
    graph.link_nodes(
        graph.add_buffer(template=stream),
        graph.add("scale", colours),
        graph.add("format", "rgb24"),
        graph.add("buffersink"),
    ).configure()
    return graph


@contextmanager
def _opened(path: Path) -> Iterator[InputContainer]:
    if not path.is_file():
        raise UserError(f"no such video: {path}")
    try:
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty; copy it again")
        container = av.open(str(path))
    except (av.FFmpegError, OSError, ValueError) as error:
        raise UserError(f"{path} is not a video that can be read; it may be cut short or of another kind") from error
    with container:
        yield container


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what the decoder raises into one line; what the loop's body raises passes."""
    try:
        yield
    except av.FFmpegError as error:
        raise UserError(f"{path} cannot be read to its end ({error.strerror}); it is damaged or cut short") from error


def video_of(container: InputContainer, path: Path) -> VideoStream:
    """The first stream of moving pictures; a cover is none."""
    for stream in container.streams.video:
        if "attached_pic" not in _disposition(stream):
            return stream
    raise UserError(f"{path} has no moving pictures in it; is it a sound file?")


def _disposition(stream: VideoStream) -> str:
    return stream.disposition.name or ""


def _dropped(container: InputContainer, kept: VideoStream) -> tuple[str, ...]:
    lost = []
    for stream in container.streams:
        if stream.index != kept.index and stream.type != "audio":
            lost.append(stream)
    return tuple(f"{stream.type} stream {stream.index}" for stream in lost)


def _rate(stream: VideoStream) -> float:
    rate = float(stream.average_rate or stream.guessed_rate or 25)
    if 0.01 <= rate <= 1000:
        return rate
    return 25.0


def _turns(frame: av.VideoFrame) -> int:
    """Quarter turns against the clock that make the frame upright."""
    return round(frame.rotation / 90) % 4
