"""Any picture file to upright 8-bit sRGB pixels, with its transparency beside them.

A picture comes from outside and may be damaged or made to harm: sizes are checked before anything is decoded, and
whatever Pillow raises becomes one line that names the file.
"""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, UnidentifiedImageError

from faceanon.errors import UserError

MAX_PIXELS = 80_000_000  # 240 MB of pixels; below the size at which Pillow itself starts to warn
# What cameras, phones, scanners and messengers write. Pillow knows more, some of it through other programs, as
# PostScript. The rest is tried in this order, and a TGA, which has no sign of its own, last.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "PPM", "TIFF", "AVIF", "JPEG2000", "TGA")
# Phones add views to a photo in these; the first, or the one that is marked so, is the photo.
OF_VIEWS = ("MPO", "HEIF")
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_FILTERS = threading.Lock()  # the warning filters belong to the process, and several threads decode


@dataclass(frozen=True)
class Decoded:
    """What a picture shows.

    Args:
        pixels: RGB `(H, W, 3)` uint8, upright; white where the picture is fully transparent, whatever is hidden there.
        alpha: `(H, W)` uint8 opacity, or None where all is opaque.
        notes: What was odd about the file and did not matter.
    """

    pixels: NDArray[np.uint8]
    alpha: NDArray[np.uint8] | None
    notes: tuple[str, ...]


@cache
def picture_endings() -> frozenset[str]:
    """Endings of the picture files that are read, in lower case.

    Examples:
        >>> from faceanon.photo.decode import picture_endings
        >>> sorted({".heic", ".jfif", ".txt"} & picture_endings())
        ['.heic', '.jfif']
    """
    _register_heif()
    endings = set()
    for ending, name in Image.registered_extensions().items():
        if name in (*FORMATS, *OF_VIEWS):
            endings.add(ending)
    return frozenset(endings)


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """The picture at `path`, not yet decoded; its errors, also later ones, are one line each.

    Raises:
        UserError: If the file is missing, damaged, no picture, or too large.
    """
    try:
        with _FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path, formats=_formats(path))
        with image:
            yield image
    except (UserError, MemoryError):
        # A UserError is one line already; a lack of memory says nothing about the file.
        raise
    except FileNotFoundError as error:
        raise UserError(f"no such picture: {path}") from error
    except UnidentifiedImageError as error:
        raise UserError(f"{path} is not a picture that can be read; convert it to PNG or JPEG") from error
    except Image.DecompressionBombError as error:
        raise UserError(_too_large(str(path))) from error
    except Exception as error:  # on damaged files Pillow raises nearly every class there is
        reason = (str(error).splitlines() or [""])[0][:120] or type(error).__name__
        raise UserError(f"{path} cannot be read ({reason}); the file is damaged or cut short") from error


def decode(image: Image.Image, name: str, convert_profile: bool = True) -> Decoded:
    """Upright 8-bit sRGB: EXIF orientation and colour profile applied; grey, palette, 16 bit and CMYK become RGB.

    Args:
        image: An opened picture.
        name: What to call it in messages.
        convert_profile: Convert colours to sRGB by the picture's profile; if not, they stay as they are.

    Raises:
        UserError: If the picture is too large, an animation, or of floating point numbers.
    """
    _check(image, name)
    notes: list[str] = []
    icc = None
    if convert_profile:
        icc = image.info.get("icc_profile")
    image.load()
    image = _upright(image, notes)
    if image.mode.startswith("I"):
        image = _narrow(image)
    alpha = None
    # Also true of palette, grey and RGB pictures with a transparent colour, which have no alpha channel yet.
    if image.has_transparency_data:
        image = image.convert("RGBA")
        alpha = np.array(image.getchannel("A"), dtype=np.uint8)
        image = image.convert("RGB")
    # Colour profiles describe RGB, grey or CMYK, not these.
    elif image.mode in ("1", "P", "YCbCr", "HSV"):
        image = image.convert("RGB")
    if isinstance(icc, bytes) and icc:
        image = _to_srgb(image, icc, notes)
    pixels = np.array(image.convert("RGB"), dtype=np.uint8)
    # A channel that hides nothing is dropped: `encode` refuses to write transparency as JPEG.
    if alpha is not None and alpha.min() == 255:
        alpha = None
    if alpha is not None:
        # What nobody sees must not carry a face through.
        pixels[alpha == 0] = 255
    return Decoded(pixels, alpha, tuple(notes))


def decode_bytes(data: bytes) -> Decoded:
    """What a file that was just encoded shows."""
    with Image.open(io.BytesIO(data)) as image:
        return decode(image, "a picture", convert_profile=False)


def _formats(path: Path) -> tuple[str, ...]:
    """The formats that the file at `path` may have."""
    with path.open("rb") as file:
        head = file.read(12)
    # A HEIC begins so, as do AVIF and films; other pictures need not wait for its library.
    if head[4:8] != b"ftyp":
        return FORMATS
    _register_heif()
    return ("HEIF", *FORMATS)


@cache
def _register_heif() -> None:
    import pillow_heif

    pillow_heif.register_heif_opener()


def _too_large(name: str) -> str:
    return f"{name} has more than {MAX_PIXELS // 1_000_000} million pixels; make it smaller first"


def _check(image: Image.Image, name: str) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise UserError(_too_large(name))
    if image.mode == "F":
        raise UserError(
            f"{name}: a picture of floating point numbers has no defined white; convert it to 8 or 16 bit first"
        )
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format not in OF_VIEWS:
        raise UserError(f"{name} holds {frames} pictures (an animation, or pages); save each as a file of its own")


def _upright(image: Image.Image, notes: list[str]) -> Image.Image:
    # The reader of HEIC has turned the picture by itself, and says so in its EXIF data: no turn is left to be made.
    try:
        turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # as in `opened`; a camera's notes are not worth the picture
        notes.append("damaged EXIF data ignored")
        return image
    if turn is None:
        return image
    return image.transpose(turn)


def _narrow(image: Image.Image) -> Image.Image:
    """16 bits a pixel, in 16 or 32 bit words, to 8; Pillow's own conversion clips at 255."""
    wide = np.asarray(image).astype(np.int64)
    # 65535 is 255 * 257, so white stays white.
    return Image.fromarray((wide.clip(0, 65535) // 257).astype(np.uint8))


def _to_srgb(image: Image.Image, icc: bytes, notes: list[str]) -> Image.Image:
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        # A conversion from sRGB to sRGB would only cost time and rounding.
        if "sRGB" in ImageCms.getProfileDescription(profile):
            return image
        converted = ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        notes.append("unusable colour profile ignored, colours taken as sRGB")
        return image
    # Pillow gives None only for a conversion in place; the check is for its type.
    if converted is None:
        return image
    return converted
