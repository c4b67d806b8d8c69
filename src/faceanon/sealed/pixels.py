"""Bytes in the lowest bits of some windows of a picture, for files whose metadata somebody strips.

    magic, width, height, part, parts, bytes, checksum, bytes of the part: bit by bit through a window's rows

A window is found by its magic, wherever it lies, so nothing but the pixels is needed. They have to stay as they are: a
picture that was scaled, or saved as JPEG, has lost what they carried.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError

Window = tuple[int, int, int, int]
"""Left, top, right and bottom, in pixels."""

MAGIC = bytes.fromhex("b7e151628aed2a6a")  # first bits of e - 2: no picture has them by chance
HEAD = struct.Struct(">HHHHII")
FIRST = 27  # pixels of the row that magic and width take
MOST_BYTES = 4_000_000  # of the payload, unpacked


def embed(pixels: NDArray[np.uint8], windows: Sequence[Window], payload: bytes) -> None:
    """Write bytes into the lowest bits of windows, in place.

    Args:
        pixels: RGB `(H, W, 3)` uint8.
        windows: Where they may lie; of windows that overlap the smaller ones are left as they are.
        payload: What to write; it is deflated first.

    Raises:
        UserError: If there is not room enough.

    Examples:
        >>> import numpy as np
        >>> from faceanon.sealed.pixels import embed, find
        >>> photo = np.full((100, 100, 3), 200, dtype=np.uint8)
        >>> embed(photo, windows=[(10, 10, 60, 60)], payload=b"what recovery needs")
        >>> int(photo.min()), int(photo.max())  # nobody sees a step of one
        (200, 201)
        >>> find(photo)
        b'what recovery needs'
        >>> find(photo // 2 * 2) is None  # the lowest bits are gone
        True
    """
    data = zlib.compress(payload, 9)
    roomy = []
    for window in windows:
        # In a narrower window magic and width would not fit into the first row, where `find` reads them.
        if window[2] - window[0] >= FIRST:
            roomy.append(window)
    chosen = _apart(roomy)
    room = list(map(_room, chosen))
    if sum(room) < len(data):
        raise UserError(
            f"the faces' pixels have room for {sum(room)} bytes and {len(data)} are to be carried: the faces are too "
            "small for --carry pixels; leave it away"
        )
    # Only as many windows as it takes, the largest first.
    parts = []
    for window, most in zip(chosen, room, strict=True):
        if data and most > 0:
            parts.append((window, data[:most]))
            data = data[most:]
    for number, (window, part) in enumerate(parts):
        _write(pixels, window, part, number, len(parts))


def find(pixels: NDArray[np.uint8]) -> bytes | None:
    """What `embed` wrote into a picture `(H, W, 3)` uint8, or None where there is nothing, or not all of it."""
    parts: dict[int, bytes] = {}
    count = 0
    for left, top in _magics(pixels):
        part = _read(pixels, left, top)
        if part is not None:
            number, count, data = part
            parts[number] = data
    if not parts or sorted(parts) != list(range(count)):
        return None
    unpacker = zlib.decompressobj()
    try:
        # Bounded: a few bytes may claim to unpack to more than the memory holds.
        payload = unpacker.decompress(b"".join(parts[number] for number in range(count)), MOST_BYTES)
    except zlib.error:
        return None
    # Without its end the payload was cut short, or is longer than any of ours.
    if unpacker.eof:
        return payload
    return None


def has_part(pixels: NDArray[np.uint8]) -> bool:
    """Whether a window of carried data still stands there, even if not all of them do.

    Args:
        pixels: RGB `(H, W, 3)` uint8.

    Examples:
        >>> import numpy as np
        >>> from faceanon.sealed.pixels import embed, find, has_part
        >>> photo = np.full((100, 100, 3), 200, dtype=np.uint8)
        >>> has_part(photo)
        False
        >>> embed(photo, windows=[(10, 10, 60, 60)], payload=b"what recovery needs")
        >>> photo[10, 50:60] ^= 1  # damage
        >>> find(photo) is None, has_part(photo)
        (True, True)
    """
    return bool(_magics(pixels))


def _room(window: Window) -> int:
    """Bytes of payload that a window holds; may be negative."""
    left, top, right, bottom = window
    return (right - left) * (bottom - top) * 3 // 8 - len(MAGIC) - HEAD.size


def _apart(windows: Sequence[Window]) -> list[Window]:
    """Windows that do not overlap, the largest first."""
    chosen: list[Window] = []
    for window in sorted(windows, key=_room, reverse=True):
        left, top, right, bottom = window
        if all(left >= r or right <= x or top >= b or bottom <= y for x, y, r, b in chosen):
            chosen.append(window)
    return chosen


def _write(pixels: NDArray[np.uint8], window: Window, part: bytes, number: int, parts: int) -> None:
    left, top, right, bottom = window
    head = HEAD.pack(right - left, bottom - top, number, parts, len(part), zlib.crc32(part))
    bits = np.unpackbits(np.frombuffer(MAGIC + head + part, np.uint8))
    inside = pixels[top:bottom, left:right]
    # A window's rows do not lie behind each other in memory, so this is a copy and has to be written back below.
    flat = inside.reshape(-1)
    flat[: len(bits)] = (flat[: len(bits)] & 0xFE) | bits
    pixels[top:bottom, left:right] = flat.reshape(inside.shape)


def _magics(pixels: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Left and top of every place where the magic stands."""
    width = pixels.shape[1]
    # A byte for each bit, so that the search is one of bytes.
    bits = (pixels & 1).tobytes()
    wanted = np.unpackbits(np.frombuffer(MAGIC, np.uint8)).tobytes()
    corners = []
    start = bits.find(wanted)
    while start >= 0:
        # A window begins with the red of a pixel; elsewhere the bits agree by chance.
        if start % 3 == 0:
            corners.append((start // 3 % width, start // 3 // width))
        start = bits.find(wanted, start + 1)
    return corners


def _read(pixels: NDArray[np.uint8], left: int, top: int) -> tuple[int, int, bytes] | None:
    """Number of the part, number of parts and its bytes, of the window with this corner; None where it is damaged."""
    height, width = pixels.shape[:2]
    # The 80 bits of magic and width come first: without the width nobody knows where the window's next row begins.
    row = np.packbits(pixels[top, left : left + FIRST].reshape(-1)[:80] & 1).tobytes()
    across = int.from_bytes(row[len(MAGIC) :], "big")
    if not FIRST <= across <= width - left:
        return None
    down = height - top
    begun = len(MAGIC) + HEAD.size
    # Everything here comes from outside: each size is checked before it is used as one.
    if across * down * 3 < 8 * begun:
        return None
    flat = (pixels[top:, left : left + across] & 1).reshape(-1)
    head = np.packbits(flat[: 8 * begun]).tobytes()
    _, rows, number, parts, count, checksum = HEAD.unpack(head[len(MAGIC) :])
    if rows > down or 8 * (begun + count) > across * rows * 3 or number >= parts:
        return None
    data = np.packbits(flat[8 * begun : 8 * (begun + count)]).tobytes()
    if zlib.crc32(data) == checksum:
        return (number, parts, data)
    return None
