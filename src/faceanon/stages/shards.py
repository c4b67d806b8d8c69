"""A step's global batch in shards: one on every process, or several in turn on one; either way the same step.

What a step learns depends on the global batch, on how many shards it is cut into and on the seed, and not on which
process works on which shard. Every random number of a shard follows from seed, step and place, never from the process:

- what is drawn for single pictures (keys, noise, codes) comes from a stream of each row of the global batch, so that
  even the number of shards does not change it;
- what is drawn for a batch as a whole (pairings, dropout, projections) comes from a stream of the shard;
- terms that compare pictures with each other do so within a shard, however many processes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import lightning as L
import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.parametrizations import _SpectralNorm

from faceanon.data.synthetic.crossed import stream
from faceanon.errors import UserError
from faceanon.types import FaceBatch


class RowStreams:
    """Random numbers of single rows, each from a generator of its own.

    Args:
        seed: Of the training.
        step: Number of the batch in the training.
        first: Place of the first row in the global batch.
        count: Number of rows, B.
    """

    def __init__(self, seed: int, step: int, first: int, count: int) -> None:
        self.names = [("row", seed, step, row) for row in range(first, first + count)]

    @cached_property
    def generators(self) -> list[torch.Generator]:
        """One for each row; every draw continues where the last one ended."""
        return [stream(*name) for name in self.names]

    def draw(self, sample: Callable[..., Tensor]) -> Tensor:
        """One draw of each row, stacked, `(B, ...)` on the CPU; `sample` takes `generator`."""
        return torch.stack([sample(generator=generator) for generator in self.generators])

    def normal_like(self, item: Tensor) -> Tensor:
        """Standard normal numbers like `(B, ...)`; drawn on its device, as a picture's are many."""
        seeds = []
        for generator in self.generators:
            # The stream of a row gives a seed alone, and the many numbers of a picture are drawn on its device.
            seeds.append(int(torch.randint(1 << 48, (), generator=generator)))
        own = torch.Generator(item.device)
        shape = item.shape[1:]
        kind = {"dtype": item.dtype, "device": item.device}
        return torch.stack([torch.randn(shape, generator=own.manual_seed(number), **kind) for number in seeds])  # type: ignore[call-overload]


@dataclass(frozen=True)
class Shard:
    """One part of a step's global batch.

    Args:
        batch: Its rows.
        index: Its place among the shards of this process.
        number: Its place among all shards of the training.
        first: Place of its first row in the global batch.
        weight: Its rows over those that a process has on average; the processes' mean of weighted means is the mean.
        last: Whether it is this process's last; its backward exchanges gradients.
    """

    batch: FaceBatch
    index: int
    number: int
    first: int
    weight: float
    last: bool


def cut(batch: FaceBatch, parts: int, rows: list[int], rank: int, step: int) -> list[Shard]:
    """Cut this process's part of a global batch into shards of consecutive rows.

    Args:
        batch: The rows of this process.
        parts: Number of shards of every process; fewer come out where there are fewer rows.
        rows: Number of rows on every process.
        rank: Number of this process.
        step: Number of the batch in the training.
    """
    sizes = []
    for piece in torch.arange(len(batch)).tensor_split(min(parts, len(batch))):
        sizes.append(len(piece))
    ends = list(accumulate(sizes))
    start = sum(rows[:rank])
    return [
        Shard(
            batch if len(sizes) == 1 else batch.map(lambda item, a=end - size, b=end: item[a:b]),  # type: ignore[misc]
            index,
            # Unique over steps, processes and shards, so that no two shards of a training share a stream.
            (step * len(rows) + rank) * parts + index,
            start + end - size,
            size * len(rows) / sum(rows),
            index == len(sizes) - 1,
        )
        for index, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]


class NormStatistics:
    """What norms learn without gradients: every shard starts from the step's start, and the step ends at the mean.

    These are the running averages of batch norms, and the singular vectors that spectral norms improve at every call.
    The latter depend on weights and number of calls alone, so that all shards come to the same ones.

    Args:
        module: Whose norms in train mode are meant.
    """

    def __init__(self, module: nn.Module) -> None:
        self.buffers: list[Tensor] = []
        for norm in module.modules():
            if isinstance(norm, _BatchNorm | _SpectralNorm) and norm.training:
                self.buffers += norm.buffers(recurse=False)
        self.start = self._copy()
        self.shards: dict[int, list[Tensor]] = {}

    def _copy(self) -> list[Tensor]:
        return [buffer.clone() for buffer in self.buffers]

    def load(self, index: int | None = None) -> None:
        """Go to where shard `index` left them; where it has not been yet, or with None, to the step's start."""
        if index is None:
            state = self.start
        else:
            state = self.shards.get(index, self.start)
        for buffer, value in zip(self.buffers, state, strict=True):
            buffer.copy_(value)

    def keep(self, index: int) -> None:
        """Keep the batch statistics that shard `index` left in the norms."""
        self.shards[index] = self._copy()

    def join(self, weights: Mapping[int, float]) -> None:
        """Go to the weighted mean of all shards of all processes; counts stay as each shard has them."""
        if not self.buffers:
            return
        moved = [place for place, buffer in enumerate(self.buffers) if buffer.is_floating_point()]
        total = torch.zeros_like(torch.cat([self.buffers[place].flatten() for place in moved]))
        for index, state in self.shards.items():
            total += weights[index] * torch.cat([state[place].flatten() for place in moved])
        if distributed.is_initialized():
            distributed.all_reduce(total)
            total /= distributed.get_world_size()
        pieces = total.split([self.buffers[place].numel() for place in moved])  # type: ignore[no-untyped-call]
        for place, piece in zip(moved, pieces, strict=True):
            self.buffers[place].copy_(piece.view_as(self.buffers[place]))


