"""Any folder of face photographs as a datamodule."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal

import lightning as L
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only

from faceanon.data.batches import hold_out
from faceanon.data.faces import Faces, Pixels, Reader
from faceanon.data.files import (
    Box,
    Layout,
    Photo,
    UnreadableError,
    check_box,
    list_photos,
    name_identities,
)
from faceanon.data.held_out import HeldOutLoaders, Split
from faceanon.data.jitter import EXACT, CropJitter, JitteredTraining
from faceanon.errors import UserError

_MOST_NAMED = 20
_log = logging.getLogger(__name__)


@rank_zero_only
def _report(lines: Sequence[str]) -> None:
    for line in lines:
        _log.warning("%s", line)


class FolderFaces(JitteredTraining, HeldOutLoaders, L.LightningDataModule):
    """Faces from one or several folders, aligned already (see docs/how-to/own-photos.md).

    Persons are held out whole: one of the validation or test split is never in training. Pictures without a known
    person all go to training, unless no person is known at all; then the pictures themselves are split.

    Args:
        root: Folder, or several to join. Equal names of persons in two roots are two persons.
        layout: `identity` (one folder a person, as LFW), `flat` (as FFHQ and CelebA-HQ) or `auto`.
        image_size: Side of the faces in pixels; must be the bundle's.
        batch_size: Pictures a batch, per process.
        val_fraction: Share of the persons held out for validation.
        test_fraction: Share of the persons held out for the test.
        val_identities: Number of persons for validation, instead of the share; of pictures, where nobody is known.
        test_identities: Number of persons for the test, likewise.
        on_bad: Leave damaged files out (`skip`) or stop (`refuse`); both name them.
        min_photos: Persons with fewer pictures are left out.
        seed: Of the split and of the order of training.
        workers: Threads that read at the start, and processes that make batches ahead where memory does not hold all
            pictures or a GPU trains.
        crop: Left, top, right, bottom as fractions of every picture; None takes all of it.
        mirror: Mirror training pictures at random.
        same_identity_pairs: Share of a training batch made of pairs of one person, at rows 2i and 2i + 1.
        identities: CSV or blank-separated list (picture, person) that replaces the folders' names.
        masks: Folder below each root with `.png` masks, one class index a pixel; None if there are none.
        mask_order: New class of every stored class.
        mask_mirror: Class of every (new) class in a mirrored picture; needed for `masks` with `mirror`.
        memory_limit: Gigabytes of decoded pictures to hold; above it they are read from disk each time.
        jitter: Random crops in training, each picture its own; none by default.

    Examples:
        >>> from pathlib import Path
        >>> from faceanon.data.folder import FolderFaces
        >>> from faceanon.photo.party import photo_party
        >>> for person, left in (("anna", 14), ("ben", 284), ("carla", 554)):
        ...     folder = Path("faces") / person
        ...     folder.mkdir(parents=True)
        ...     photo_party().crop((left, 14, left + 256, 270)).save(folder / "1.png")
        >>> faces = FolderFaces("faces", batch_size=1, val_identities=1, test_identities=1, workers=0)
        >>> faces.setup()
        >>> [len(faces.split(name)) for name in ("train", "val", "test")]
        [1, 1, 1]
    """

    def __init__(
        self,
        root: str | list[str],
        layout: Layout = "auto",
        image_size: int = 64,
        batch_size: int = 16,
        val_fraction: float = 0.05,
        test_fraction: float = 0.1,
        val_identities: int | None = None,
        test_identities: int | None = None,
        on_bad: Literal["skip", "refuse"] = "skip",
        min_photos: int = 1,
        seed: int = 0,
        workers: int = 2,
        crop: Box | None = None,
        mirror: bool = False,
        same_identity_pairs: float = 0.0,
        identities: str | None = None,
        masks: str | None = None,
        mask_order: list[int] | None = None,
        mask_mirror: list[int] | None = None,
        memory_limit: float = 4.0,
        jitter: CropJitter = EXACT,
    ) -> None:
        super().__init__()
        if masks and mirror and mask_mirror is None:
            raise UserError("masks with mirror need mask_mirror: the class of every class in a mirrored picture")
        if not (0 <= same_identity_pairs <= 1 and batch_size >= 1 and image_size >= 8):
            raise UserError("same_identity_pairs is a share in [0, 1], batch_size at least 1, image_size at least 8")
        self.roots = list(map(Path, [root] if isinstance(root, str) else root))
        self.layout = layout
        self.image_size = image_size
        self.batch_size = batch_size
        self.on_bad = on_bad
        self.fractions = (val_fraction, test_fraction)
        self.counts = (val_identities, test_identities)
        self.min_photos = min_photos
        self.seed = seed
        self.workers = workers
        self.crop = None if crop is None else check_box(crop)
        self.mirror = mirror
        self.pairs = same_identity_pairs
        self.identities = identities
        self.masks = masks
        self.mask_mirror = mask_mirror
        self.memory_limit = memory_limit
        self.jitter = jitter
        self.read = Reader(image_size, self.crop, mask_order)
        self.faces: dict[Split, Faces] = {}

    def setup(self, stage: str | None = None) -> None:
        """List, read and split the pictures once, whatever the stage.

        Raises:
            UserError: A root is missing or empty, a file is damaged and `on_bad` is `refuse`, or nothing is left.
        """
        if self.faces:
            return
        listed = []
        for index, root in enumerate(self.roots):
            listed.extend(self._list(index, root))
        decoded = self._decode(listed)
        photos = self._often_enough(list(decoded))
        known = set()
        for photo in photos:
            if photo.identity is not None:
                known.add(photo.identity)
        # A person's number must not depend on the order in which files are found.
        names = sorted(known)
        number = {}
        for position, name in enumerate(names):
            number[name] = position
        kept = self._fits(len(photos))
        splits = self._split(photos)
        self._say_what_was_found(splits)
        for split, some in splits.items():
            labels = []
            for photo in some:
                labels.append(-1 if photo.identity is None else number[photo.identity])
            pixels = None
            if kept:
                pixels = []
                for photo in some:
                    # Taken out, so that pictures do not lie in memory twice.
                    if (item := decoded.pop(photo)) is not None:
                        pixels.append(item)
            self.faces[split] = Faces(some, labels, self.read, pixels, self.mask_mirror)

    def _list(self, number: int, root: Path) -> list[Photo]:
        photos = list_photos(root, self.layout, self.masks)
        if self.identities is not None:
            photos = name_identities(photos, Path(self.identities))
        persons = []
        for photo in photos:
            persons.append(None if photo.identity is None else f"{number}/{photo.identity}")
        listed = []
        for photo, person in zip(photos, persons, strict=True):
            # Two folders may name their persons alike and mean different ones.
            listed.append(replace(photo, name=f"{number}/{photo.name}", identity=person))
        return listed

    def _fits(self, count: int) -> bool:
        # A pixel takes three bytes of colour, and one for the class of a mask.
        return count * self.image_size**2 * (4 if self.masks else 3) <= self.memory_limit * 1e9

    def _decode(self, photos: Sequence[Photo]) -> dict[Photo, Pixels | None]:
        """Read everything once: what is readable, with its pixels if memory holds them all."""
        decoded: dict[Photo, Pixels | None] = {}
        bad: list[str] = []
        cut = 0
        # Decided before anything is read: what does not fit is read again batch by batch.
        keep = self._fits(len(photos))
        with ThreadPoolExecutor(max(1, self.workers)) as pool:
            for photo, result in zip(photos, pool.map(self._try, photos), strict=True):
                if isinstance(result, UnreadableError):
                    bad.append(str(result))
                    continue
                decoded[photo] = result[0] if keep else None
                cut += not result[1]
        self._report_bad(bad)
        if not decoded:
            raise UserError(f"none of the {len(photos)} pictures in {self._where()} can be read")
        if cut:
            _report([f"{cut} of {len(decoded)} pictures are not square and were cut at the centre: align faces first"])
        return decoded

    def _try(self, photo: Photo) -> tuple[Pixels, bool] | UnreadableError:
        try:
            return self.read(photo)
        # Given back instead of raised: the pool goes on, and one message names all damaged files.
        except UnreadableError as error:
            return error

    def _report_bad(self, bad: Sequence[str]) -> None:
        named = list(bad[:_MOST_NAMED])
        if len(bad) > _MOST_NAMED:
            named.append(f"and {len(bad) - _MOST_NAMED} more")
        if bad and self.on_bad == "refuse":
            raise UserError(f"{len(bad)} damaged files; remove them or set on_bad to skip: " + "; ".join(named))
        if bad:
            _report([f"skipped {line}" for line in named])

    def _often_enough(self, photos: list[Photo]) -> list[Photo]:
        """Leave out persons with fewer than `min_photos` pictures."""
        count = Counter(photo.identity for photo in photos)
        kept = []
        for photo in photos:
            if photo.identity is None or count[photo.identity] >= self.min_photos:
                kept.append(photo)
        if not kept:
            raise UserError(f"nobody in {self._where()} has {self.min_photos} pictures: lower min_photos")
        if len(kept) < len(photos):
            _report([f"left out {len(photos) - len(kept)} pictures of persons with fewer than {self.min_photos}"])
        return kept

    def _split(self, photos: Sequence[Photo]) -> dict[Split, list[Photo]]:
        """Persons held out whole; the pictures themselves where nobody is known."""
        known = set()
        for photo in photos:
            if photo.identity is not None:
                known.add(photo.identity)
        # A person is either trained on or tested on; of nobody known every picture counts as somebody.
        names = known or {photo.name for photo in photos}
        held = []
        for which in (0, 1):
            held.append(self._count(which, len(names)))
        val, test = hold_out(sorted(names), held[0], held[1], self.seed)
        splits: dict[Split, list[Photo]] = {"train": [], "val": [], "test": []}
        for photo in photos:
            name = photo.identity if known else photo.name
            if name in val:
                splits["val"].append(photo)
            elif name in test:
                splits["test"].append(photo)
            else:
                splits["train"].append(photo)
        if not splits["train"]:
            raise UserError(
                f"nothing is left to train on: {len(val)} of {len(names)} held out for validation, "
                f"{len(test)} for the test; lower them or add pictures to {self._where()}"
            )
        return splits

    def _say_what_was_found(self, splits: dict[Split, list[Photo]]) -> None:
        """One line a root: a folder of unnamed pictures with folders inside would else pass for persons unnoticed."""
        for number, root in enumerate(self.roots):
            own = {}
            persons = {}
            for s, some in splits.items():
                own[s] = [photo for photo in some if photo.name.startswith(f"{number}/")]
                persons[s] = len({photo.identity for photo in own[s]} - {None})
            known = 0
            for some in own.values():
                for photo in some:
                    if photo.identity is not None:
                        known += 1
            rest = sum(map(len, own.values())) - known
            held = f"{persons['val']} held out for validation, {persons['test']} for the test"
            named = ""
            if known:
                named = f"{known} pictures of {sum(persons.values())} known persons ({held}), "
            rank_zero_info(f"{root}: {named}{rest} pictures of unknown persons")

    def _count(self, which: int, total: int) -> int:
        count = self.counts[which]
        fraction = self.fractions[which]
        if count is not None:
            return count
        # A fraction that is wanted at all holds out somebody, however few there are.
        return max(round(fraction * total), int(fraction > 0 and total > 2))

    def _where(self) -> str:
        return ", ".join(map(str, self.roots))

    def split(self, name: Split) -> Faces:
        """The pictures of a split."""
        return self.faces[name]

    def in_memory(self, name: Split) -> bool:
        """Whether the pixels of a split are in memory."""
        return self.faces[name].cache is not None
