"""Pictures that were anonymized before: refused unless it is wanted, and then with the first record kept."""

from __future__ import annotations

from dataclasses import replace

from faceanon.errors import UserError
from faceanon.manifest import MOST_RECORDS, Manifest
from faceanon.photo.file import LoadedPhoto, read_manifest
from faceanon.photo.signature import Pixels, fitted, signature_of
from faceanon.sealed.pixels import find


def admitted(photo: LoadedPhoto, again: bool) -> LoadedPhoto:
    """A photo that may be anonymized, with the recovery data that it carries already in `manifest`.

    Args:
        photo: As it was loaded.
        again: Whether it may carry recovery data; they then go inside the new ones.

    Returns:
        The photo; one that was turned since it was anonymized, turned back.

    Raises:
        UserError: If it carries recovery data, and `again` is not said or the data do not fit the picture.
    """
    if photo.manifest is None:
        carried = find(photo.pixels)
        if carried is None:
            return photo
        photo = replace(photo, manifest=carried.decode("utf-8", "replace"))
    if not again:
        raise UserError(
            f"{photo.name} was anonymized by faceanon already: recover it first, or give --again (in Python again=True)"
            " to anonymize it once more and keep both ways back"
        )
    manifest = read_manifest(photo)
    if manifest.records >= MOST_RECORDS:
        raise UserError(f"{photo.name} was anonymized {manifest.records} times, which is the most; recover it first")
    return fitted(photo, manifest)


def earlier_json(manifest: Manifest, pixels: Pixels) -> str | None:
    """The earlier record of a picture whose last anonymization was taken back, as JSON, or None.

    Args:
        manifest: Of the last anonymization.
        pixels: The recovered picture, `(H, W, 3)` uint8.
    """
    earlier = manifest.earlier
    if earlier is None:
        return None
    # Recovery is not exact to the pixel, so the picture has a signature of its own.
    return replace(earlier, signature=signature_of(pixels, earlier.layers)).to_json()
