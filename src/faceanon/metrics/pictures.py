"""Which pictures a test really saw: their number, their people, their content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.errors import UserError
from faceanon.files import sha256
from faceanon.metrics.checks import check_image, check_labels
from faceanon.metrics.saved import to_bytes
from faceanon.types import FaceBatch

GRID = 4  # cells a side in the signature
TOLERANCE = 2e-4  # on [-1, 1]: above what decoders and processors round, far below one moved nose


@dataclass(frozen=True)
class SeenPictures:
    """The pictures of a test.

    Args:
        images: Their number.
        people: Number of known people among them.
        signature: Mean brightness of each of 4 x 4 cells in each channel, on [-1, 1], over all pictures, 48 numbers.
            Unlike a hash it forgives a decoder's rounding, and no change that the eye can see.
        sha256: Of the pictures' own hashes, sorted: the same for any order, exact to the bit.
    """

    images: int
    people: int
    signature: tuple[float, ...]
    sha256: str


class PictureCheck(Metric):
    """Fingerprint of a set of pictures, whatever the batches, the processes and the order were."""

    full_state_update = False
    totals: Tensor
    digests: list[Tensor]
    identity: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        cells = torch.zeros(3 * GRID * GRID, dtype=torch.float64)
        self.add_state("totals", default=cells, dist_reduce_fx="sum")
        for name in ("digests", "identity"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, batch: FaceBatch) -> None:
        """Add a batch of originals.

        Raises:
            ValueError: Wrong shape or range, no picture, or NaN.
        """
        image = check_image("batch.image", batch.image)
        # Coarse and summed up in float64: the same on every processor, whatever the batches were.
        self.totals += F.adaptive_avg_pool2d(image.double(), GRID).flatten(1).sum(0)
        self.digests.append(row_digests(to_bytes(image)).to(self.device))
        self.identity.append(check_labels("batch.identity", batch.identity, len(batch)).to(self.device))

    def seen(self) -> SeenPictures:
        """The fingerprint.

        Raises:
            ValueError: Nothing was added.
        """
        return SeenPictures(**self.compute())

    def compute(self) -> dict[str, Any]:
        """The fields of `SeenPictures`; torchmetrics handles no frozen dataclass.

        Raises:
            ValueError: Nothing was added.
        """
        if not len(self.digests):
            raise ValueError("nothing to compute: no batch was added")
        digests = dim_zero_cat(self.digests)
        identity = dim_zero_cat(self.identity)
        return {
            "images": len(digests),
            "people": len(torch.unique(identity[identity >= 0])),
            "signature": tuple(round(value, 6) for value in (self.totals / len(digests)).tolist()),
            "sha256": combined(digests),
        }


def row_digests(rows: Tensor) -> Tensor:
    """First 63 bits of each row's sha256: `(B, ...)` on the CPU -> `(B,)` int64."""
    digests = []
    for row in rows:
        digests.append(hashlib.sha256(row.contiguous().numpy().tobytes()).digest()[:8])
    numbers = []
    for digest in digests:
        # One bit is dropped, since int64 has one bit for the sign.
        numbers.append(int.from_bytes(digest, "big") >> 1)
    return torch.tensor(numbers, dtype=torch.int64)


def combined(digests: Tensor) -> str:
    """One hash of `(N,)` digests in any order."""
    # Sorted, since processes see the pictures in an order of their own.
    return hashlib.sha256(" ".join(map(str, sorted(digests.tolist()))).encode()).hexdigest()


def read_list(path: Path) -> dict[str, str]:
    """Person by sha256 of the picture file, from lines `sha256 person`; `#` starts a comment.

    Raises:
        UserError: The list is missing, or a line is something else.
    """
    if not path.is_file():
        raise UserError(f"no picture list {path}: it belongs beside the protocol that names it")
    persons = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 2 or len(words[0]) != 64 or words[0] in persons:
            raise UserError(f"{path}:{number}: expected a new sha256 and a person, got {line!r}")
        persons[words[0]] = words[1]
    return persons


def find_pictures(listed: dict[str, str], files: Sequence[Path]) -> list[tuple[Path, str]]:
    """The listed pictures among `files`, by content, with their person, in the list's order; names do not matter.

    Raises:
        UserError: Some are missing.
    """
    where = {sha256(path): path for path in files}
    missing = []
    for digest in listed:
        if digest not in where:
            missing.append(digest)
    if missing:
        raise UserError(
            f"{len(missing)} of the protocol's {len(listed)} pictures are not among the {len(files)} files given, "
            f"such as sha256 {missing[0][:16]}...; give the folders that hold the originals"
        )
    listed_files = []
    for digest, person in listed.items():
        listed_files.append((where[digest], person))
    return listed_files
