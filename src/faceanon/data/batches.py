"""Which pictures make up a batch: shuffled for training, by person for testing, and who is held out."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from torch.utils.data import DistributedSampler, Sampler

Row = tuple[int, bool]  # index of a picture, and whether it is mirrored


def hold_out(names: Sequence[str], val: int, test: int, seed: int) -> tuple[set[str], set[str]]:
    """Choose `val` and `test` of the names, disjoint; it depends on the names and the seed, not on their order.

    Examples:
        >>> from faceanon.data.batches import hold_out
        >>> names = ["anna", "bert", "cleo", "dora", "emil"]
        >>> val, test = hold_out(names, val=1, test=2, seed=0)
        >>> len(val), len(test), val & test
        (1, 2, set())
        >>> hold_out(names[::-1], val=1, test=2, seed=0) == (val, test)
        True
    """
    # Ranked by a hash, so that a new name moves few others from one split to another.
    ranked = sorted(set(names), key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
    # The test persons come first: they stay the same where another number is held out for validation.
    return set(ranked[test : test + val]), set(ranked[:test])


def by_person(labels: Sequence[int]) -> dict[int, list[int]]:
    """Positions of every known label (>= 0), in order of label.

    Examples:
        >>> from faceanon.data.batches import by_person
        >>> by_person([7, 3, -1, 7])
        {3: [1], 7: [0, 3]}
    """
    groups: dict[int, list[int]] = {}
    for position, label in enumerate(labels):
        if label >= 0:
            groups.setdefault(label, []).append(position)
    return dict(sorted(groups.items()))


def person_major(labels: Sequence[int], size: int) -> list[list[int]]:
    """Batches in which a person with several pictures never stands alone, if `size` >= 3 allows.

    Args:
        labels: Person of every picture; -1 where unknown (those come last).
        size: Most pictures a batch.

    Examples:
        >>> from faceanon.data.batches import person_major
        >>> person_major([0, 1, 0, 1, -1, 1], size=4)
        [[0, 2], [1, 3, 5, 4]]
    """
    batches: list[list[int]] = [[]]
    for positions in by_person(labels).values():
        for piece in _pieces(positions, size, first=size - len(batches[-1])):
            if len(batches[-1]) + len(piece) > size:
                batches.append([])
            batches[-1].extend(piece)
    unlabelled = []
    for position, label in enumerate(labels):
        if label < 0:
            unlabelled.append(position)
    for position in unlabelled:
        if len(batches[-1]) == size:
            batches.append([])
        batches[-1].append(position)
    filled = []
    for batch in batches:
        if batch:
            filled.append(batch)
    return filled


def _pieces(positions: Sequence[int], size: int, first: int) -> Iterator[Sequence[int]]:
    """Cut into pieces, the first of at most `first` and the rest of at most `size`, none of one picture alone."""
    # One place left in a batch is of no use to a person with two pictures.
    room = first if first >= min(2, len(positions)) else size
    start = 0
    while start < len(positions):
        left = len(positions) - start
        take = min(room, left)
        # Leave two for the next batch instead of one alone.
        if left - take == 1 and take > 2:
            take -= 1
        elif left - take == 1 and room < size:
            # Too little room to part them well: start on a fresh batch.
            room = size
            continue
        yield positions[start : start + take]
        start = start + take
        room = size


class ShuffledBatches(DistributedSampler[list[Row]]):
    """Training batches, a fresh order each epoch that depends on nothing but seed and epoch.

    A batch is one item of the sampler (the loader's `batch_size` is None). It is a `DistributedSampler` because
    Lightning leaves those in place: each process gets its own batches, which laid end to end are one process's batch
    of so many times the size (pairs stand in front in each). What does not fill a batch on every process is left out.

    Args:
        labels: Person of every picture, -1 where unknown.
        size: Pictures a batch; fewer only if there are fewer in all.
        seed: Start of the random order.
        epoch: Gives the current epoch; called when an epoch starts.
        pairs: Share of the rows that come as two different pictures of one person, at rows 2i and 2i + 1, in [0, 1].
        mirror: Mirror every other picture at random.
        ranks: Number of processes.
        rank: Number of this process.
        batches: Batches of an epoch on every process; the pictures come round again, each time in a new order, where
            they do not fill so many. None: as many as the pictures fill once.
    """

    def __init__(
        self,
        labels: Sequence[int],
        size: int,
        seed: int,
        epoch: Callable[[], int],
        pairs: float = 0.0,
        mirror: bool = False,
        ranks: int = 1,
        rank: int = 0,
        batches: int | None = None,
    ) -> None:
        super().__init__(range(len(labels)), num_replicas=ranks, rank=rank, seed=seed)  # type: ignore[arg-type]
        self.count = len(labels)
        # Every process needs a full batch, or the processes would wait for each other for ever.
        self.size = min(size, self.count // ranks)
        self.current_epoch = epoch
        self.mirror = mirror
        groups = {}
        for label, rows in by_person(labels).items():
            if len(rows) > 1:
                groups[label] = rows
        self.groups: Mapping[int, list[int]] = groups
        # Where nobody has two pictures there are no pairs to draw.
        self.pairs = int(pairs * self.size / 2) if self.groups else 0
        self.batches = batches

    def __len__(self) -> int:
        if self.batches is not None:
            return self.batches
        return self.count // (self.size * self.num_replicas)

    def __iter__(self) -> Iterator[list[Row]]:
        # A generator of its own: neither other draws nor the number of workers change the order.
        rng = random.Random(f"{self.seed}/{self.current_epoch()}")
        order = list(range(self.count))
        rng.shuffle(order)
        while len(order) < len(self) * self.num_replicas * self.size:
            another = list(range(self.count))
            rng.shuffle(another)
            order += another
        groups = list(self.groups.values())
        for batch in range(len(self) * self.num_replicas):
            rows = []
            for _ in range(self.pairs):
                # The person is drawn before the pictures: one with many pictures comes no more often than another.
                rows += rng.sample(rng.choice(groups), 2)
            # Pairs take the places of a slice's last rows, so an epoch with pairs is no longer than one without.
            rows += order[batch * self.size : (batch + 1) * self.size][: self.size - len(rows)]
            # Drawn for the batches of all processes, of which each keeps its own: the rank changes no number.
            drawn = []
            for row in rows:
                drawn.append((row, self.mirror and rng.random() < 0.5))
            if batch % self.num_replicas == self.rank:
                yield drawn


class FixedBatches(Sampler[list[Row]]):
    """The same batches every time, for validation and test."""

    def __init__(self, batches: Sequence[Sequence[int]]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Row]]:
        for batch in self.batches:
            yield [(row, False) for row in batch]
