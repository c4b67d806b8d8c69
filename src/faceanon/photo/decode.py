"""Any picture file to upright 8-bit sRGB pixels, with its transparency beside them.

A picture comes from outside and may be damaged or made to harm: sizes are checked before anything is decoded, and
whatever Pillow raises becomes one line that names the file.
"""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator, Mapping
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
SAME = 2  # levels of 255 by which a profile may differ from sRGB and be taken for it
SRGB_GAMMA = 0.45455  # what PNG files say whose values are sRGB
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
        raise UserError(_no_picture(path)) from error
    except Image.DecompressionBombError as error:
        raise UserError(_too_large(str(path))) from error
    except OSError as error:
        # Only the system's own errors have a number; Pillow's are about the file.
        if error.errno is None:
            raise _damaged(path, error) from error
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # on damaged files Pillow raises nearly every class there is
        raise _damaged(path, error) from error


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
    image.load()
    # Now: some of the conversions below lose it.
    said = dict(image.info)
    image = _upright(image, notes)
    if image.mode.startswith("I"):
        image = _narrow(image)
    alpha = None
    # Also true of palette, grey and RGB pictures with a transparent colour, which have no alpha channel yet.
    if image.has_transparency_data:
        # A grey picture stays grey, since its profile is one for grey.
        plain = "L" if image.mode in ("L", "LA") else "RGB"
        image = image.convert(f"{plain}A")
        alpha = np.array(image.getchannel("A"), dtype=np.uint8)
        image = image.convert(plain)
    elif image.mode == "1":
        image = image.convert("L")
    # Colour profiles describe RGB, grey, CMYK or Lab, not these.
    elif image.mode in ("P", "YCbCr", "HSV"):
        image = image.convert("RGB")
    if convert_profile:
        image = _in_srgb(image, said, notes)
    # Pillow's own conversion does not know this one.
    if image.mode == "LAB":
        image = _converted(image, ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")))
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


def _damaged(path: Path, error: Exception) -> UserError:
    reason = (str(error).splitlines() or [""])[0][:120] or type(error).__name__
    return UserError(f"{path} cannot be read ({reason}); the file is damaged or cut short")


def _no_picture(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(64).lstrip().lower()
    if not start:
        return f"{path} is empty; copy it again"
    if start.startswith((b"<!doctype", b"<html")):
        return f"{path} is not a picture but a web page; load the picture itself down again"
    return f"{path} is not a picture that can be read; convert it to PNG or JPEG"


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


def _in_srgb(image: Image.Image, said: Mapping[str | tuple[int, int], object], notes: list[str]) -> Image.Image:
    """The picture in the colours that its file says it has, be it by a profile or by PNG's gamma."""
    icc = said.get("icc_profile")
    if isinstance(icc, bytes) and icc:
        return _by_profile(image, icc, notes)
    gamma = said.get("gamma")
    if isinstance(gamma, float) and "srgb" not in said:
        return _by_gamma(image, gamma)
    return image


def _by_profile(image: Image.Image, icc: bytes, notes: list[str]) -> Image.Image:
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        space = profile.profile.xcolor_space.strip()
        # Grey pictures of cameras often have the profile of the colours they might have had.
        if space == "RGB" and image.mode == "L":
            image = image.convert("RGB")
        return _converted(image, profile)
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        notes.append("unusable colour profile ignored, colours taken as sRGB")
        return image


def _converted(image: Image.Image, profile: ImageCms.ImageCmsProfile) -> Image.Image:
    """The picture in sRGB; itself, where its profile does what sRGB does, whatever either is called.

    Raises:
        PyCMSError: The profile does not fit the picture.
    """
    # The usual tables of LittleCMS are too coarse for the darks of a linear profile.
    change = ImageCms.buildTransform(
        profile, ImageCms.createProfile("sRGB"), image.mode, "RGB", flags=ImageCms.Flags.HIGHRESPRECALC
    )
    if image.mode in ("L", "RGB"):
        samples = _samples(image.mode)
        moved = np.asarray(_applied(change, samples)).astype(int) - np.asarray(samples.convert("RGB"))
        # A conversion that changes nothing would only cost time and rounding.
        if np.abs(moved).max() <= SAME:
            return image
    return _applied(change, image)


def _applied(change: ImageCms.ImageCmsTransform, image: Image.Image) -> Image.Image:
    converted = ImageCms.applyTransform(image, change)
    # Pillow gives None only for a conversion in place; the check is for its type.
    assert converted is not None
    return converted


def _samples(mode: str) -> Image.Image:
    """Greys, or colours all over the cube, for which two profiles are compared."""
    if mode == "L":
        return Image.fromarray(np.arange(256, dtype=np.uint8)[None])
    levels = np.arange(0, 256, 15, dtype=np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1)
    return Image.fromarray(cube.reshape(len(levels), -1, 3))


def _by_gamma(image: Image.Image, gamma: float) -> Image.Image:
    """With sRGB's curve, where the values are light to the power of `gamma`."""
    if image.mode not in ("L", "RGB") or abs(gamma - SRGB_GAMMA) < 0.02 or not 0.1 <= gamma <= 2:
        return image
    light = np.linspace(0, 1, 256) ** (1 / gamma)
    curve = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return image.point([round(255 * value) for value in curve.tolist()] * len(image.getbands()))
