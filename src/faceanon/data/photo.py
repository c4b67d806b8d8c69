"""Photos in and out: any picture file to RGB pixels, and PNG with the manifest in its metadata."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.PngImagePlugin import PngInfo

from faceanon.errors import UserError
from faceanon.manifest import Manifest
from faceanon.weights.files import write_atomic

Photo = str | Path | Image.Image | NDArray[np.uint8]

SUFFIXES = frozenset({".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
MANIFEST_KEY = "faceanon"
MAX_PIXELS = 80_000_000  # 240 MB of pixels; below the size at which Pillow itself starts to warn


@dataclass(frozen=True)
class LoadedPhoto:
    """A decoded photo.

    Args:
        pixels: RGB `(H, W, 3)` uint8, upright.
        manifest: What an earlier `anonymize` wrote into the file, as JSON, or None.
        icc: The colour profile of the pixels, or None.
        name: What to call it in messages.
    """

    pixels: NDArray[np.uint8]
    manifest: str | None = None
    icc: bytes | None = None
    name: str = "the photo"


def load_photo(photo: Photo) -> LoadedPhoto:
    """Decode a photo: EXIF orientation applied, transparency over white, grey, palette, 16 bit and CMYK to RGB.

    Args:
        photo: Path, PIL image, or RGB array `(H, W, 3)` uint8.

    Raises:
        UserError: If the file is missing, damaged, no picture or too large, or the array is not RGB uint8.
    """
    if isinstance(photo, np.ndarray):
        if photo.dtype != np.uint8 or photo.ndim != 3 or photo.shape[2] != 3 or 0 in photo.shape:
            raise UserError(f"a photo array must be (H, W, 3) uint8, not {photo.shape} {photo.dtype}")
        return LoadedPhoto(photo.copy())
    if isinstance(photo, Image.Image):
        return _decode(photo, "the photo")
    path = Path(photo)
    with _readable(path), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path) as image:
            return _decode(image, str(path))


def read_manifest(photo: LoadedPhoto) -> Manifest:
    """The manifest inside a photo.

    Raises:
        UserError: If there is none, it is damaged, or the photo's size has changed since.
    """
    if photo.manifest is None:
        raise UserError(f"{photo.name} carries no faceanon data; give the PNG as `faceanon anonymize` wrote it")
    try:
        manifest = Manifest.from_json(photo.manifest)
    except UserError as error:
        raise UserError(f"{photo.name}: {error}") from error
    height, width = photo.pixels.shape[:2]
    if (manifest.width, manifest.height) != (width, height):
        was = f"{manifest.width}x{manifest.height}"
        raise UserError(f"{photo.name} is {width}x{height} px but was anonymized at {was}; give the unscaled PNG")
    return manifest


def to_image(photo: LoadedPhoto) -> Image.Image:
    """A PIL image whose `info` carries manifest and colour profile."""
    image = Image.fromarray(photo.pixels)
    if photo.manifest is not None:
        image.info[MANIFEST_KEY] = photo.manifest
    if photo.icc is not None:
        image.info["icc_profile"] = photo.icc
    return image


def write_photo(path: Path, photo: LoadedPhoto) -> None:
    """Write a PNG with nothing of the original file but pixels and colour profile: no EXIF, no place, no thumbnail.

    The file appears complete or not at all.

    Raises:
        UserError: If the name does not end in .png, or the file cannot be written.
    """
    if path.suffix.lower() != ".png":
        raise UserError(f"{path}: the output must be a .png, which keeps pixels exact and carries the recovery data")
    chunks = PngInfo()
    if photo.manifest is not None:
        chunks.add_itxt(MANIFEST_KEY, photo.manifest)
    data = io.BytesIO()
    Image.fromarray(photo.pixels).save(data, "PNG", pnginfo=chunks, icc_profile=photo.icc)
    write_atomic(path, data.getvalue())


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what Pillow raises on a bad file into one line that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"no such picture: {path}") from error
    except UnidentifiedImageError as error:
        raise UserError(f"{path} is not a picture that can be read; convert it to PNG or JPEG") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(_too_large(str(path))) from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # Pillow raises all of these on damaged files
        raise UserError(f"{path} cannot be read ({error}); the file is damaged or cut short") from error


def _too_large(name: str) -> str:
    return f"{name} has more than {MAX_PIXELS // 1_000_000} million pixels; make it smaller first"


def _decode(image: Image.Image, name: str) -> LoadedPhoto:
    if image.width * image.height > MAX_PIXELS:
        raise UserError(_too_large(name))
    manifest, icc = image.info.get(MANIFEST_KEY), image.info.get("icc_profile")
    keeps_profile = image.mode in ("RGB", "RGBA") and isinstance(icc, bytes)
    upright = ImageOps.exif_transpose(image)
    return LoadedPhoto(
        pixels=np.array(_to_rgb(upright), dtype=np.uint8),
        manifest=str(manifest) if manifest is not None else None,
        icc=icc if keeps_profile else None,
        name=name,
    )


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits a pixel, in 16 or 32 bit words; Pillow's own conversion clips at 255
        wide = np.asarray(image).astype(np.int64)
        return Image.fromarray((wide.clip(0, 65535) // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise UserError("a picture of floating point numbers has no defined white; convert it to 8 or 16 bit first")
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")
