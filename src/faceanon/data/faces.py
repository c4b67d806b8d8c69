"""Pictures on disk or in memory as batches of tensors. Nothing here knows Lightning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from faceanon.data.batches import Row
from faceanon.data.files import Box, Photo, read_mask, read_photo
from faceanon.types import FaceBatch

Pixels = tuple[NDArray[np.uint8], NDArray[np.uint8] | None]  # (S, S, 3), and (S, S) if there are masks


@dataclass(frozen=True)
class Reader:
    """Reads one picture and its mask at the size that training wants.

    Args:
        size: Side in pixels.
        crop: As `files.read_photo`.
        mask_order: As `files.read_mask`.
    """

    size: int
    crop: Box | None = None
    mask_order: Sequence[int] | None = None

    def __call__(self, photo: Photo) -> tuple[Pixels, bool]:
        """The pixels, and whether the picture was square before."""
        pixels, square = read_photo(photo.path, self.size, self.crop)
        if photo.mask is None:
            mask = None
        else:
            mask = read_mask(photo.mask, self.size, self.crop, self.mask_order)
        return (pixels, mask), square


def stack(pixels: Sequence[Pixels]) -> tuple[Tensor, Tensor | None]:
    """Pictures `(N, S, S, 3)` and masks `(N, S, S)` or None, uint8."""
    pictures = []
    masks = []
    for picture, mask in pixels:
        pictures.append(picture)
        if mask is not None:
            masks.append(mask)
    stacked = torch.from_numpy(np.stack(pictures))
    if not masks:
        return stacked, None
    return stacked, torch.from_numpy(np.stack(masks))


class Faces(Dataset[FaceBatch]):
    """Pictures of one split; an item is a whole batch.

    Args:
        photos: The pictures.
        labels: Person of each, -1 where unknown.
        read: Reads one picture.
        decoded: What `read` gave for every picture, or None to read them again each time.
        mask_mirror: Class of every class after mirroring; None if there are no masks.
    """

    def __init__(
        self,
        photos: Sequence[Photo],
        labels: Sequence[int],
        read: Reader,
        decoded: Sequence[Pixels] | None,
        mask_mirror: Sequence[int] | None,
    ) -> None:
        self.photos = photos
        self.labels = labels
        self.read = read
        self.cache = stack(decoded) if decoded else None
        if mask_mirror is None:
            self.mirrored = None
        else:
            self.mirrored = torch.tensor(mask_mirror)

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, rows: Sequence[Row]) -> FaceBatch:
        index = [row for row, _ in rows]
        pixels, masks = self._pixels(index)
        flip = torch.tensor([mirrored for _, mirrored in rows])
        image = pixels.permute(0, 3, 1, 2).float().div(127.5).sub(1)  # (B, 3, S, S)
        # One call for the whole batch: mirroring row by row costs more than it saves.
        image = torch.where(flip[:, None, None, None], image.flip(-1), image)
        unknown = torch.full((len(rows),), -1)
        labels = torch.tensor([self.labels[row] for row in index])
        return FaceBatch(image, labels, unknown, parsing=None if masks is None else self._flip(masks.long(), flip))

    def _pixels(self, index: list[int]) -> tuple[Tensor, Tensor | None]:
        if self.cache is not None:
            pixels, masks = self.cache
            if masks is None:
                return pixels[index], None
            return pixels[index], masks[index]
        return stack([self.read(self.photos[row])[0] for row in index])

    def _flip(self, masks: Tensor, flip: Tensor) -> Tensor:
        """Mirror the masks `(B, S, S)` of the rows in `flip`, left and right classes exchanged."""
        if self.mirrored is None or not flip.any():
            return masks
        # In a mirrored picture the left eye is the right one, and its class with it.
        return torch.where(flip[:, None, None], self.mirrored[masks.flip(-1)], masks)
