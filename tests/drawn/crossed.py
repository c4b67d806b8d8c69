"""Sets of procedural faces: crossed groups for training, held-out people for evaluation, rendered into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.data.streams import stream
from drawn.factors import ATTRIBUTES, IDENTITY, sample_attributes, sample_identity
from drawn.render import render
from faceanon.types import FaceBatch

GROUP = 4
"""Rows of a crossed group: (id0, att0), (id0, att1), (id1, att0), (id1, att1)."""


@dataclass(frozen=True)
class Photos:
    """Rendered pictures as they are kept in memory.

    Args:
        image: `(N, 3, S, S)` uint8, `round((x + 1) * 127.5)`.
        parsing: `(N, S, S)` uint8 class per pixel.
        landmarks: `(N, K, 2)` float32 in [-1, 1].
    """

    image: Tensor
    parsing: Tensor
    landmarks: Tensor


@dataclass(frozen=True)
class Roll:
    """Who is in which picture, before anything is drawn.

    Args:
        identity: `(N, len(IDENTITY))` float32 factors.
        attributes: `(N, len(ATTRIBUTES))` float32 factors.
        identity_label: `(N,)` int64.
        attribute_label: `(N,)` int64.
    """

    identity: Tensor
    attributes: Tensor
    identity_label: Tensor
    attribute_label: Tensor


def crossed_roll(groups: int, seed: int, occlusion: float) -> Roll:
    """Training rows in groups of four: two new people, each in the same two new attribute sets."""
    people = sample_identity(2 * groups, stream("train", seed, "identity"))
    sets = sample_attributes(2 * groups, stream("train", seed, "attributes"), occlusion)
    first = 2 * torch.arange(groups)[:, None]
    who = (first + torch.tensor([0, 0, 1, 1])).flatten()
    how = (first + torch.tensor([0, 1, 0, 1])).flatten()
    return Roll(people[who], sets[how], who, how)


def held_out_roll(split: str, identities: int, photos: int, occlusion: float, first_label: int) -> Roll:
    """Evaluation rows, identity-major: each person in `photos` attribute sets of their own.

    The streams carry the split's name and no seed, so these people are the same for every training and in none.
    """
    people = sample_identity(identities, stream(split, "identity"))
    sets = sample_attributes(identities * photos, stream(split, "attributes"), occlusion)
    who = torch.arange(identities).repeat_interleave(photos)
    return Roll(people[who], sets, who + first_label, torch.arange(len(who)) + first_label)


def render_in_chunks(
    identity: Tensor, attributes: Tensor, size: int, chunk: int = 16, progress: str | None = None
) -> Photos:
    """Render all rows, a few at a time, to 8 bits.

    Args:
        identity: `(N, len(IDENTITY))`.
        attributes: `(N, len(ATTRIBUTES))`.
        size: Side of the pictures in pixels.
        chunk: Rows per call of the renderer; 16 keeps its planes in the processor's cache.
        progress: Title of a progress bar, shown when rendering takes more than two seconds; None shows none.
    """
    parts = []
    starts = range(0, len(identity), chunk)
    for start in tqdm(starts, desc=progress, delay=2, leave=False, disable=progress is None):
        part = render(identity[start : start + chunk], attributes[start : start + chunk], size)
        image = ((part.image + 1) * 127.5).round().to(torch.uint8)
        parts.append((image, part.parsing.to(torch.uint8), part.landmarks))
    image, parsing, landmarks = map(torch.cat, zip(*parts, strict=True))
    return Photos(image, parsing, landmarks)


def iter_groups(batch: FaceBatch) -> Iterator[FaceBatch]:
    """The crossed groups of a training batch, each a batch of four rows."""
    for start in range(0, len(batch), GROUP):
        stop = start + GROUP
        yield batch.map(lambda tensor, start=start, stop=stop: tensor[start:stop])  # type: ignore[misc]


class SyntheticSet(torch.utils.data.Dataset[FaceBatch]):
    """Rendered faces; an item is a whole batch, asked for by its list of rows.

    Args:
        roll: Who is in which picture.
        size: Side of the pictures in pixels.
        progress: Title of the progress bar.
        parsing: Whether batches bring the class of every pixel.
    """

    def __init__(self, roll: Roll, size: int, progress: str | None = None, parsing: bool = True) -> None:
        self.roll = roll
        self.parsing = parsing
        self.photos = render_in_chunks(roll.identity, roll.attributes, size, progress=progress)
        self.factors = torch.cat([roll.identity, roll.attributes], dim=1)

    def __len__(self) -> int:
        return len(self.factors)

    def __getitem__(self, rows: list[int]) -> FaceBatch:
        index = torch.tensor(rows)
        return FaceBatch(
            image=self.photos.image[index].float().div_(127.5).sub_(1),
            identity=self.roll.identity_label[index],
            attribute=self.roll.attribute_label[index],
            parsing=self.photos.parsing[index].long() if self.parsing else None,
            landmarks=self.photos.landmarks[index],
            factors=self.factors[index],
        )


FACTORS: tuple[str, ...] = (*IDENTITY, *ATTRIBUTES)
"""What the columns of `FaceBatch.factors` hold, in order: first the factors of identity, then those of attributes."""