class ShardedModule(L.LightningModule):
    """A training module whose steps go over shards.

    Args:
        accumulate: Shards that a process works on in turn before a step; each gets its part of `batch_size`.
        seed: Seed of all draws in training.

    Raises:
        UserError: `accumulate` is below 1.
    """

    def __init__(self, accumulate: int = 1, seed: int = 0) -> None:
        super().__init__()
        if accumulate < 1:
            raise UserError(f"accumulate is {accumulate}; give 1 (the batch at once) or more parts")
        self.accumulate = accumulate
        self.seed = seed
        self.streams: RowStreams | None = None
        self.placed: tuple[int, list[int]] = 0, []  # of the step at hand, as `place` has it
        self._open_shard = 0
        self._statistics: NormStatistics | None = None
        # A process group, as torch.distributed takes it.
        self._peers: Any = None

    @property
    def batch_number(self) -> int:
        """Number of the batch at hand in the training, from 0; the same on every process."""
        return int(self.trainer.fit_loop.total_batch_idx)

    def on_train_batch_start(self, batch: FaceBatch, batch_idx: int) -> None:
        """Random draws depend on seed, batch number and shard alone, so a resumed run repeats them."""
        self._seed((self.batch_number * self.trainer.world_size + self.global_rank) * self.accumulate)

    def _seed(self, shard: int, use: int = 0) -> None:
        torch.manual_seed((self.seed * 1_000_003 + shard) * 4_099 + use)

    def seed_terms(self) -> None:
        """Give the terms of the open shard random numbers of their own, whatever was drawn before them."""
        self._seed(self._open_shard, 1)

    def shards(self, batch: FaceBatch) -> list[Shard]:
        """This process's shards of the step that begins; all processes have to call it."""
        rank, rows = self.placed = self.place(len(batch))
        shards = cut(batch, self.accumulate, rows, rank, self.batch_number)
        alone = len(rows) == len(shards) == 1
        self._statistics = None if alone else NormStatistics(self)
        self._weights = {shard.index: shard.weight for shard in shards}
        return shards

    @contextmanager
    def open(self, shard: Shard) -> Iterator[None]:
        """Work on one shard: its random numbers, its batch statistics, and gradients exchanged if it is the last."""
        self._open_shard = shard.number
        self._seed(shard.number)
        self.streams = RowStreams(self.seed, self.batch_number, shard.first, len(shard.batch))
        model = self.trainer.model
        if self._statistics is not None:
            self._statistics.load(shard.index)
        try:
            if isinstance(model, DistributedDataParallel) and not shard.last:
                with model.no_sync():
                    yield
            else:
                yield
        finally:
            self.streams = None
        if self._statistics is not None:
            self._statistics.keep(shard.index)

    @contextmanager
    def without_gradient(self) -> Iterator[None]:
        """Run the networks without gradients, to run them again with; batch statistics stay as they were."""
        statistics = NormStatistics(self)
        with torch.no_grad():
            yield
        statistics.load()

    def join_statistics(self) -> None:
        """End the step: batch statistics become the mean of all shards'."""
        if self._statistics is not None:
            self._statistics.join(self._weights)
            self._statistics = None

    def on_rank_zero(self, use: Callable[[Iterator[FaceBatch]], None], batches: Iterator[FaceBatch]) -> None:
        """Let rank 0 use the batches of all processes, shard by shard in the order of the global batches.

        All processes have to call it with equally many batches. The same shards on any number of processes give the
        same result to the last bit, which matters where a nearly singular matrix is inverted.
        """
        if self.trainer.world_size == 1:
            use(self._parts(batches))
        elif self.trainer.is_global_zero:
            use(self._parts(self._handed(batches)))
            self._tell(more=False)
        else:
            while self._tell(more=True):
                distributed.gather_object(next(batches).to("cpu"), None, dst=0, group=self._cpu_group())

    def _parts(self, batches: Iterator[FaceBatch]) -> Iterator[FaceBatch]:
        for batch in batches:
            yield from (shard.batch for shard in cut(batch, self.accumulate, [len(batch)], 0, 0))

    def _handed(self, batches: Iterator[FaceBatch]) -> Iterator[FaceBatch]:
        for batch in batches:
            self._tell(more=True)
            found: list[FaceBatch] = [batch] * self.trainer.world_size
            distributed.gather_object(batch.to("cpu"), found, dst=0, group=self._cpu_group())
            yield from (item.to(self.device) for item in found)

    def _tell(self, more: bool) -> bool:
        """What rank 0 says, on every process."""
        said = torch.tensor([more])
        distributed.broadcast(said, 0, group=self._cpu_group())
        return bool(said)

    def _cpu_group(self) -> Any:  # noqa: ANN401
        """The processes on a channel that does not wait for their GPUs; None is the default one."""
        if distributed.get_backend() != "gloo" and self._peers is None:
            self._peers = distributed.new_group(backend="gloo")
        return self._peers

    def place(self, rows: int) -> tuple[int, list[int]]:
        """Number of this process, which has so many rows, and the rows of every process.

        `training.replay` replaces it, so that one process draws what another one drew.
        """
        if self.trainer.world_size == 1:
            return 0, [rows]
        found = []
        for _ in range(self.trainer.world_size):
            found.append(torch.zeros(1, dtype=torch.int64))
        distributed.all_gather(found, torch.tensor([rows]), group=self._cpu_group())
        return self.global_rank, [int(item) for item in found]

    @property
    def images_in_step(self) -> int:
        """Images of all processes in the step at hand."""
        return sum(self.placed[1])
