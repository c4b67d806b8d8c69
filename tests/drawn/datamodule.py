"""The procedural faces as a Lightning data module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, DistributedSampler

from faceanon.data.feeding import GPU_WORKERS, feeding
from faceanon.data.jitter import EXACT, CropJitter, JitteredTraining
from faceanon.data.loader import ResumableLoader
from faceanon.data.streams import stream
from drawn.crossed import GROUP, SyntheticSet, crossed_roll, held_out_roll
from faceanon.errors import UserError
from faceanon.types import FaceBatch

# Far above the numbers of any training's persons, so that nobody is in two splits.
_FIRST_LABEL = {"val": 1_000_000_000, "test": 2_000_000_000}


@lru_cache(maxsize=2)
def held_out(split: str, people: int, photos: int, occlusion: float, image_size: int, parsing: bool) -> SyntheticSet:
    """The faces of `val` or `test`; drawn once a process, as they are the same for every method and seed."""
    roll = held_out_roll(split, people, photos, occlusion, _FIRST_LABEL[split])
    return SyntheticSet(roll, image_size, f"drawing {split} faces", parsing)


class BlockSampler(DistributedSampler[FaceBatch]):
    """Yields lists of rows, one batch each, made of whole blocks of consecutive rows; each rank has its own blocks.

    It is a `DistributedSampler` because Lightning leaves those in place and tells them the epoch.

    Args:
        rows: Length of the data set.
        block: Rows of a block.
        batch_size: Rows of a batch, a multiple of `block`.
        shuffle: New order of the blocks each epoch, and only full batches, equally many for each rank. Otherwise all
            rows in their order, each rank a stretch of its own.
        seed: Seed of the order.
        ranks: Number of processes.
        rank: Number of this process.
    """

    def __init__(
        self, rows: int, block: int, batch_size: int, shuffle: bool, seed: int = 0, ranks: int = 1, rank: int = 0
    ) -> None:
        super().__init__(range(rows), num_replicas=ranks, rank=rank, shuffle=shuffle, seed=seed)  # type: ignore[arg-type]
        self.block = block
        self.blocks = rows // block
        self.per_batch = batch_size // block

    def _mine(self) -> torch.Tensor:
        """Blocks of this rank in this epoch, `(n,)` int64."""
        if not self.shuffle:
            # Uneven parts where they must be: no picture is tested twice.
            return torch.arange(self.blocks).tensor_split(self.num_replicas)[self.rank]
        order = torch.randperm(self.blocks, generator=stream("order", self.seed, self.epoch))
        # What does not fill a batch on every rank is left out of this epoch.
        whole = self.blocks // (self.per_batch * self.num_replicas) * self.per_batch * self.num_replicas
        # The ranks' batches laid end to end are one process's batch of so many times the size.
        return order[:whole].view(-1, self.num_replicas, self.per_batch)[:, self.rank].flatten()

    def __iter__(self) -> Iterator[list[int]]:  # type: ignore[override]
        mine = self._mine()
        for start in range(0, len(mine), self.per_batch):
            blocks = mine[start : start + self.per_batch]
            yield (blocks[:, None] * self.block + torch.arange(self.block)).flatten().tolist()

    def __len__(self) -> int:
        if self.shuffle:
            return self.blocks // (self.per_batch * self.num_replicas)
        return -(-len(self._mine()) // self.per_batch)


class SyntheticFaces(JitteredTraining, LightningDataModule):
    """Procedural faces with full ground truth, rendered once into memory.

    Batches are `FaceBatch` with parsing, landmarks and factors (columns: `crossed.FACTORS`). Training batches hold
    whole crossed groups of four rows: (id0, att0), (id0, att1), (id1, att0), (id1, att1). Validation and test show
    people that no training ever sees, identity-major; they do not depend on the seed, so figures of different seeds
    compare.

    Args:
        image_size: Side of the pictures in pixels.
        train_groups: Crossed groups; four pictures, two people and two attribute sets each.
        val_identities: People in validation.
        test_identities: People in test.
        photos: Pictures per person in validation and test.
        batch_size: Rows per batch and process, a multiple of 4.
        occlusion: Share of pictures with an occluder, in [0, 1].
        seed: Seed of the training set and of its order.
        workers: Processes that make batches ahead where a GPU trains; on the processor slicing memory needs none.
        jitter: Random crops in training, the same for all four rows of a group; none by default.
        parsing: Whether batches bring the class of every pixel. The numbers are synth64's, so leave them out for a
            bundle whose parser has other classes.

    Raises:
        UserError: `batch_size` is not a multiple of 4, another number is out of range, or there are fewer groups than
            one batch on every process needs.

    Examples:
        >>> from drawn.datamodule import SyntheticFaces
        >>> faces = SyntheticFaces(train_groups=2, val_identities=1, batch_size=8)
        >>> faces.setup("fit")
        >>> batch = next(iter(faces.train_dataloader()))
        >>> batch.image.shape
        torch.Size([8, 3, 64, 64])
        >>> first, second = batch.identity[:4].tolist()[::2]  # two people in a group, with the same two attribute sets
        >>> first != second, batch.attribute[0].item() == batch.attribute[2].item()
        (True, True)
    """

    def __init__(
        self,
        image_size: int = 64,
        train_groups: int = 2000,
        val_identities: int = 64,
        test_identities: int = 200,
        photos: int = 2,
        batch_size: int = 32,
        occlusion: float = 0.3,
        seed: int = 0,
        workers: int = GPU_WORKERS,
        jitter: CropJitter = EXACT,
        parsing: bool = True,
    ) -> None:
        super().__init__()
        sizes = {
            "image_size": image_size,
            "train_groups": train_groups,
            "val_identities": val_identities,
            "test_identities": test_identities,
            "photos": photos,
        }
        for name, value in sizes.items():
            if value < 1:
                raise UserError(f"SyntheticFaces: {name} is {value}; give a number of at least 1")
        if batch_size < GROUP or batch_size % GROUP:
            raise UserError(f"SyntheticFaces: batch_size is {batch_size}; give a multiple of {GROUP} (whole groups)")
        if not 0 <= occlusion <= 1:
            raise UserError(f"SyntheticFaces: occlusion is {occlusion}; give a share between 0 and 1")
        self.save_hyperparameters(ignore=["jitter"], logger=False)
        # Plain numbers: no class in checkpoints.
        self.save_hyperparameters({"jitter": asdict(jitter)}, logger=False)
        self.image_size = image_size
        self.train_groups = train_groups
        self.photos = photos
        self.held_out = {"val": val_identities, "test": test_identities}
        self.batch_size = batch_size
        self.occlusion = occlusion
        self.seed = seed
        self.workers = workers
        self.jitter = jitter
        self.jitter_group = GROUP
        self.parsing = parsing
        self._sets: dict[str, SyntheticSet] = {}

    def setup(self, stage: str) -> None:
        """Render what the stage needs and is not there yet: `fit` train and val, `validate` val, `test` test."""
        for split in {"fit": ("train", "val"), "validate": ("val",), "test": ("test",)}.get(stage, ()):
            if split not in self._sets:
                self._sets[split] = self._render(split)

    def _render(self, split: str) -> SyntheticSet:
        if split == "train":
            roll = crossed_roll(self.train_groups, self.seed, self.occlusion)
            return SyntheticSet(roll, self.image_size, "drawing train faces", self.parsing)
        return held_out(split, self.held_out[split], self.photos, self.occlusion, self.image_size, self.parsing)

    def _loader(self, split: str) -> DataLoader[FaceBatch]:
        train = split == "train"
        ranks = self.trainer.world_size if self.trainer else 1
        rank = self.trainer.global_rank if self.trainer else 0
        if train and self.train_groups * GROUP < self.batch_size * ranks:
            raise UserError(
                f"SyntheticFaces: {self.train_groups} groups do not fill a batch of {self.batch_size} on {ranks} "
                f"processes; give train_groups of at least {self.batch_size * ranks // GROUP}"
            )
        rows = self._sets[split]
        block = GROUP if train else 1
        sampler = BlockSampler(len(rows), block, self.batch_size, train, self.seed, ranks, rank)
        settings = feeding(self.trainer, self.workers, in_memory=True)
        return ResumableLoader(rows, batch_size=None, sampler=sampler, **settings)

    def train_dataloader(self) -> DataLoader[FaceBatch]:
        """Training batches: groups of people crossed with attributes, in an order shuffled every epoch."""
        return self._loader("train")

    def val_dataloader(self) -> DataLoader[FaceBatch]:
        """Held-out people in their order."""
        return self._loader("val")

    def test_dataloader(self) -> DataLoader[FaceBatch]:
        """Other held-out people in their order."""
        return self._loader("test")
