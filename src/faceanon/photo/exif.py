"""Which of a camera's EXIF data a result keeps: none, unless kinds of them are named.

Tags are listed one by one: what is not listed is dropped, and with it previews, makers' notes, serial numbers and
names of owners.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image
from PIL.ExifTags import GPS, IFD, Base

from faceanon.errors import UserError

TIME = "time"
CAMERA = "camera"
PLACE = "place"
KINDS = (TIME, CAMERA, PLACE)
ALL = frozenset(KINDS)
EXIF_VERSION = b"0232"
MOST_CHARACTERS = 200  # of a text; what is longer is no name of a lens
MOST_NUMBERS = 8  # of a tag

_MAIN: dict[str, tuple[Base, ...]] = {TIME: (Base.DateTime,), CAMERA: (Base.Make, Base.Model)}
_DETAILS: dict[str, tuple[Base, ...]] = {
    TIME: (
        Base.DateTimeOriginal,
        Base.DateTimeDigitized,
        Base.OffsetTime,
        Base.OffsetTimeOriginal,
        Base.OffsetTimeDigitized,
        Base.SubsecTime,
        Base.SubsecTimeOriginal,
        Base.SubsecTimeDigitized,
    ),
    CAMERA: (
        Base.ExposureTime,
        Base.FNumber,
        Base.ExposureProgram,
        Base.ISOSpeedRatings,
        Base.SensitivityType,
        Base.StandardOutputSensitivity,
        Base.RecommendedExposureIndex,
        Base.ISOSpeed,
        Base.ShutterSpeedValue,
        Base.ApertureValue,
        Base.BrightnessValue,
        Base.ExposureBiasValue,
        Base.MaxApertureValue,
        Base.MeteringMode,
        Base.LightSource,
        Base.Flash,
        Base.FocalLength,
        Base.ExposureIndex,
        Base.ExposureMode,
        Base.WhiteBalance,
        Base.DigitalZoomRatio,
        Base.FocalLengthIn35mmFilm,
        Base.LensSpecification,
        Base.LensMake,
        Base.LensModel,
    ),
}
# The satellites' clock tells the time as the camera's does.
_CLOCK = frozenset({GPS.GPSTimeStamp, GPS.GPSDateStamp})


@dataclass(frozen=True)
class Kept:
    """What is kept of a picture's EXIF data.

    Args:
        data: EXIF data as `PIL.Image.Exif.tobytes` gives them; None where nothing is kept.
        notes: What was odd about them.
    """

    data: bytes | None = None
    notes: tuple[str, ...] = ()


def kinds_of(text: str | None) -> frozenset[str]:
    """The kinds that somebody named.

    Args:
        text: Words with commas between them, or None for none.

    Raises:
        UserError: If a word is unknown.

    Examples:
        >>> from faceanon.photo.exif import kinds_of
        >>> sorted(kinds_of("time,place"))
        ['place', 'time']
        >>> kinds_of("name")
        Traceback (most recent call last):
        faceanon.errors.UserError: --keep-metadata takes time, camera, place or all, with commas between; not 'name'
    """
    kinds: set[str] = set()
    if text is None:
        return frozenset()
    for word in text.split(","):
        if word == "all":
            kinds.update(KINDS)
        elif word in KINDS:
            kinds.add(word)
        else:
            raise UserError(f"--keep-metadata takes {', '.join(KINDS)} or all, with commas between; not {word!r:.40}")
    return frozenset(kinds)


def kept(image: Image.Image, kinds: Collection[str]) -> Kept:
    """The EXIF data of an opened picture that are of these kinds."""
    if not kinds:
        return Kept()
    try:
        exif = _chosen(image.getexif(), kinds)
        if not exif:
            return Kept()
        return Kept(exif.tobytes())
    except Exception:  # Pillow raises nearly every class on damaged data; a camera's notes are not worth the picture
        return Kept(None, ("damaged EXIF data; nothing is kept of them",))


def kinds_in(image: Image.Image) -> tuple[str, ...]:
    """Which kinds an opened picture has something of."""
    found = []
    for kind in KINDS:
        if kept(image, (kind,)).data is not None:
            found.append(kind)
    return tuple(found)


def _chosen(given: Image.Exif, kinds: Collection[str]) -> Image.Exif:
    exif = Image.Exif()
    main: list[int] = []
    details: list[int] = []
    for kind in kinds:
        main.extend(_MAIN.get(kind, ()))
        details.extend(_DETAILS.get(kind, ()))
    for tag, value in _picked(given, main).items():
        exif[tag] = value
    inner = _picked(given.get_ifd(IFD.Exif), details)
    if inner:
        # Readers want to know by which version the tags are to be read.
        exif[IFD.Exif] = {int(Base.ExifVersion): EXIF_VERSION, **inner}
    if PLACE in kinds:
        place = _picked(given.get_ifd(IFD.GPSInfo), _place_tags(kinds))
        if place.keys() - {GPS.GPSVersionID}:
            exif[IFD.GPSInfo] = place
    return exif


def _place_tags(kinds: Collection[str]) -> list[int]:
    tags = []
    for tag in GPS:
        if tag not in _CLOCK or TIME in kinds:
            tags.append(int(tag))
    return tags


def _picked(given: Mapping[int, Any], tags: Collection[int]) -> dict[int, Any]:
    """The tags that are there with a value of a sensible size, in order."""
    picked = {}
    for tag in sorted(tags):
        if tag in given and _is_small(given[tag]):
            picked[int(tag)] = given[tag]
    return picked


def _is_small(value: object) -> bool:
    """Whether a value is too short to hide a picture in."""
    if isinstance(value, (str, bytes)):
        return len(value) <= MOST_CHARACTERS
    if isinstance(value, tuple):
        return len(value) <= MOST_NUMBERS and not any(isinstance(part, (str, bytes, tuple)) for part in value)
    return not isinstance(value, (dict, list))
