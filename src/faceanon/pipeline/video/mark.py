"""The mark of a film: XMP in a box of its own at the end of an MP4 or a QuickTime file, which players pass over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from faceanon.photo.mark import SOURCE_TYPE, packet

XMP_BOX = UUID("be7acfcb-97a9-42e8-9c71-999491e3afac").bytes  # ISO 16684-3
ENDINGS = frozenset({".mov", ".mp4"})  # Matroska has no place for XMP
MOST_XMP_BYTES = 1_000_000
_HEAD = 8  # bytes: the length of the whole box, and its kind


def holds_mark(film: Path) -> bool:
    """Whether the format that the name says has room for the mark.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.pipeline.video.mark import holds_mark
        >>> holds_mark(Path("party.mp4")), holds_mark(Path("party.mkv"))
        (True, False)
    """
    return film.suffix.lower() in ENDINGS


def add_mark(film: Path) -> None:
    """Write the mark behind a finished film.

    Raises:
        OSError: If it cannot be written.
    """
    body = b"uuid" + XMP_BOX + packet()
    with film.open("ab") as file:
        # The length counts its own four bytes too.
        file.write((len(body) + 4).to_bytes(4, "big") + body)


def is_marked(film: Path) -> bool:
    """Whether a film carries the mark.

    Raises:
        OSError: If it cannot be read.
    """
    if not holds_mark(film):
        return False
    with film.open("rb") as file:
        for kind, length in _boxes(file):
            if kind == b"uuid" and length <= MOST_XMP_BYTES:
                body = file.read(length)
                if body.startswith(XMP_BOX) and SOURCE_TYPE.encode() in body:
                    return True
    return False


def _boxes(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Kind and length of what each box of a file holds; the file stands where that begins."""
    end = file.seek(0, os.SEEK_END)
    start = 0
    while start + _HEAD <= end:
        file.seek(start)
        head = file.read(_HEAD)
        length = int.from_bytes(head[:4], "big")
        # A length of 1: it did not fit, and follows in eight bytes.
        if length == 1:
            length = int.from_bytes(file.read(8), "big")
        # A length of 0: up to the end of the file.
        if length == 0:
            length = end - start
        inside = start + length - file.tell()
        if inside < 0:
            return
        yield head[4:], inside
        start += length
