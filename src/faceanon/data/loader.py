"""A loader that resumes in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader

T_co = TypeVar("T_co", covariant=True)


class _Rest(Generic[T_co]):
    """What a sampler yields after the first few, which are drawn but not fetched; once, then it yields everything.

    An iterator with persistent workers keeps it for the epochs that follow.
    """

    def __init__(self, order: Any, start: int) -> None:  # noqa: ANN401 - any sampler
        self.order = order
        self.start = start

    def __iter__(self) -> Iterator[T_co]:
        # When the first is asked for: iterators are also made and thrown away.
        start = self.start
        self.start = 0
        yield from islice(iter(self.order), start, None)

    def __len__(self) -> int:
        return len(self.order)


class ResumableLoader(DataLoader[T_co]):
    """A `DataLoader` with `state_dict` and `load_state_dict`: a resumed epoch starts at the next batch.

    Lightning saves and loads both with its checkpoints. The sampler's order must follow from its seed and epoch alone;
    batches that are passed over are neither read nor rendered. Workers prefetch nothing before the first batch is
    asked for, when the sampler knows its epoch, and the seeds of workers come from that epoch, not from torch's
    global random numbers, which therefore do not depend on how often a run was interrupted.
    """

    _delivered = 0
    _start = 0
    _skip = 0

    @property
    def _index_sampler(self) -> Any:  # noqa: ANN401 - as torch has it
        order = super()._index_sampler
        if self._skip:
            return _Rest(order, self._skip)
        return order

    def __iter__(self) -> Iterator[T_co]:  # type: ignore[override] # a generator, so that nothing happens before next()
        epoch = getattr(self.sampler, "epoch", 0)
        self.generator = torch.Generator().manual_seed(int(epoch() if callable(epoch) else epoch))
        self._skip = self._start
        self._start = 0
        self._delivered = self._skip
        try:
            batches = super().__iter__()
        finally:
            # The iterator has its sampler by now; whoever asks the loader for one later gets the whole order.
            self._skip = 0
        for batch in batches:
            self._delivered += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """How many batches of the epoch have been delivered."""
        return {"batches": self._delivered}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next epoch that begins start after so many batches; one that is over starts at its first."""
        if state["batches"] < len(self):
            self._start = state["batches"]
        else:
            self._start = 0
