"""Another manifest and another vault into a picture file of ours, whose pixels stay; a manifest of C2PA goes."""

from __future__ import annotations

import io
import zlib

from PIL import Image

from faceanon.errors import UserError
from faceanon.photo.c2pa import is_signed
from faceanon.photo.mark import is_marked
from faceanon.photo.metadata import (
    MANIFEST_KEY,
    VAULT_CHUNK,
    Inside,
    embedded,
    embedded_vault,
    is_xmp,
    with_xmp,
    xmp_packet,
)

PNG_HEAD = 8  # bytes
TEXTS = (b"tEXt", b"zTXt", b"iTXt")
C2PA_CHUNKS = (b"caBX", b"C2PA")  # of PNG, of WebP
WEBP_HEAD = 12  # bytes: RIFF, size, WEBP


def spliced(data: bytes, manifest: str | None, vault: bytes | None, name: str) -> bytes:
    """A file with other recovery data in it.

    Args:
        data: A PNG, JPEG or WebP file.
        manifest: JSON that takes the place of what the file carries; None: what is there stays.
        vault: Takes the place of the one in a PNG file; None: what is there stays.
        name: What to call the file in messages.

    Raises:
        UserError: If the file is not built as those of `faceanon anonymize`.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            kind = image.format
            inside = Inside(manifest, marked=is_marked(image))
        if kind == "PNG":
            new = _png(data, manifest, vault)
        elif kind == "JPEG":
            new = data if manifest is None else with_xmp(_without_xmp(data), inside)
        elif kind == "WEBP":
            new = data if manifest is None else _webp(data, xmp_packet(inside) or b"")
        else:
            raise ValueError("another format")
        with Image.open(io.BytesIO(new)) as image:
            # Read back as recovery will read it.
            arrived = manifest in (None, embedded(image)) and vault in (None, embedded_vault(image))
            arrived = arrived and (new == data or not is_signed(new))
        if not arrived:
            raise ValueError("what was written is not what is read")
    except (ValueError, OSError, SyntaxError) as error:
        raise UserError(f"{name} is not built as faceanon writes files; recover it and anonymize it again") from error
    return new


def _png(data: bytes, manifest: str | None, vault: bytes | None) -> bytes:
    """A PNG file with the new chunks in front of its pixels."""
    new = b""
    if manifest is not None:
        # Not compressed, in no language, without a translated keyword: what Pillow writes.
        new += _chunk(b"iTXt", MANIFEST_KEY.encode() + b"\0\0\0\0\0" + manifest.encode())
    if vault is not None:
        new += _chunk(VAULT_CHUNK, vault)
    parts = [data[:PNG_HEAD]]
    place = PNG_HEAD
    placed = False
    while place < len(data):
        stop = place + 12 + int.from_bytes(data[place : place + 4], "big")
        kind = data[place + 4 : place + 8]
        body = data[place + 8 : stop - 4]
        if stop > len(data):
            raise ValueError("a chunk is cut short")
        is_manifest = kind in TEXTS and body.startswith(MANIFEST_KEY.encode() + b"\0")
        old = (is_manifest and manifest is not None) or (kind == VAULT_CHUNK and vault is not None)
        old = old or (kind in C2PA_CHUNKS and new != b"")
        if kind == b"IDAT" and not placed:
            parts.append(new)
            placed = True
        if not old:
            parts.append(data[place:stop])
        place = stop
    if not placed:
        raise ValueError("no pixels")
    return b"".join(parts)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def _without_xmp(data: bytes) -> bytes:
    """A JPEG file without its XMP and without C2PA's segments."""
    parts = [data[:2]]
    place = 2
    while True:
        marker = data[place : place + 2]
        if len(marker) < 2 or marker[0] != 0xFF or marker[1] in (0x00, 0xFF):
            raise ValueError("no segment where one should be")
        # The compressed pixels follow.
        if marker[1] == 0xDA:
            parts.append(data[place:])
            return b"".join(parts)
        stop = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        is_c2pa = marker[1] == 0xEB and data[place + 4 : place + 6] == b"JP"
        if not is_c2pa and not (marker[1] == 0xE1 and is_xmp(data[place + 4 : stop])):
            parts.append(data[place:stop])
        place = stop


def _webp(data: bytes, xmp: bytes) -> bytes:
    """A WebP file with other XMP; it has some already, or its head would not say so."""
    chunks = []
    place = WEBP_HEAD
    found = False
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        # Chunks begin at even places.
        stop = place + 8 + size + size % 2
        if place + 8 + size > len(data):
            raise ValueError("a chunk is cut short")
        if data[place : place + 4] == b"XMP ":
            found = True
        elif data[place : place + 4] not in C2PA_CHUNKS:
            chunks.append(data[place:stop])
        place = stop
    if not found:
        raise ValueError("no XMP")
    chunks.append(b"XMP " + len(xmp).to_bytes(4, "little") + xmp + bytes(len(xmp) % 2))
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + len(body).to_bytes(4, "little") + body
