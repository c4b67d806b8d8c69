"""What a film's container says of time and place, and which of it a result keeps: nothing, unless it is named."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime

from faceanon.photo.exif import PLACE, TIME

KINDS = frozenset({TIME, PLACE})
# Names as FFmpeg gives them, in small letters; the last is that of telephones.
_TIMES = ("creation_time",)
_PLACES = ("location", "location-eng", "com.apple.quicktime.location.iso6709")
_ISO_6709 = re.compile(r"[+-]\d{1,3}(\.\d{1,8})?[+-]\d{1,3}(\.\d{1,8})?([+-]\d{1,5}(\.\d{1,8})?)?(CRSWGS_84)?/?")


def kept_tags(given: Mapping[str, str], kinds: Collection[str]) -> dict[str, str]:
    """The tags of a film that its result gets, by the names that FFmpeg writes.

    Args:
        given: The film's tags.
        kinds: `time`, `place`, both or none.

    Examples:
        >>> from faceanon.pipeline.video.tags import kept_tags
        >>> kept_tags({"title": "Anna", "creation_time": "2024-05-06T07:08:09.000000Z"}, {"time", "place"})
        {'creation_time': '2024-05-06T07:08:09.000000Z'}
    """
    tags = {}
    # Matroska writes the names of its tags in capitals.
    named = {name.lower(): text for name, text in given.items()}
    for name in _TIMES:
        if TIME in kinds and _is_time(named.get(name, "")):
            tags["creation_time"] = named[name]
    for name in _PLACES:
        if PLACE in kinds and "location" not in tags and _ISO_6709.fullmatch(named.get(name, "")):
            tags["location"] = named[name]
    return tags


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
