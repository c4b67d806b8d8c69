"""Sealed codes of a video's faces, one for each face of each frame, in a file instead of in memory.

    record as one line of JSON, newline, then for each face: one byte that says which of `SIZES` its code has, the code

The faces stand frame after frame, and in a frame track after track, as they are drawn. An hour of two faces has 180,000
codes of together 230 MB, so none is kept: each is sealed and written when its face is drawn, and read and opened when
its face is drawn back. What is kept of a face are 20 bytes: its frame, track and segment, and where its code begins.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.files import unwritable, write_parts
from faceanon.key import Secret
from faceanon.photo.metadata import sidecar_of
from faceanon.pipeline.video.record import DAMAGED, MAX_TRACKS, CodeBody, VideoRecord
from faceanon.sealed.envelope import SIZES, check_sealed, seal, unseal

COPIED_BYTES = 1 << 18  # at a time, of the codes on their way into the sidecar


class FaceOrder:
    """The faces of a record in the order of its codes: frame after frame, and in a frame track after track.

    Args:
        record: Where the faces are.

    Raises:
        UserError: If a track has two squares in one frame.
    """

    def __init__(self, record: VideoRecord) -> None:
        self._record = record
        keys = []
        parts = []
        for number, part in enumerate(record.segments):
            keys.append(np.arange(part.start, part.stop, dtype=np.int64) * MAX_TRACKS + part.track)
            parts.append(np.full(len(part.places), number, dtype=np.int32))
        unsorted = np.concatenate(keys)
        order = np.argsort(unsorted)
        # Frame and track as one number, which sorts as the faces do; and the segment that holds the square.
        self._keys: NDArray[np.int64] = unsorted[order]
        self._parts: NDArray[np.int32] = np.concatenate(parts)[order]
        # No tracker writes that, and of two codes for one face nobody knows which is meant.
        if (self._keys[1:] == self._keys[:-1]).any():
            raise UserError(DAMAGED)

    def __len__(self) -> int:
        return len(self._keys)

    def face(self, position: int) -> tuple[int, int]:
        """Frame and track of the face that is at `position`, counted from 0."""
        return divmod(int(self._keys[position]), MAX_TRACKS)

    def position(self, frame: int, track: int) -> int:
        """Where the face of a track in a frame comes, counted from 0.

        Raises:
            KeyError: If the track has no face in the frame.
        """
        key = frame * MAX_TRACKS + track
        position = int(np.searchsorted(self._keys, key))
        if position == len(self._keys) or self._keys[position] != key:
            raise KeyError((frame, track))
        return position

    def binding(self, position: int) -> bytes:
        """What ties a code to the face that is at `position`."""
        frame, track = self.face(position)
        square = self._record.segments[self._parts[position]].at(frame)
        return self._record.binding(frame, track, square)


class StoredCodes(Mapping[tuple[int, int], bytes]):
    """The codes of a video's faces by frame and track, each read and opened when it is asked for.

    Several threads may ask at once.

    Args:
        file: Holds the sealed codes; read only, and left open.
        offsets: `(faces + 1,)` int64: where each code begins in the file, with the byte before it, and the end.
        faces: The order of the codes.
        secret: Of the record's salt.
        name: What to call the video in messages.
    """

    def __init__(self, file: BinaryIO, offsets: NDArray[np.int64], faces: FaceOrder, secret: Secret, name: str) -> None:
        self._file = file
        self._offsets = offsets
        self._faces = faces
        self._secret = secret
        self._name = name
        self._lock = threading.Lock()

    def __getitem__(self, place: tuple[int, int]) -> bytes:
        """The code of a face, by frame and track.

        Raises:
            KeyError: If the track has no face in the frame.
            WrongPasswordError: If the code does not open.
            UserError: If it is damaged, or the file cannot be read.
        """
        return self._opened(self._faces.position(*place))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for position in range(len(self)):
            yield self._faces.face(position)

    def __len__(self) -> int:
        return len(self._faces)

    def check(self) -> None:
        """Open every code once and keep none.

        Raises:
            WrongPasswordError: If one does not open.
            UserError: If one is damaged, or the file cannot be read.
        """
        for position in range(len(self)):
            self._opened(position)

    def _opened(self, position: int) -> bytes:
        start = int(self._offsets[position]) + 1
        stop = int(self._offsets[position + 1])
        try:
            # The threads share the place in the file.
            with self._lock:
                self._file.seek(start)
                sealed = self._file.read(stop - start)
        except OSError as error:
            raise UserError(f"{self._name}: its sealed codes cannot be read: {error.strerror}") from error
        return unseal(sealed, self._secret, self._faces.binding(position), self._name)


class CodeWriter:
    """Seals the codes of a video's faces into a file, one by one in the order in which the faces are drawn.

    Args:
        file: Empty, open for writing and reading, and left open.
        sidecar: The file that `save` writes.
        record: Where the faces are.
        secret: Of the record's salt.
    """

    def __init__(self, file: BinaryIO, sidecar: Path, record: VideoRecord, secret: Secret) -> None:
        self._file = file
        self._sidecar = sidecar
        self._record = record
        self._secret = secret
        self._faces = FaceOrder(record)
        self._offsets = np.zeros(len(self._faces) + 1, dtype=np.int64)
        self._written = 0

    def add(self, frame: int, track: int, code: bytes) -> None:
        """Seal the code of the next face and append it.

        Args:
            frame: Number of the frame.
            track: Number of the track.
            code: Not yet sealed.

        Raises:
            ValueError: If another face comes next.
            UserError: If the file cannot be written.
        """
        position = self._written
        if position == len(self._faces) or self._faces.face(position) != (frame, track):
            raise ValueError(f"the code of track {track} in frame {frame} comes out of turn")
        sealed = seal(code, self._secret, self._faces.binding(position))
        try:
            self._file.write(bytes([SIZES.index(len(sealed))]))
            self._file.write(sealed)
        except OSError as error:
            raise unwritable(self._sidecar, error) from error
        self._offsets[position + 1] = self._offsets[position] + 1 + len(sealed)
        self._written += 1

    def stored(self, name: str) -> StoredCodes:
        """The codes that were written, to read them again; none is added any more.

        Args:
            name: What to call the video in messages.

        Raises:
            UserError: If the file cannot be written.
        """
        try:
            # A full disk may show only now.
            self._file.flush()
        except OSError as error:
            raise unwritable(self._sidecar, error) from error
        return StoredCodes(self._file, self._offsets, self._faces, self._secret, name)

    def save(self) -> None:
        """Write the record and its codes to the sidecar, whole or not at all.

        Raises:
            ValueError: If the code of a face is missing.
            UserError: If the file cannot be written.
        """
        if self._written != len(self._faces):
            raise ValueError(f"{self._written} of {len(self._faces)} faces have a code")
        write_parts(self._sidecar, self._parts())

    def _parts(self) -> Iterator[bytes]:
        body = CodeBody(self._written, int(self._offsets[-1]))
        record = replace(self._record, body=body)
        yield record.to_json().encode() + b"\n"
        self._file.seek(0)
        while part := self._file.read(COPIED_BYTES):
            yield part


@contextmanager
def new_codes(target: Path, record: VideoRecord, secret: Secret) -> Iterator[CodeWriter]:
    """A writer of sealed codes, whose file lies in the folder of the video and is gone afterwards.

    Args:
        target: The video; its folder is there.
        record: Where the faces are.
        secret: Of the record's salt.

    Raises:
        UserError: If the file cannot be written.
    """
    sidecar = sidecar_of(target)
    try:
        # It has no name on most systems, so nothing of it stays even where the process is killed.
        file = tempfile.TemporaryFile(dir=target.parent)  # noqa: SIM115 - closed below, where a full disk is no matter
    except OSError as error:
        raise unwritable(sidecar, error) from error
    try:
        yield CodeWriter(file, sidecar, record, secret)
    finally:
        # What a full disk does not take here is not needed any more.
        with suppress(OSError):
            file.close()


@contextmanager
def stored_codes(video: Path, record: VideoRecord, secret: Secret) -> Iterator[StoredCodes]:
    """The codes of a written video, from the file beside it; it is closed afterwards.

    Args:
        video: The video.
        record: Its own, as `read_record` gives it.
        secret: Of the record's salt.

    Raises:
        UserError: If there are no codes, they are damaged, or the file cannot be read. The password is not tried here,
            so that damage says so under any.
    """
    name = str(video)
    if record.body is None:
        raise UserError(
            f"{name} carries no sealed codes of its faces, without which this model brings nobody back; give the file "
            "as `faceanon anonymize` wrote it"
        )
    try:
        faces = FaceOrder(record)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    with _opened(sidecar_of(video)) as file:
        offsets = _offsets(file, record.body.size, len(faces), name)
        yield StoredCodes(file, offsets, faces, secret, name)


def _opened(sidecar: Path) -> BinaryIO:
    try:
        return sidecar.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {sidecar}: {error.strerror}") from error


def _offsets(file: BinaryIO, size: int, count: int, name: str) -> NDArray[np.int64]:
    """Where each code begins, with the byte before it, and where the last one ends.

    Args:
        file: Ends with the codes.
        size: Bytes of all of them.
        count: How many there are.
        name: What to call the video in messages.

    Raises:
        UserError: If one cannot be a sealed code, or there are more or fewer.
    """
    offsets = np.zeros(count + 1, dtype=np.int64)
    try:
        start = file.seek(0, os.SEEK_END) - size
        file.seek(start)
        offsets[0] = start
        for position in range(count):
            number = file.read(1)
            if not number or number[0] >= len(SIZES):
                raise UserError(f"{name}: {DAMAGED}")
            sealed = file.read(SIZES[number[0]])
            if len(sealed) != SIZES[number[0]]:
                raise UserError(f"{name}: {DAMAGED}")
            check_sealed(sealed, name)
            offsets[position + 1] = offsets[position] + 1 + len(sealed)
        if file.read(1):
            raise UserError(f"{name}: {DAMAGED}")
    except OSError as error:
        raise UserError(f"{name}: its sealed codes cannot be read: {error.strerror}") from error
    return offsets
