"""What results of photos and films carry beside their pixels: recovery data, the mark, metadata of the original."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.photo.c2pa import Credentials

# Under any password, since a mark would tell strangers from the faces that were there.
UNMARKED = "with --deniable no result has a mark, whichever faces it shows"


@dataclass(frozen=True)
class MetadataOptions:
    """What a result carries beside its pixels.

    Args:
        sidecar: Whether the recovery data go into a file beside it.
        mark: Whether it says that trained algorithms made a part of it.
        keep_metadata: Kinds of the original's metadata that stay, with commas between; None: none.
        c2pa: Files of the certificates and the key that sign it; None: it is not signed.
    """

    sidecar: bool
    mark: bool
    keep_metadata: str | None
    c2pa: list[Path] | None

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that stay.

        Raises:
            UserError: If a word is unknown.
        """
        from faceanon.photo.exif import kinds_of

        return kinds_of(self.keep_metadata)

    @cached_property
    def credentials(self) -> Credentials | None:
        """What signs the result, if anything does; raises as `read_credentials` does."""
        if self.c2pa is None:
            return None
        from faceanon.photo.c2pa import read_credentials

        return read_credentials(*self.c2pa)

    def check(self, film: bool) -> None:
        """Refuse what was typed wrongly.

        Raises:
            UserError: If a word is unknown, or IN is a film and a kind is named that films do not have.
        """
        if self.kinds and film and self.of_photos_only:
            raise UserError("--keep-metadata camera is for photos only; of a film, time and place can stay")

    @property
    def of_photos_only(self) -> bool:
        """Whether a kind is named that films do not have."""
        return self.keep_metadata is not None and "camera" in self.keep_metadata.split(",")
