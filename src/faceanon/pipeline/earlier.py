"""Pictures that were anonymized before: refused unless it is wanted, and then with the first record kept."""

from __future__ import annotations

from dataclasses import replace

from faceanon.errors import UserError
from faceanon.manifest import MOST_RECORDS, Manifest
from faceanon.photo.file import LoadedPhoto, read_manifest
from faceanon.photo.signature import Pixels, fitted, signature_of
from faceanon.sealed.pixels import find

AGAIN = "it was anonymized more than once; recover the result again with the password of the time before"


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


def taken_back(photo: LoadedPhoto, manifest: Manifest, pixels: Pixels) -> LoadedPhoto:
    """The photo after its last anonymization was taken back; one that was anonymized twice carries its first record.

    One that is an original now has no mark.

    Args:
        photo: The anonymized photo.
        manifest: Of the last anonymization.
        pixels: The recovered picture, `(H, W, 3)` uint8.
    """
    earlier = manifest.earlier
    if earlier is None:
        return replace(photo, pixels=pixels, manifest=None, marked=False)
    # Recovery is not exact to the pixel, so the picture has a signature of its own.
    earlier = replace(earlier, signature=signature_of(pixels, earlier.layers))
    notes = (*photo.notes, AGAIN)
    return replace(photo, pixels=pixels, manifest=earlier.to_json(), notes=notes)
