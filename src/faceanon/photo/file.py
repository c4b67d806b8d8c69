"""Photos in and out: any picture file to RGB pixels, and PNG, JPEG or WebP with the manifest in its metadata."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.manifest import Manifest
from faceanon.photo.c2pa import Credentials
from faceanon.photo.decode import decode, opened
from faceanon.photo.exif import kept
from faceanon.photo.mark import is_marked
from faceanon.photo.metadata import (
    MANIFEST_KEY,
    Inside,
    check_suffix,
    embedded,
    embedded_vault,
    encode,
    holds_vault,
    read_sidecar,
    read_vault_file,
    sidecar_of,
    vault_of,
)
from faceanon.sealed import pixels

Photo = str | Path | Image.Image | NDArray[np.uint8]


@dataclass(frozen=True)
class LoadedPhoto:
    """A decoded photo.

    Args:
        pixels: RGB `(H, W, 3)` uint8, upright, sRGB; white where the photo is fully transparent.
        manifest: What an earlier `anonymize` wrote into the file or beside it, as JSON, or None.
        icc: The colour profile of the pixels where it was kept (files of ours, whose pixels must not change), or None.
        name: What to call it in messages.
        alpha: `(H, W)` uint8 opacity, or None where all is opaque.
        notes: What was odd about the file and did not matter.
        marked: Whether the file says that trained algorithms made a part of the picture; of files of ours alone.
        exif: EXIF data that are to be kept, or None.
    """

    pixels: NDArray[np.uint8]
    manifest: str | None = None
    icc: bytes | None = None
    name: str = "the photo"
    alpha: NDArray[np.uint8] | None = None
    notes: tuple[str, ...] = ()
    marked: bool = False
    exif: bytes | None = None


def load_photo(photo: Photo, keep: Collection[str] = ()) -> LoadedPhoto:
    """Decode a photo: EXIF orientation and colour profile applied; grey, palette, 16 bit and CMYK to 8-bit RGB.

    Args:
        photo: Path, PIL image, or RGB array `(H, W, 3)` uint8.
        keep: Kinds of EXIF data to keep, of `faceanon.photo.exif.KINDS`.

    Raises:
        UserError: If the file is missing, damaged, no picture, an animation or too large, or the array is not RGB
            uint8.
    """
    if isinstance(photo, np.ndarray):
        if photo.dtype != np.uint8 or photo.ndim != 3 or photo.shape[2] != 3 or 0 in photo.shape:
            raise UserError(f"a photo array must be (H, W, 3) uint8, not {photo.shape} {photo.dtype}")
        return LoadedPhoto(photo.copy())
    if isinstance(photo, Image.Image):
        return _load(photo, "the photo", embedded(photo), keep)
    path = Path(photo)
    with opened(path) as image:
        return _load(image, str(path), embedded(image) or read_sidecar(path), keep)


def load_carried(path: Path) -> LoadedPhoto | None:
    """A photo whose manifest lies in the lowest bits of its pixels, for a file that has lost its metadata.

    Returns:
        None where the pixels carry nothing.

    Raises:
        UserError: As `load_photo`.
    """
    with opened(path) as image:
        # As in a file of ours: a profile stays with the pixels, since converting them would change their lowest bits.
        photo = _load(image, str(path), "in the pixels")
    payload = pixels.find(photo.pixels)
    if payload is None:
        return None
    return replace(photo, manifest=payload.decode("utf-8", "replace"))


def read_manifest(photo: LoadedPhoto) -> Manifest:
    """The manifest inside a photo, or beside it. Whether it fits the pixels is for `faceanon.photo.signature`.

    Raises:
        UserError: If there is none, or it is damaged.
    """
    if photo.manifest is None:
        raise UserError(f"{photo.name} carries no faceanon data; give the file as `faceanon anonymize` wrote it")
    try:
        return Manifest.from_json(photo.manifest)
    except UserError as error:
        raise UserError(f"{photo.name}: {error}") from error


def to_image(photo: LoadedPhoto) -> Image.Image:
    """A PIL image whose `info` carries manifest and colour profile."""
    image = Image.fromarray(photo.pixels if photo.alpha is None else np.dstack([photo.pixels, photo.alpha]))
    if photo.manifest is not None:
        image.info[MANIFEST_KEY] = photo.manifest
    if photo.icc is not None:
        image.info["icc_profile"] = photo.icc
    return image


def read_vault(path: Path) -> bytes | None:
    """The vault in a picture file or beside it, unopened, or None.

    Raises:
        UserError: If the file cannot be read.
    """
    with opened(path) as image:
        inside = embedded_vault(image)
    if inside is None:
        return read_vault_file(path)
    return inside


def write_photo(
    path: Path,
    photo: LoadedPhoto,
    quality: int | None = None,
    sidecar: bool = False,
    vault: bytes | None = None,
    credentials: Credentials | None = None,
) -> None:
    """Write a picture with nothing of the original file but its pixels and the EXIF data that are to be kept.

    The file appears complete or not at all; what lies beside it is there before it.

    Args:
        path: Where to; the ending says the format: .png, .webp, .jpg or .jpeg.
        photo: What to write.
        quality: 1 to 100 for JPEG (95 by default) and WebP (exact by default).
        sidecar: Write the manifest beside the file, into `NAME.faceanon.json`, instead of into it.
        vault: The sealed originals, or None. Beside the file, in `NAME.faceanon.vault`, with `sidecar` and where the
            format has no room.
        credentials: Sign the file, by C2PA.

    Raises:
        UserError: If the ending is another, the format cannot hold the photo, or the file cannot be signed or written.
    """
    check_suffix(path)
    text = photo.manifest if sidecar else None
    apart = vault if sidecar or not holds_vault(path) else None
    inside = Inside(None if sidecar else photo.manifest, None if apart else vault, photo.marked, photo.exif)
    data = encode(photo.pixels, photo.alpha, photo.icc, path, quality, inside)
    if credentials is not None:
        data = credentials.signed(data, path)
    write_files(path, data, None if text is None else (text + "\n").encode(), apart)


def write_files(path: Path, picture: bytes, manifest: bytes | None, vault: bytes | None) -> None:
    """Write a picture file and what lies beside it: first what lies beside, all of it or nothing.

    Args:
        path: The picture.
        picture: Its bytes.
        manifest: For the sidecar; None: there is none, and one of an earlier run goes.
        vault: For the file of the vault, likewise.

    Raises:
        UserError: If a file cannot be written.
    """
    # Every name stands here, with None where nothing is written: what an earlier run left there is removed below.
    beside = {sidecar_of(path): manifest, vault_of(path): vault}
    try:
        for file, content in beside.items():
            if content is not None:
                write_atomic(file, content)
        write_atomic(path, picture)
    except UserError:
        for file, content in beside.items():
            # It would belong to no picture.
            if content is not None:
                file.unlink(missing_ok=True)
        raise
    for file, content in beside.items():
        # One of an earlier run would describe another picture.
        if content is None:
            file.unlink(missing_ok=True)


def _load(image: Image.Image, name: str, manifest: str | None, keep: Collection[str] = ()) -> LoadedPhoto:
    marked = manifest is not None and is_marked(image)
    exif = kept(image, keep)
    icc = image.info.get("icc_profile")
    # The pixels of a file of ours must stay as they are, since recovery starts from them; so its profile stays too.
    shown = decode(image, name, convert_profile=manifest is None)
    own = None
    if manifest is not None and isinstance(icc, bytes) and icc:
        own = icc
    notes = (*shown.notes, *exif.notes)
    return LoadedPhoto(shown.pixels, manifest, own, name, shown.alpha, notes, marked, exif.data)
