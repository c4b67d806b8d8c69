"""The manifest of a video: where each track lies in each frame, in a form that takes few bytes. Nothing is secret.

The squares of a segment are kept as second differences of whole sixteenths of a pixel, byte planes apart, deflated. A
method whose way back is a sealed code has one for each face of each frame: of some 1.3 kB for a face of 128 px, so 30
kB a second at 24 frames, for which there is room beside a video, not in its comment.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.manifest import MAX_SIDE, CropGeometry, Manifest
from faceanon.photo.metadata import sidecar_of
from faceanon.pipeline.video.tracks import UNIT, Segment
from faceanon.sealed.envelope import SIZES, binding_of, seal, unseal

RECORD_VERSION = 2
READABLE_VERSIONS = (1, 2)  # 1 had no codes
MAX_FRAMES = 50_000_000
MAX_PLACES = 20_000_000  # squares in one video: 320 MB in memory
INLINE = {".mov": 60_000}  # QuickTime's tag counts its length in 16 bits
MOST_INLINE = 1_000_000


@dataclass(frozen=True)
class VideoRecord:
    """All that recovery needs, apart from the weights and the password.

    Args:
        shared: Method, model, weights' hash, sizes, salt, KDF and encoding, as for a photo; its layers are idle.
        frames: Number of frames.
        segments: Where the faces are.
        codes: Sealed code of every face, segment after segment and frame after frame; empty for methods without.
    """

    shared: Manifest
    frames: int
    segments: tuple[Segment, ...]
    codes: tuple[bytes, ...] = ()

    @property
    def faces(self) -> list[tuple[int, int, CropGeometry]]:
        """Frame, track and square of every face, in the order of `codes`."""
        squares = []
        for part in self.segments:
            for frame in range(part.start, part.stop):
                squares.append((frame, part.track, part.at(frame)))
        return squares

    def with_codes(self, codes: Mapping[tuple[int, int], bytes], secret: Secret) -> VideoRecord:
        """The same with the codes of all faces, given by frame and track, sealed."""
        sealed = []
        for frame, track, square in self.faces:
            sealed.append(seal(codes[frame, track], secret, self._binding(frame, track, square)))
        return replace(self, codes=tuple(sealed))

    def opened_codes(self, secret: Secret, name: str) -> dict[tuple[int, int], bytes]:
        """The codes of all faces by frame and track.

        Args:
            secret: Of the record's salt.
            name: What to call the video in messages.

        Raises:
            WrongPasswordError: If one does not open.
            UserError: If there are none, or one is damaged.
        """
        faces = self.faces
        if len(self.codes) != len(faces):
            raise UserError(
                f"{name} carries no sealed codes of its faces, without which this model brings nobody back; give the "
                "file as `faceanon anonymize` wrote it"
            )
        opened: dict[tuple[int, int], bytes] = {}
        for (frame, track, square), code in zip(faces, self.codes, strict=True):
            opened[frame, track] = unseal(code, secret, self._binding(frame, track, square), name)
        return opened

    def _binding(self, frame: int, track: int, square: CropGeometry) -> bytes:
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

    def to_json(self) -> str:
        """The record as one line of JSON, which `from_json` reads."""
        segments = []
        for part in self.segments:
            segments.append([part.track, part.start, len(part.places)])
        places = []
        for part in self.segments:
            places.append(part.places)
        sizes = []
        for code in self.codes:
            sizes.append(SIZES.index(len(code)))
        values = {
            "faceanon": "video",
            "version": RECORD_VERSION,
            "shared": json.loads(self.shared.to_json()) | {"layers": []},
            "frames": self.frames,
            "segments": segments,
            "places": base64.b64encode(_pack(places)).decode(),
            "sizes": base64.b64encode(bytes(sizes)).decode(),
            "codes": base64.b64encode(b"".join(self.codes)).decode(),
        }
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> VideoRecord:
        """Read what `to_json` wrote.

        Raises:
            UserError: If the text is no such record, or a value is missing or out of range.
        """
        try:
            return cls._from_values(json.loads(text))
        except UserError:
            raise
        except (ValueError, KeyError, IndexError, TypeError, RecursionError, zlib.error, binascii.Error) as error:
            raise UserError("the video's faceanon data are damaged; give the file as it was written") from error

    @classmethod
    def _from_values(cls, values: dict[str, Any]) -> VideoRecord:
        if values["version"] not in READABLE_VERSIONS:
            version = f"{values['version']!r:.40}"
            known = " and ".join(map(str, READABLE_VERSIONS))
            raise UserError(f"the video's faceanon data have version {version}; this faceanon reads {known}")
        if values["version"] == 1:
            values = {"sizes": "", "codes": ""} | values
        frames = values["frames"]
        heads = []
        for head in values["segments"]:
            heads.append(list(map(int, head)))
        if not isinstance(frames, int) or not 0 < frames <= MAX_FRAMES or not heads:
            raise ValueError("frames or segments")
        counts = []
        for track, start, count in heads:
            if track < 0 or start < 0 or count < 1 or start + count > frames:
                raise ValueError("a segment lies outside the video")
            counts.append(count)
        places = _unpack(base64.b64decode(values["places"], validate=True), counts)
        # A photo's record needs a face; any will do here, since the squares are checked on their own.
        stand_in = {"layers": [[{"center_x": 1, "center_y": 1, "axis_x": 1, "axis_y": 0}]]}
        shared = Manifest.from_json(json.dumps(values["shared"] | stand_in))
        segments = []
        for (track, start, _), part in zip(heads, places, strict=True):
            segments.append(Segment(track, start, part))
        codes = _split(values["codes"], values["sizes"])
        if len(codes) not in (0, sum(counts)):
            raise ValueError("not one code for each face")
        return cls(shared, frames, tuple(segments), codes)


def _split(joined: str, sizes: str) -> tuple[bytes, ...]:
    """Sealed codes from their bytes one after the other, and the number of each one's size among `SIZES`."""
    data = base64.b64decode(joined, validate=True)
    codes = []
    start = 0
    for number in base64.b64decode(sizes, validate=True):
        codes.append(data[start : start + SIZES[number]])
        start += SIZES[number]
    if start != len(data):
        raise ValueError("codes of another length")
    return tuple(codes)


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
    """The record of a video, from its comment or the sidecar.

    Raises:
        UserError: If there is none, or it is damaged.
    """
    sidecar = sidecar_of(video)
    try:
        # Any program may have written a comment; only ours begins so.
        if comment and comment.startswith('{"faceanon":"video"'):
            return VideoRecord.from_json(comment)
        if sidecar.is_file():
            return VideoRecord.from_json(sidecar.read_text(encoding="utf-8"))
    except (UserError, UnicodeDecodeError) as error:
        raise UserError(f"{video}: {error}") from error
    raise UserError(
        f"{video} carries no faceanon data; give the file as `faceanon anonymize` wrote it (with {sidecar.name}, if"
        " there was one)"
    )
