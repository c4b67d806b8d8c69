"""Which files belong together, and who is on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from faceanon.data.files import Photo, list_photos, name_identities
from faceanon.errors import UserError

NUMBERED = re.compile(r"(.+)_\d{4}")  # Anna_0001, as LFW names its files


@dataclass(frozen=True)
class PicturePair:
    """One picture with what was made of it.

    Args:
        original: The original picture, with its person where somebody said.
        anonymized: What a tool made of it.
        recovered: What was brought back from that; None where there is no such file.
    """

    original: Photo
    anonymized: Path
    recovered: Path | None = None


@dataclass(frozen=True)
class Pairing:
    """All files of a test.

    Args:
        pairs: In the order of the originals' names.
        alone: A line for each file without a partner.
        told_by: How persons are known; empty where nobody says who is who.
    """

    pairs: list[PicturePair]
    alone: list[str]
    told_by: str


def pair_files(originals: Path, anonymized: Path, recovered: Path | None, identities: Path | None) -> Pairing:
    """Pair the files of folders by their names below them, without endings such as `.png`; single files go together.

    Args:
        originals: A folder, or a picture.
        anonymized: The same.
        recovered: The same, or None.
        identities: CSV of file and person, or None.

    Raises:
        UserError: A folder is missing or empty, two files have one name, or no two fit together.
    """
    files = _files(originals)
    photos, told_by = with_persons(list(files.values()), identities)
    alone: list[str] = []
    hidden = _partners(files, anonymized, originals, alone)
    back = {} if recovered is None else _partners(files, recovered, originals, alone)
    pairs = []
    for stem, photo in zip(files, photos, strict=True):
        if stem in hidden:
            pairs.append(PicturePair(photo, hidden[stem], back.get(stem)))
    if not pairs:
        raise UserError(f"no file of {anonymized} is named like one of {originals}; name results like their originals")
    return Pairing(pairs, alone, told_by)


def _files(path: Path) -> dict[str, Photo]:
    """The pictures of a folder by name without ending; of a single picture the name does not matter."""
    if path.is_file():
        return {"": Photo(path, path.name)}
    files: dict[str, Photo] = {}
    for photo in list_photos(path):
        stem = str(Path(photo.name).with_suffix(""))
        if stem in files:
            raise UserError(f"{path}: {files[stem].name} and {photo.name} have one name; leave one of them away")
        files[stem] = photo
    return files


def _partners(originals: dict[str, Photo], folder: Path, original: Path, alone: list[str]) -> dict[str, Path]:
    """The files of a folder by the names of their originals; adds a line to `alone` for each file without a partner."""
    files = _files(folder)
    ending = ""
    if not originals.keys() & files.keys():
        ending = _shared_ending(files, originals)
    partners = {}
    for stem, photo in files.items():
        own = stem.removesuffix(ending)
        if own in originals:
            partners[own] = photo.path
        else:
            alone.append(f"{photo.name} of {folder.name} has no partner in {original.name}")
    for stem, photo in originals.items():
        if stem not in partners:
            alone.append(f"{photo.name} of {original.name} has no partner in {folder.name}")
    return partners


def _shared_ending(names: Iterable[str], originals: Container[str]) -> str:
    """What names carry beyond their originals', such as deface's `_anonymized`; the most frequent one."""
    endings: Counter[str] = Counter()
    for name in names:
        for length in range(1, len(name)):
            if name[:length] in originals:
                endings[name[length:]] += 1
    if endings:
        return endings.most_common(1)[0][0]
    return ""


def with_persons(photos: Sequence[Photo], identities: Path | None) -> tuple[Sequence[Photo], str]:
    """The photos with the names of their persons, and what these are known by; nothing where nobody says."""
    if identities is not None:
        return name_identities(photos, identities), f"the list {identities.name}"
    if any(photo.identity is not None for photo in photos):
        return photos, "folders"
    numbered = []
    for photo in photos:
        match = NUMBERED.fullmatch(Path(photo.name).stem)
        numbered.append(replace(photo, identity=match and match[1]))
    # One name for all, as of IMG_0001, is a camera's and nobody's.
    if len({photo.identity for photo in numbered} - {None}) > 1:
        return numbered, "names as Anna_0001"
    return photos, ""
