"""What datamodules of pictures on disk have in common: loaders of three splits, persons held out whole."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from torch.utils.data import DataLoader, Dataset, Sampler

from faceanon.data.batches import FixedBatches, Row, ShuffledBatches, person_major
from faceanon.data.feeding import feeding
from faceanon.data.loader import ResumableLoader
from faceanon.errors import UserError
from faceanon.types import FaceBatch

Split = Literal["train", "val", "test"]


class Labelled(Protocol):
    """Pictures of a split; an item is a whole batch."""

    labels: list[int]  # person of every picture


class HeldOutLoaders:
    """Mixin, before `LightningDataModule` among the bases: loaders of `train`, `val` and `test`.

    A subclass has the splits once it is set up, and sets the attributes below.

    Attributes:
        batch_size: Pictures a batch, per process.
        seed: Of the order of training.
        pairs: Share of a training batch made of pairs of one person.
        mirror: Whether training mirrors half of the pictures.
        workers: Processes that make batches ahead.
        train_batches: Batches of a training epoch, per process; None: as many as the pictures fill once.
    """

    batch_size: int
    seed: int
    pairs: float
    mirror: bool = False
    workers: int
    train_batches: int | None = None
    trainer: Any

    def split(self, name: Split) -> Dataset[FaceBatch]:
        """The pictures of a split, which are `Labelled` too."""
        raise NotImplementedError

    def in_memory(self, name: Split) -> bool:
        """Whether a batch of a split takes no reading from the disk."""
        raise NotImplementedError

    def _where(self) -> str:
        """Names of the folders that the pictures come from, for messages."""
        raise NotImplementedError

    def train_dataloader(self) -> DataLoader[FaceBatch]:
        """Shuffled batches; the order follows from seed and epoch alone."""
        labels = self._labels("train")
        ranks = 1 if self.trainer is None else self.trainer.world_size
        rank = 0 if self.trainer is None else self.trainer.global_rank
        # Without a picture for each process the first step would never end.
        if len(labels) < ranks:
            raise UserError(
                f"{len(labels)} pictures to train on are too few for {ranks} processes; start fewer of them"
            )
        order = ShuffledBatches(
            labels,
            self.batch_size,
            self.seed,
            self._epoch,
            self.pairs,
            self.mirror,
            ranks,
            rank,
            self.train_batches,
        )
        return self._loader("train", order)

    def val_dataloader(self) -> DataLoader[FaceBatch] | list[DataLoader[FaceBatch]]:
        """Batches by person; none if nobody is held out for validation."""
        if self._labels("val"):
            return self._loader("val", self._by_person("val"))
        return []

    def test_dataloader(self) -> DataLoader[FaceBatch]:
        """Batches by person.

        Raises:
            UserError: Nobody is held out for the test.
        """
        if not self._labels("test"):
            raise UserError(f"nobody in {self._where()} is held out for the test: raise test_fraction")
        return self._loader("test", self._by_person("test"))

    def predict_dataloader(self) -> DataLoader[FaceBatch]:
        """What `faceanon predict` goes through: the same batches as `test_dataloader`."""
        return self.test_dataloader()

    def _labels(self, name: Split) -> list[int]:
        pictures: Labelled = self.split(name)  # type: ignore[assignment]
        return pictures.labels

    def _epoch(self) -> int:
        epoch: int = 0 if self.trainer is None else self.trainer.current_epoch
        return epoch

    def _by_person(self, name: Split) -> FixedBatches:
        return FixedBatches(person_major(self._labels(name), self.batch_size))

    def _loader(self, name: Split, batches: Sampler[list[Row]]) -> DataLoader[FaceBatch]:
        settings = feeding(self.trainer, self.workers, in_memory=self.in_memory(name))
        return ResumableLoader(self.split(name), batch_size=None, sampler=batches, **settings)
