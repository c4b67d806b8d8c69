"""How a manifest travels: in PNG as iTXt, in JPEG and WebP as XMP, or in a JSON file beside the picture.

The mark (`faceanon.photo.mark`) is XMP in all three.

A segment of a JPEG holds 64 kB. Longer XMP goes there as Adobe's extended XMP: a short packet that names the rest, and
the rest in segments that say where they belong.

A vault travels in PNG as a private chunk that editors must drop when they change pixels, else beside the picture: the
segments of a JPEG are too short for it, and XMP is text.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from faceanon.errors import UserError
from faceanon.files import NAME_BYTES, read_small, short_name
from faceanon.photo.mark import MARK, packet, xmp_of

MANIFEST_KEY = "faceanon"
WRITABLE = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
JPEG_QUALITY = 95
# What PNG's filters leave of a photo is noise in which zlib finds runs but hardly ever longer repeats. Looking for runs
# alone gives files as large as a full search at level 4, in half its time.
PNG_STRATEGY = 3  # zlib's Z_RLE
PNG_LEVEL = 4
SIDECAR_SUFFIX = ".faceanon.json"
MAX_TEXT_BYTES = 4_000_000
VAULT_SUFFIX = ".faceanon.vault"
VAULT_CHUNK = b"faVT"  # ancillary, private, not safe to copy
MAX_VAULT_BYTES = 1_000_000_000

_HEAD = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_KEYWORD = "XML:com.adobe.xmp"  # of PNG's iTXt
_OURS = ' xmlns:faceanon="urn:faceanon:1"'
_MANIFEST = "<faceanon:manifest>{text}</faceanon:manifest>"
_OPEN, _CLOSE = b"<faceanon:manifest>", b"</faceanon:manifest>"
_EXTENSION = b"http://ns.adobe.com/xmp/extension/\0"
_EXTENDED = ' xmlns:xmpNote="http://ns.adobe.com/xmp/note/" xmpNote:HasExtendedXMP="{digest}"'
_SEGMENT_LIMIT = 65533  # what the two bytes of a JPEG segment's length leave
_PART_BYTES = 65_000  # of an extension, beside its head
_DIGEST = 32  # characters


@dataclass(frozen=True)
class Inside:
    """What a picture file holds beside pixels, profile and opacity.

    Args:
        manifest: JSON, or None.
        vault: For PNG alone, or None.
        marked: Whether the file says that trained algorithms made a part of the picture.
        exif: EXIF data, as `PIL.Image.Exif.tobytes` gives them, or None.
    """

    manifest: str | None = None
    vault: bytes | None = None
    marked: bool = False
    exif: bytes | None = None


def sidecar_of(path: Path) -> Path:
    """Where the manifest of `path` lies when it is not in the file.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.photo.metadata import sidecar_of
        >>> sidecar_of(Path("out") / "party.png").name
        'party.png.faceanon.json'
    """
    return _beside(path, SIDECAR_SUFFIX)


def vault_of(path: Path) -> Path:
    """Where the vault of `path` lies when it is not in the file."""
    return _beside(path, VAULT_SUFFIX)


def _beside(path: Path, suffix: str) -> Path:
    name = path.name + suffix
    if len(os.fsencode(name)) > NAME_BYTES:
        # A short stand-in: the picture's own name fits the file system, but not with the ending behind it.
        name = short_name(path.name) + suffix
    return path.with_name(name)


def check_beside(path: Path) -> None:
    """Refuse a name beside which recovery data lie, since they would be lost, and with them another picture's faces.

    Raises:
        UserError: If there is a manifest or a vault of that name.
    """
    for file in (sidecar_of(path), vault_of(path)):
        if file.exists():
            raise UserError(f"{file} exists and may be needed for another picture; move it, or give --overwrite")


def holds_vault(path: Path) -> bool:
    """Whether the format that `path` names has room for a vault."""
    return WRITABLE.get(path.suffix.lower()) == "PNG"


def check_suffix(path: Path) -> None:
    """Refuse a name that says no format we write.

    Raises:
        UserError: If the name does not end in .png, .jpg, .jpeg or .webp.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.photo.metadata import check_suffix
        >>> check_suffix(Path("party.webp"))
        >>> check_suffix(Path("party.gif"))
        Traceback (most recent call last):
        faceanon.errors.UserError: party.gif: the output must be a .png or .webp, which keep pixels exact, ...
    """
    if path.suffix.lower() not in WRITABLE:
        raise UserError(
            f"{path}: the output must be a .png or .webp, which keep pixels exact, or a .jpg; all carry recovery data"
        )


def is_lossless(path: Path, quality: int | None) -> bool:
    """Whether `path`, written at `quality`, keeps every pixel.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.photo.metadata import is_lossless
        >>> is_lossless(Path("party.webp"), quality=None), is_lossless(Path("party.webp"), quality=90)
        (True, False)
    """
    kind = WRITABLE.get(path.suffix.lower())
    return kind == "PNG" or (kind == "WEBP" and quality is None)


def encode(
    pixels: NDArray[np.uint8],
    alpha: NDArray[np.uint8] | None,
    icc: bytes | None,
    path: Path,
    quality: int | None = None,
    inside: Inside | None = None,
) -> bytes:
    """A file of the format that `path` names, with nothing in it but pixels, profile and what is named.

    Args:
        pixels: RGB `(H, W, 3)` uint8.
        alpha: `(H, W)` uint8, or None.
        icc: Colour profile, or None.
        path: Only its ending counts.
        quality: 1 to 100 for JPEG (95 by default) and WebP (exact by default); PNG is always exact.
        inside: What the file holds besides; None: nothing.

    Raises:
        UserError: If the format cannot hold what it should.
    """
    check_suffix(path)
    inside = inside or Inside()
    kind = WRITABLE[path.suffix.lower()]
    data = io.BytesIO()
    image = Image.fromarray(pixels if alpha is None else np.dstack([pixels, alpha]))
    if max(image.size) > 16383 and kind == "WEBP":
        raise UserError(f"{path}: WebP holds at most 16383 pixels a side; write PNG instead")
    if kind == "PNG":
        chunks = _chunks(inside)
        compression = {"compress_level": PNG_LEVEL, "compress_type": PNG_STRATEGY}
        image.save(data, "PNG", pnginfo=chunks, icc_profile=icc, exif=inside.exif, **compression)
    elif kind == "WEBP":
        xmp = xmp_packet(inside) or b""
        options: dict[str, int] = {"lossless": True}
        if quality is not None:
            options = {"quality": quality}
        # Without `exact` the encoder replaces the colours of transparent pixels.
        image.save(data, "WEBP", xmp=xmp, icc_profile=icc or b"", exif=inside.exif or b"", exact=True, **options)
    else:
        if alpha is not None:
            raise UserError(f"{path}: JPEG keeps no transparency; write PNG or WebP instead")
        # Colour at full resolution, since recovery starts from these pixels.
        best = quality or JPEG_QUALITY
        image.save(data, "JPEG", quality=best, subsampling=0, icc_profile=icc, exif=inside.exif or b"")
        return with_xmp(data.getvalue(), inside)
    return data.getvalue()


def embedded(image: Image.Image) -> str | None:
    """The manifest inside an opened picture, or None."""
    text = image.info.get(MANIFEST_KEY)
    if text is not None:
        return str(text)
    xmp = xmp_of(image)
    if not xmp:
        return None
    element = _element(xmp)
    if element is None:
        element = _element(_extension(image))
    if element is None:
        return None
    # Bytes that are no UTF-8 raise nothing here: `Manifest.from_json` judges the text.
    return unescape(element.decode("utf-8", "replace"))


def _element(xmp: bytes) -> bytes | None:
    """The manifest in XMP, or None; in one pass, however often a stranger's file begins one."""
    start = xmp.find(_OPEN)
    if start < 0:
        return None
    stop = xmp.find(_CLOSE, start)
    return None if stop < 0 else xmp[start + len(_OPEN) : stop]


