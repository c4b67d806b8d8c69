"""The manifest of a video: where each track lies in each frame, in a form that takes few bytes. Nothing is secret.

The squares of a segment are kept as second differences of whole sixteenths of a pixel, byte planes apart, deflated. A
method whose way back is a sealed code has one for each face of each frame: of some 1.3 kB for a face of 128 px, so 30
kB a second at 24 frames, for which there is room beside a video, not in its comment. There the record is the first line
of the sidecar, and the codes follow it (`faceanon.pipeline.video.codes`).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.manifest import MAX_SIDE, CropGeometry, Manifest
from faceanon.photo.metadata import SIDECAR_SUFFIX, sidecar_of
from faceanon.pipeline.video.frames import read_info
from faceanon.pipeline.video.tracks import UNIT, Segment
from faceanon.sealed.envelope import SIZES, binding_of

RECORD_VERSION = 4
MAX_FRAMES = 50_000_000
MAX_TRACKS = 1 << 31
MAX_PLACES = 20_000_000  # squares in one video: 320 MB in memory
INLINE = {".mov": 60_000}  # QuickTime's tag counts its length in 16 bits
MOST_INLINE = 1_000_000
MAX_LINE_BYTES = 500_000_000  # of a record in a sidecar, without the codes that follow it
BEGINNING = '{"faceanon":"video"'  # of a record
DAMAGED = "the video's faceanon data are damaged; give the file as it was written"


@dataclass(frozen=True)
class CodeBody:
    """What a record says of the sealed codes that follow it in its sidecar.

    Args:
        codes: How many there are: one for each face of each frame.
        size: Bytes of all of them, with the byte that stands before each.
    """

    codes: int
    size: int


@dataclass(frozen=True)
class VideoRecord:
    """All that recovery needs, apart from the weights and the password.

    Args:
        shared: Method, model, weights' hash, sizes, salt, KDF and encoding, as for a photo; its layers are idle.
        frames: Number of frames.
        segments: Where the faces are.
        body: The sealed codes that follow the record, or None.
    """

    shared: Manifest
    frames: int
    segments: tuple[Segment, ...]
    body: CodeBody | None = None

    def binding(self, frame: int, track: int, square: CropGeometry) -> bytes:
        """A code opens for this model, this square of this frame, and a video of this size alone."""
        place = (square.center_x, square.center_y, square.axis_x, square.axis_y, self.shared.width, self.shared.height)
        return binding_of(self.shared.weights, (*place, frame, track))

    def at(self, frame: int) -> list[tuple[int, CropGeometry]]:
        """Track and square of every face in a frame."""
        squares = []
        for part in self.segments:
            if part.start <= frame < part.stop:
                squares.append((part.track, part.at(frame)))
        return squares

    @property
    def tracks(self) -> int:
        """Number of faces that were followed."""
        return len({part.track for part in self.segments})

    @property
    def faces(self) -> int:
        """Number of faces in all frames together."""
        return sum(len(part.places) for part in self.segments)

    def to_json(self) -> str:
        """The record as one line of JSON, which `from_json` reads; what follows it in a sidecar is not in it."""
        segments = []
        for part in self.segments:
            segments.append([part.track, part.start, len(part.places)])
        places = []
        for part in self.segments:
            places.append(part.places)
        values = {
            "faceanon": "video",
            "version": RECORD_VERSION,
            "shared": json.loads(self.shared.to_json()) | {"layers": []},
            "frames": self.frames,
            "segments": segments,
            "places": base64.b64encode(_pack(places)).decode(),
        }
        if self.body is not None:
            values["sealed_codes"] = self.body.codes
            values["sealed_bytes"] = self.body.size
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, following: int = 0) -> VideoRecord:
        """Read what `to_json` wrote.

        Args:
            text: The record.
            following: Number of bytes that follow it in its file.

        Raises:
            UserError: If the text is no such record, a value is missing or out of range, or more or fewer bytes follow
                than it says.
        """
        try:
            return cls._from_values(json.loads(text), following)
        except UserError:
            raise
        # `OverflowError`: JSON's Infinity, and whole numbers that are too large for a float.
        except (
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            OverflowError,
            RecursionError,
            zlib.error,
            binascii.Error,
        ) as error:
            raise UserError(DAMAGED) from error

    @classmethod
    def _from_values(cls, values: dict[str, Any], following: int) -> VideoRecord:
        version = values["version"]
        if version != RECORD_VERSION:
            line = f"the video's faceanon data have version {version!r:.40}; this faceanon reads {RECORD_VERSION}"
            raise UserError(line)
        frames = values["frames"]
        heads = []
        for head in values["segments"]:
            heads.append(list(map(int, head)))
        if not isinstance(frames, int) or not 0 < frames <= MAX_FRAMES or not heads:
            raise ValueError("frames or segments")
        counts = []
        for track, start, count in heads:
            if not 0 <= track < MAX_TRACKS or start < 0 or count < 1 or start + count > frames:
                raise ValueError("a segment lies outside the video")
            counts.append(count)
        # Before the squares are unpacked: a few bytes may claim to be millions of them, each of which needs a code.
        body = None
        if "sealed_codes" in values:
            body = _body(values, sum(counts), following)
        elif following:
            raise ValueError("something follows")
        places = _unpack(base64.b64decode(values["places"], validate=True), counts)
        # A photo's record needs a face; any will do here, since the squares are checked on their own.
        stand_in = {"layers": [[{"center_x": 1, "center_y": 1, "axis_x": 1, "axis_y": 0}]]}
        shared = Manifest.from_json(json.dumps(values["shared"] | stand_in))
        segments = []
        for (track, start, _), part in zip(heads, places, strict=True):
            segments.append(Segment(track, start, part))
        return cls(shared, frames, tuple(segments), body)


def _body(values: dict[str, Any], faces: int, following: int) -> CodeBody:
    """What a record says of the codes that follow it, where it agrees with its faces and its file."""
    codes = values["sealed_codes"]
    size = values["sealed_bytes"]
    # In Python a bool is an int.
    if type(codes) is not int or type(size) is not int or codes != faces:
        raise ValueError("not one code for each face")
    # A byte and a code of the smallest or the largest size for each.
    if not faces * (1 + SIZES[0]) <= size <= faces * (1 + SIZES[-1]):
        raise ValueError("codes of another length")
    if following < size:
        raise UserError(
            f"the video's faceanon data are cut short, {following} of {size} bytes of sealed codes are there; give the "
            "file as it was written"
        )
    if following > size:
        raise ValueError("more follows than the codes")
    return CodeBody(codes, size)


def _pack(parts: list[NDArray[np.int32]]) -> bytes:
    second = []
    for part in parts:
        # After two rows of zeros there are as many differences as squares, and the first is the first square itself.
        second.append(np.diff(part.astype(np.int64), n=2, axis=0, prepend=np.zeros((2, 4), np.int64)))
    # Byte planes apart: the high bytes of small differences are all alike, which packs well.
    words = np.concatenate(second).T.astype("<i4")  # column after column
    return zlib.compress(np.frombuffer(words.tobytes(), np.uint8).reshape(-1, 4).T.tobytes(), 9)


def _unpack(data: bytes, counts: list[int]) -> list[NDArray[np.int32]]:
    total = sum(counts)
    if total > MAX_PLACES:
        raise ValueError("too many squares")
    # Bounded: one byte more than expected shows that there is too much.
    planes = zlib.decompressobj().decompress(data, 16 * total + 1)
    if len(planes) != 16 * total:
        raise ValueError("the squares do not fit the segments")
    words = np.frombuffer(planes, np.uint8).reshape(4, -1).T.tobytes()
    second = np.frombuffer(words, "<i4").reshape(4, total).T.astype(np.int64)
    parts = []
    for part in np.split(second, np.cumsum(counts)[:-1]):
        parts.append(part.cumsum(0).cumsum(0))
    for part in parts:
        # Checked in 64 bits, since sums of forged differences may not fit into 32.
        if np.abs(part).max() > MAX_SIDE * UNIT or np.hypot(part[:, 2], part[:, 3]).min() < UNIT / 2:
            raise ValueError("a square is absurd")
    return [part.astype(np.int32) for part in parts]


def fits_inside(video: Path, text: str) -> bool:
    """Whether the record can travel in the video's own comment."""
    return len(text) <= INLINE.get(video.suffix.lower(), MOST_INLINE)


