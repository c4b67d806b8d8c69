"""Finding pictures in folders and reading them. Nothing here knows Lightning."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from faceanon.errors import UserError

Layout = Literal["auto", "identity", "flat"]
Box = tuple[float, float, float, float]
EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
_FFHQ_SHARD = re.compile(r"\d\d000")  # FFHQ keeps a thousand pictures a folder, named after the first


class UnreadableError(UserError):
    """A file that is no picture, or a damaged one."""


@dataclass(frozen=True)
class Photo:
    """One picture on disk.

    Args:
        path: The file.
        name: Its path below the root, with forward slashes; what reports and identity lists call it.
        identity: Name of the person, or None where nobody said.
        mask: File with a class index per pixel, or None.
    """

    path: Path
    name: str
    identity: str | None = None
    mask: Path | None = None


def list_photos(root: Path, layout: Layout = "auto", masks: str | None = None) -> list[Photo]:
    """List the pictures below `root` in one fixed order.

    Args:
        root: The folder.
        layout: `identity`: the first folder below the root names the person. `flat`: nobody is named. `auto`:
            `identity` if at least two folders hold pictures and they are not FFHQ's shards of a thousand.
        masks: Folder below the root that mirrors it with `.png` masks; None if there are none.

    Raises:
        UserError: The root is missing, or holds no picture.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.data.files import list_photos
        >>> for person in ("anna", "ben"):
        ...     (Path("faces") / person).mkdir(parents=True)
        ...     (Path("faces") / person / "1.jpg").touch()
        >>> [photo.identity for photo in list_photos(Path("faces"))]
        ['anna', 'ben']
    """
    if not root.is_dir():
        raise UserError(f"no folder {root}: give the folder that holds the pictures")
    skipped = root / masks if masks else None
    if skipped is not None and not skipped.is_dir():
        raise UserError(f"no folder {skipped} for the masks: name a folder below {root}, or leave masks out")
    photos = []
    for path in sorted(root.rglob("*")):
        # Masks lie below the root too, and end like pictures.
        if path.suffix.lower() in EXTENSIONS and path.is_file() and (skipped is None or skipped not in path.parents):
            photos.append(Photo(path, path.relative_to(root).as_posix()))
    if not photos:
        raise UserError(f"no picture in {root}: expected files ending in {' '.join(EXTENSIONS)}")
    if layout == "identity" or (layout == "auto" and _looks_like_identities(photos)):
        labelled = []
        for photo in photos:
            labelled.append(replace(photo, identity=_first_folder(photo.name)))
        photos = labelled
    if skipped is None:
        return photos
    with_masks = []
    for photo in photos:
        with_masks.append(replace(photo, mask=_mask_of(skipped, photo.name)))
    return with_masks


def _first_folder(name: str) -> str | None:
    if "/" in name:
        return name.split("/", 1)[0]
    return None


def _looks_like_identities(photos: Sequence[Photo]) -> bool:
    folders = set()
    for photo in photos:
        if (folder := _first_folder(photo.name)) is not None:
            folders.add(folder)
    # FFHQ's own folders are no persons.
    return len(folders) > 1 and not all(map(_FFHQ_SHARD.fullmatch, folders))


def _mask_of(folder: Path, name: str) -> Path:
    """The mask of a picture: at the same place below `folder`, or there by its bare name."""
    mirrored = (folder / name).with_suffix(".png")
    if mirrored.is_file():
        return mirrored
    return folder / mirrored.name


def name_identities(photos: Sequence[Photo], table: Path) -> list[Photo]:
    """Take the persons from a list instead of from folders.

    Args:
        photos: What `list_photos` found.
        table: CSV, or columns parted by blanks as CelebA's: picture (path below the root, file name, or stem), person.
            Other columns and a header are ignored. A picture that is not listed has no known person.

    Raises:
        UserError: The file cannot be read, names no picture of `photos`, or two pictures share the name it uses.
    """
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the identity list {table}: {error}") from error
    rows = []
    for line in lines:
        # Line by line, since either form may stand there: CSV, or words as in CelebA's list.
        for row in csv.reader([line]):
            if len(row) > 1:
                rows.append(row)
            else:
                rows.append(line.split())
    person = {}
    for row in rows:
        if len(row) > 1 and row[1].strip():
            person[row[0].strip()] = row[1].strip()
    # Two folders may hold a picture of the same name, and then the bare name does not say which is meant.
    uses: Counter[str] = Counter()
    for photo in photos:
        uses.update(_aliases(photo.name))
    named = []
    for photo in photos:
        named.append(replace(photo, identity=_person_of(photo, person, uses, table)))
    if all(photo.identity is None for photo in named):
        raise UserError(f"{table} names none of the {len(photos)} pictures, such as {photos[0].name!r}: check column 1")
    return named


def _aliases(name: str) -> set[str]:
    # A set: right below the root path and file name are equal, and must count as one use.
    return {name, Path(name).name, Path(name).stem}


def _person_of(photo: Photo, person: dict[str, str], uses: Counter[str], table: Path) -> str | None:
    # The whole path first: it alone surely means one picture.
    for alias in (photo.name, Path(photo.name).name, Path(photo.name).stem):
        if alias in person:
            if uses[alias] > 1:
                raise UserError(f"{table}: {alias!r} fits {uses[alias]} pictures; write paths below the root instead")
            return person[alias]
    return None


def check_box(box: Box) -> Box:
    """Check a crop box: left, top, right, bottom as fractions of the picture.

    Raises:
        UserError: It is empty or leaves the picture.
    """
    left, top, right, bottom = box
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise UserError(
            f"crop {list(box)} is no box: give left, top, right, bottom as fractions, e.g. [0.1, 0.1, 0.9, 0.9]"
        )
    return box


def square_box(width: int, height: int, crop: Box | None) -> Box:
    """The square in pixels that is cut out: `crop` first, then the centre of what is longer than wide or wider."""
    left, top, right, bottom = crop or (0.0, 0.0, 1.0, 1.0)
    left = left * width
    right = right * width
    top = top * height
    bottom = bottom * height
    side = min(right - left, bottom - top)
    left = (left + right - side) / 2
    top = (top + bottom - side) / 2
    return left, top, left + side, top + side


def is_square(width: int, height: int, crop: Box | None) -> bool:
    """Whether the cut loses less than two pixels of what `crop` asked for."""
    left, top, right, bottom = crop or (0.0, 0.0, 1.0, 1.0)
    return abs((right - left) * width - (bottom - top) * height) < 2


def _open(path: Path) -> Image.Image:
    """Decode a picture upright.

    Raises:
        UnreadableError: It cannot be.
    """
    try:
        # Pillow calls an empty file a picture of unknown format, which leads people astray.
        if path.stat().st_size == 0:
            raise UnreadableError(f"{path}: the file is empty")
        with Image.open(path) as image:
            image.load()
            return ImageOps.exif_transpose(image)
    except UnidentifiedImageError as error:
        raise UnreadableError(f"{path}: not a picture, or of an unknown format") from error
    except FileNotFoundError as error:
        raise UnreadableError(f"{path}: no such file") from error
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise UnreadableError(
            f"{path}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey; Pillow's own conversion clips instead of scaling
        image = Image.fromarray((np.asarray(image).clip(0, 65535) / 257).round().astype(np.uint8))
    return image.convert("RGB")


def read_photo(path: Path, size: int, crop: Box | None = None) -> tuple[NDArray[np.uint8], bool]:
    """Read a picture as `(size, size, 3)` uint8 RGB, reduced with antialiasing, EXIF rotation applied.

    Args:
        path: The file; grey, CMYK, palette and transparent pictures become RGB.
        size: Side of the result in pixels.
        crop: Left, top, right, bottom as fractions of the upright picture; None takes all of it.

    Returns:
        The pixels, and whether they were square before (if not, the centre was cut out).

    Raises:
        UnreadableError: It is no picture, or a damaged one.
    """
    image = _to_rgb(_open(path))
    box = square_box(*image.size, crop)
    small = image.resize((size, size), Image.Resampling.BICUBIC, box=box)
    return np.asarray(small, dtype=np.uint8), is_square(*image.size, crop)


def read_photos(paths: Iterable[Path], size: int) -> NDArray[np.uint8]:
    """Pictures `(N, size, size, 3)`, each as of `read_photo`; one at least.

    Raises:
        UnreadableError: One is no picture, or a damaged one.
    """
    return np.stack([read_photo(path, size)[0] for path in paths])


def read_mask(path: Path, size: int, crop: Box | None = None, order: Sequence[int] | None = None) -> NDArray[np.uint8]:
    """Read a mask as `(size, size)` uint8 class indices, reduced by nearest neighbour.

    Args:
        path: Palette or grey picture, pixel value = class; of any size, with the same crop as its picture.
        size: Side of the result in pixels.
        crop: As in `read_photo`.
        order: New class of every stored class, or None to keep them.

    Raises:
        UnreadableError: It cannot be read, has another kind of pixel, or a class that `order` does not name.
    """
    image = _open(path)
    if image.mode not in ("P", "L"):
        raise UnreadableError(f"{path}: a mask has one 8-bit class index a pixel, this one has mode {image.mode}")
    labels = np.asarray(
        # Between two classes there is none: anything but the nearest pixel would invent one.
        image.resize((size, size), Image.Resampling.NEAREST, box=square_box(*image.size, crop)),
        dtype=np.uint8,
    )
    if order is None:
        return labels
    if int(labels.max()) >= len(order):
        raise UnreadableError(f"{path}: class {int(labels.max())} is not among the {len(order)} of mask_order")
    return np.asarray(order, dtype=np.uint8)[labels]