def embedded_vault(image: Image.Image) -> bytes | None:
    """The vault inside an opened picture, or None."""
    # Only Pillow's reader of PNG has this list: the private chunks that it does not know itself.
    chunks: list[tuple[bytes, bytes]] = getattr(image, "private_chunks", [])
    for chunk in chunks:
        if chunk[0] == VAULT_CHUNK:
            return bytes(chunk[1])
    return None


def read_vault_file(path: Path) -> bytes | None:
    """The vault beside `path`, or None where there is none.

    Raises:
        UserError: If it cannot be read.
    """
    beside = vault_of(path)
    try:
        if beside.stat().st_size > MAX_VAULT_BYTES:
            raise UserError(f"{beside} is longer than {MAX_VAULT_BYTES} bytes; is it the right file?")
        return beside.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot read {beside}: {error.strerror}") from error


def read_sidecar(path: Path) -> str | None:
    """The text beside `path`, or None where there is none.

    Raises:
        UserError: If it cannot be read.
    """
    sidecar = sidecar_of(path)
    if not sidecar.is_file():
        return None
    return read_text(sidecar)


def read_text(path: Path) -> str:
    """A small UTF-8 file.

    Raises:
        UserError: If it cannot be read, is too long, or is no text.
    """
    try:
        return read_small(path, MAX_TEXT_BYTES, str(path)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text; is it the right file?") from error


def _chunks(inside: Inside) -> PngInfo:
    chunks = PngInfo()
    if inside.marked:
        chunks.add_itxt(_XMP_KEYWORD, packet().decode())
    if inside.manifest is not None:
        chunks.add_itxt(MANIFEST_KEY, inside.manifest)
    if inside.vault is not None:
        # Pillow writes it before the pixels, so `embedded_vault` finds it without decoding them.
        chunks.add(VAULT_CHUNK, inside.vault)
    return chunks


def xmp_packet(inside: Inside) -> bytes | None:
    """The XMP of a file that has its manifest there; None where there is nothing to say."""
    mark = MARK if inside.marked else ""
    if inside.manifest is not None:
        return packet(_OURS + mark, _MANIFEST.format(text=escape(inside.manifest, quote=False)))
    if inside.marked:
        return packet(mark)
    return None


def with_xmp(jpeg: bytes, inside: Inside) -> bytes:
    """Put XMP behind the start, the JFIF head and the EXIF data of a JPEG file."""
    whole = xmp_packet(inside)
    if whole is None:
        return jpeg
    bodies = [_HEAD + whole]
    if len(bodies[0]) > _SEGMENT_LIMIT:
        bodies = _extended(whole, MARK if inside.marked else "")
    segments = b""
    for body in bodies:
        # The length counts its own two bytes as well, but not the marker.
        segments += b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body
    # Past the start-of-image marker, and past the heads that readers want first: JFIF, then EXIF.
    start = 2
    for head in (b"\xff\xe0", b"\xff\xe1"):
        if jpeg[start : start + 2] == head:
            start += 2 + int.from_bytes(jpeg[start + 2 : start + 4], "big")
    return jpeg[:start] + segments + jpeg[start:]


def is_xmp(body: bytes) -> bool:
    """Whether the body of a JPEG's segment is XMP, or a part of one that is long."""
    return body.startswith((_HEAD, _EXTENSION))


def _extended(whole: bytes, mark: str) -> list[bytes]:
    """A long packet as the bodies of several segments; the mark stands in the first too, which every reader reads."""
    digest = hashlib.md5(whole, usedforsecurity=False).hexdigest().upper()
    bodies = [_HEAD + packet(_EXTENDED.format(digest=digest) + mark)]
    head = _EXTENSION + digest.encode() + len(whole).to_bytes(4, "big")
    for start in range(0, len(whole), _PART_BYTES):
        bodies.append(head + start.to_bytes(4, "big") + whole[start : start + _PART_BYTES])
    return bodies


def _extension(image: Image.Image) -> bytes:
    """The extended XMP of an opened JPEG, joined; empty where there is none."""
    parts = {}
    # Only Pillow's reader of JPEG has this list.
    segments: list[tuple[str, bytes]] = getattr(image, "applist", [])
    for _, body in segments:
        if body.startswith(_EXTENSION):
            # Behind the digest and the length of the whole.
            place = len(_EXTENSION) + _DIGEST + 4
            parts[int.from_bytes(body[place : place + 4], "big")] = body[place + 4 :]
    return b"".join(parts[start] for start in sorted(parts))