def read_record(video: Path, comment: str | None) -> VideoRecord:
    """The record of a video, from its comment or the sidecar; codes that follow it are counted, not read.

    Raises:
        UserError: If there is none, or it is damaged.
    """
    sidecar = sidecar_of(video)
    try:
        # Any program may have written a comment; only ours begins so.
        if comment and comment.startswith(BEGINNING):
            return VideoRecord.from_json(comment)
        if sidecar.is_file():
            return read_sidecar_record(sidecar)
    except UserError as error:
        raise UserError(f"{video}: {error}") from error
    raise UserError(
        f"{video} carries no faceanon data; give the file as `faceanon anonymize` wrote it (with {sidecar.name}, if"
        " there was one)"
    )


def record_of(path: Path) -> tuple[VideoRecord, str]:
    """The record of a video or of a sidecar.

    Returns:
        The record, and where it was: `in the file`, or the sidecar's name.

    Raises:
        UserError: If there is none, or it is damaged.
    """
    if path.name.endswith(SIDECAR_SUFFIX):
        try:
            return read_sidecar_record(path), path.name
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
    comment = read_info(path).comment
    record = read_record(path, comment)
    inside = comment is not None and comment.startswith(BEGINNING)
    return record, "in the file" if inside else sidecar_of(path).name


def holds_record(video: Path, comment: str | None) -> bool:
    """Whether a video with this comment carries a record, in itself or beside it; it may be damaged."""
    if comment and comment.startswith(BEGINNING):
        return True
    return is_record(sidecar_of(video))


def is_record(sidecar: Path) -> bool:
    """Whether a file is there that begins as the record of a video does.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        with sidecar.open("rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING.encode()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UserError(f"cannot read {sidecar}: {error.strerror}") from error


def read_sidecar_record(sidecar: Path) -> VideoRecord:
    """The record in a file beside a video; codes that follow it are counted, not read.

    Raises:
        UserError: If it cannot be read, or is damaged.
    """
    try:
        with sidecar.open("rb") as file:
            # Codes have no lines: what has no newline may be as long as the disk.
            line = file.readline(MAX_LINE_BYTES + 1)
            following = os.fstat(file.fileno()).st_size - len(line)
    except OSError as error:
        raise UserError(f"cannot read {sidecar}: {error.strerror}") from error
    if len(line) > MAX_LINE_BYTES:
        raise UserError(DAMAGED)
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise UserError(DAMAGED) from error
    return VideoRecord.from_json(text, following)
