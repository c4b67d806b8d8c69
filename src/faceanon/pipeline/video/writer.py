"""Videos out through PyAV: whole under their name, or not there at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
from av.audio.stream import AudioStream
from av.packet import Packet
from av.video.stream import VideoStream

from faceanon.errors import UserError
from faceanon.files import unfinished
from faceanon.photo.c2pa import Credentials
from faceanon.pipeline.video.frames import Frame, VideoInfo, readable, video_of
from faceanon.pipeline.video.mark import add_mark, holds_mark
from faceanon.pipeline.video.tags import kept_tags


@dataclass(frozen=True)
class Quality:
    """How frames are written.

    Args:
        crf: x264's constant rate factor, 0 to 40: lower is better and larger.
        lossless: Keep every RGB pixel exactly instead: FFV1 in .mkv, x264's RGB mode in .mp4 and .mov.
        full_colour: Keep colour at full resolution (4:4:4). Faces come back better for about the same size, but
            browsers on telephones and most television sets cannot show it.

    Raises:
        UserError: If `crf` is out of range.
    """

    crf: int = 10
    lossless: bool = False
    full_colour: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.crf <= 40:
            raise UserError(f"--crf must be between 0 (best) and 40, not {self.crf}")

    def encoder(self, path: Path, width: int, height: int) -> tuple[str, str, dict[str, str]]:
        """Codec, pixel format and options for frames of this size."""
        if self.lossless and path.suffix.lower() == ".mkv":
            return "ffv1", "bgr0", {"level": "3"}
        if self.lossless:
            return "libx264rgb", "rgb24", {"crf": "0"}
        # Halving needs even sides.
        halved = not self.full_colour and width % 2 == 0 and height % 2 == 0
        return "libx264", "yuv420p" if halved else "yuv444p", {"crf": str(self.crf)}

    def __str__(self) -> str:
        if self.lossless:
            return "lossless"
        return f"H.264 crf {self.crf}{' 4:4:4' if self.full_colour else ''}"


class VideoWriter:
    """A new video with the sound and the times of another; whole under its name, or not there at all.

    Use as a context; leaving it by an exception leaves nothing behind. Of the other file only sound, times and colour
    description are taken, and what `keep` names: no device, no cover picture.

    Args:
        path: The video to write: .mp4, .mov or .mkv.
        template: The video whose sound, times and colours are taken.
        info: Of the template.
        quality: How to write.
        comment: What the file's comment says, or None.
        marked: Whether the file says that trained algorithms made a part of it, where its format has room for that.
        keep: `time` and `place`, where the template's recording time and place stay.
        credentials: Sign the file, by C2PA.

    Raises:
        UserError: If the sound does not fit the kind of file, or the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        template: Path,
        info: VideoInfo,
        quality: Quality,
        comment: str | None,
        marked: bool = False,
        keep: Collection[str] = (),
        credentials: Credentials | None = None,
    ) -> None:
        self.path = path
        self.template = template
        self.info = info
        self.quality = quality
        self.comment = comment
        self.marked = marked
        self.keep = keep
        self.credentials = credentials

    def __enter__(self) -> Self:
        # Opened a second time: sound is read here while somebody else reads the frames.
        self._input = av.open(str(self.template))
        with _writable(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # In the target's folder: a rename is atomic within one file system.
            handle, name = tempfile.mkstemp(self.path.suffix, unfinished(self.path), self.path.parent)
        os.close(handle)
        self.temporary = Path(name)
        self._signed = Path(f"{name}.signed")
        try:
            with _writable(self.path):
                self._out = av.open(name, "w")
                self._prepare()
        except BaseException:
            self._discard()
            raise
        return self

    def _prepare(self) -> None:
        if self.comment is not None:
            self._out.metadata["comment"] = self.comment
        self._out.metadata.update(kept_tags(self._input.metadata, self.keep))
        source = video_of(self._input, self.template)
        codec, pixel_format, options = self.quality.encoder(self.path, self.info.width, self.info.height)
        rate = source.average_rate or source.guessed_rate or Fraction(25)
        self._stream: VideoStream = self._out.add_stream(codec, rate=rate, options=options)  # type: ignore[assignment]
        self._stream.width = self.info.width
        self._stream.height = self.info.height
        self._stream.pix_fmt = pixel_format
        context = self._stream.codec_context
        given = source.codec_context
        # The template's own unit, in which the times of its frames are whole numbers.
        context.time_base = source.time_base or Fraction(1, 90_000)
        # The upright width differs where frames were turned: their pixels are stretched along the other axis then.
        if (ratio := given.sample_aspect_ratio) and self.info.width == given.width:
            context.sample_aspect_ratio = ratio
        self._yuv = pixel_format.startswith("yuv")
        if self._yuv:
            context.color_primaries = given.color_primaries
            context.color_trc = given.color_trc
            if given.colorspace != 0:  # 0 is RGB, which these pixels are no longer
                context.colorspace = given.colorspace
            if self.info.hdr:
                # `read_frames` has made SDR of it: all three are BT.709.
                context.color_primaries = 1
                context.color_trc = 1
                context.colorspace = 1
            # The narrow range, which every player expects.
            context.color_range = 1
        sounds = list(self._input.streams.audio)
        self._sounds = {stream.index: self._out.add_stream_from_template(stream) for stream in sounds}
        self._out.start_encoding()
        self._packets = self._sound_packets(sounds)
        self._waiting = next(self._packets, None)

    def _sound_packets(self, sounds: list[AudioStream]) -> Iterator[Packet[Any]]:
        if sounds:
            with readable(self.template):
                # PyAV ends a stream with a packet without time, which holds nothing.
                yield from (packet for packet in self._input.demux(sounds) if packet.dts is not None)

    def write(self, frame: Frame) -> None:
        """Add a frame; they come in order."""
        with _writable(self.path):
            picture = av.VideoFrame.from_ndarray(frame.pixels, "rgb24")
            context = self._stream.codec_context
            if self._yuv:
                # Of FFmpeg's colour spaces these have a conversion from RGB; of any other, 5 (BT.601) is what players
                # assume.
                space = 5
                if context.colorspace in (1, 5, 6, 7, 9):
                    space = context.colorspace
                picture = picture.reformat(format=context.pix_fmt, dst_colorspace=space, dst_color_range=1)
            picture.pts = frame.pts
            picture.time_base = frame.time_base
            self._out.mux(self._stream.encode(picture))
            self._copy_sound(float(frame.pts * frame.time_base))

    def _copy_sound(self, until: float | None) -> None:
        """Copy the sound up to this second, or what is left of it."""
        # Sound and pictures alternate in the file, so that a player need not read ahead.
        while (packet := self._waiting) is not None:
            unit = packet.time_base
            if until is not None and packet.dts is not None and float(packet.dts * unit) > until:
                return
            packet.stream = self._sounds[packet.stream_index]
            self._out.mux_one(packet)
            self._waiting = next(self._packets, None)

    def finish(self) -> None:
        """Write what is pending; the file is complete, but still under its temporary name."""
        with _writable(self.path):
            self._out.mux(self._stream.encode(None))
            self._copy_sound(None)
            self._out.close()
            if self.marked and holds_mark(self.path):
                add_mark(self.temporary)
            if self.credentials is not None:
                with self.temporary.open("rb") as film, self._signed.open("wb+") as signed:
                    self.credentials.sign(film, signed, self.path)
                self._signed.replace(self.temporary)
        # mkstemp lets only the owner read.
        self.temporary.chmod(0o644)

    def publish(self) -> None:
        """Give the finished file its name."""
        with _writable(self.path):
            # The data have to be on the disk before the name points to them.
            with self.temporary.open("rb") as file:
                os.fsync(file.fileno())
            self.temporary.replace(self.path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    def _discard(self) -> None:
        """Close everything; a file that was not published goes."""
        for container in (getattr(self, "_out", None), self._input):
            if container is not None:
                # An unfinished file may not close; why it is unfinished was said before.
                with suppress(av.FFmpegError, OSError, ValueError):
                    container.close()
        self.temporary.unlink(missing_ok=True)
        self._signed.unlink(missing_ok=True)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except (av.FFmpegError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise UserError(f"cannot write {path}: no space left on the disk; free some first") from error
        reason = getattr(error, "strerror", None) or str(error)
        unfit = isinstance(error, (av.FFmpegError, ValueError)) and path.suffix.lower() != ".mkv"
        hint = ""
        if unfit:
            hint = "; the sound may not fit this kind of file, try .mkv"
        raise UserError(f"cannot write {path}: {reason}{hint}") from error
