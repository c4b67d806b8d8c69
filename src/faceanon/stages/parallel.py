"""The parallel part of a training: a step's global batch in shards, on several processes or in turn on one.

A stage owns a `Parallel` and walks each step's shards:

    step = self.parallel.step(batch)
    for shard in step:
        ...  # draw and measure shard.batch, backward
    step.average_norms()

The usual case is one shard, the whole batch. One shard on every process, or several in turn on one, give the same step.

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
from torch.nn.parallel import DistributedDataParallel

from faceanon.compat import has_statistics
from faceanon.data.streams import stream
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
        names = []
        for row in range(first, first + count):
            names.append(("row", seed, step, row))
        self.names = names

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
        samples = []
        for number in seeds:
            samples.append(torch.randn(shape, generator=own.manual_seed(number), dtype=item.dtype, device=item.device))
        return torch.stack(samples)


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
    shards = []
    for index, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        own = batch
        if len(sizes) > 1:
            own = batch.map(lambda item, a=end - size, b=end: item[a:b])  # type: ignore[misc]
        # Unique over steps, processes and shards, so that no two shards of a training share a stream.
        number = (step * len(rows) + rank) * parts + index
        weight = size * len(rows) / sum(rows)
        shards.append(Shard(own, index, number, start + end - size, weight, index == len(sizes) - 1))
    return shards


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
            if has_statistics(norm) and norm.training:
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
        moved = []
        for number, buffer in enumerate(self.buffers):
            if buffer.is_floating_point():
                moved.append(number)
        total = torch.zeros_like(torch.cat([self.buffers[number].flatten() for number in moved]))
        for index, state in self.shards.items():
            total += weights[index] * torch.cat([state[number].flatten() for number in moved])
        # Weights count rows over a process's average rows, so the processes' mean is the mean over all rows.
        if distributed.is_initialized():
            distributed.all_reduce(total)
            total /= distributed.get_world_size()
        pieces = total.split([self.buffers[number].numel() for number in moved])  # type: ignore[no-untyped-call]
        for number, piece in zip(moved, pieces, strict=True):
            self.buffers[number].copy_(piece.view_as(self.buffers[number]))


class StepShards:
    """This process's shards of one step.

    Iterating works on one shard after another: inside the loop random numbers, batch statistics and the exchange of
    gradients are those of the shard. A stage may walk the shards more than once, as with two optimizers.

    Args:
        parallel: Of the training.
        batch: The rows of this process.
    """

    def __init__(self, parallel: Parallel, batch: FaceBatch) -> None:
        rank, rows = parallel.placed
        self.parallel = parallel
        self.number = parallel.batch_number
        self.images = sum(rows)
        self.shards = cut(batch, parallel.accumulate, rows, rank, self.number)
        self.lone = len(self.shards) == 1
        self.last_open: Shard | None = None
        # A lone shard of a lone process leaves in the norms what the step is to end with.
        self.norms: NormStatistics | None = None
        if not (self.lone and len(rows) == 1):
            self.norms = NormStatistics(parallel.module)

    def __iter__(self) -> Iterator[Shard]:
        for shard in self.shards:
            with self._open(shard):
                yield shard

    @contextmanager
    def _open(self, shard: Shard) -> Iterator[None]:
        """Work on one shard: its random numbers, its batch statistics, and gradients exchanged if it is the last."""
        self.parallel.seed_shard(shard.number)
        self.parallel.streams = RowStreams(self.parallel.seed, self.number, shard.first, len(shard.batch))
        # Norms are already where the shard worked on last left them. Loading writes in place, which would spoil the
        # graph of a lone shard's drawing, which both losses use.
        if self.norms is not None and self.last_open is not shard:
            self.norms.load(shard.index)
        self.last_open = shard
        model = self.parallel.module.trainer.model
        try:
            if isinstance(model, DistributedDataParallel) and not shard.last:
                # DDP would exchange gradients in every backward pass; once, after the last shard, is enough.
                with model.no_sync():
                    yield
            else:
                yield
        finally:
            self.parallel.streams = None
        if self.norms is not None:
            self.norms.keep(shard.index)

    @contextmanager
    def drawing(self, keep_graph: bool) -> Iterator[None]:
        """Run the networks; without `keep_graph` no gradients are kept, and batch statistics stay as they were."""
        if keep_graph:
            yield
            return
        statistics = NormStatistics(self.parallel.module)
        with torch.no_grad():
            yield
        statistics.load()

    def seed_terms(self) -> None:
        """Give the terms of the shard at hand random numbers of their own, whatever was drawn before them."""
        assert self.last_open is not None
        self.parallel.seed_shard(self.last_open.number, 1)

    def average_norms(self) -> None:
        """End the step: batch statistics become the mean of all shards'; all processes have to call it."""
        if self.norms is not None:
            self.norms.join({shard.index: shard.weight for shard in self.shards})


class Parallel:
    """How a training's global batches are dealt to processes and parts, and the random numbers that follow from it.

    Args:
        module: The stage; read when a step begins, when it has a trainer.
        accumulate: Shards that a process works on in turn before a step; each gets its part of `batch_size`.
        seed: Seed of all draws in training.

    Attributes:
        streams: Random numbers of the rows at hand; None where no shard is being worked on.
        placed: Number of this process and the rows of every process, of the last step that began.

    Raises:
        UserError: `accumulate` is below 1.
    """

    def __init__(self, module: L.LightningModule, accumulate: int = 1, seed: int = 0) -> None:
        if accumulate < 1:
            raise UserError(f"accumulate is {accumulate}; give 1 (the batch at once) or more parts")
        self.module = module
        self.accumulate = accumulate
        self.seed = seed
        self.streams: RowStreams | None = None
        self.placed: tuple[int, list[int]] = 0, []
        # A process group, as torch.distributed takes it.
        self._peers: Any = None

    @property
    def batch_number(self) -> int:
        """Number of the batch at hand in the training, from 0; the same on every process."""
        return int(self.module.trainer.fit_loop.total_batch_idx)

    def seed_batch(self) -> None:
        """Seed what is drawn before the shards, by seed, batch number and process: a resumed run repeats it."""
        trainer = self.module.trainer
        self.seed_shard((self.batch_number * trainer.world_size + trainer.global_rank) * self.accumulate)

    def seed_shard(self, shard: int, use: int = 0) -> None:
        """Seed torch for one shard of the training.

        Args:
            shard: Its number among all shards of the training.
            use: 0 for drawing, 1 for the terms.
        """
        # Prime factors: shard n of seed s has a number of seed s + 1 only from n = 1,000,003 on.
        torch.manual_seed((self.seed * 1_000_003 + shard) * 4_099 + use)

    def step(self, batch: FaceBatch) -> StepShards:
        """This process's shards of the step that begins; all processes have to call it."""
        self.placed = self.place(len(batch))
        return StepShards(self, batch)

    def place(self, rows: int) -> tuple[int, list[int]]:
        """Number of this process, which has so many rows, and the rows of every process.

        `training.replay` replaces it, so that one process draws what another one drew.
        """
        trainer = self.module.trainer
        if trainer.world_size == 1:
            return 0, [rows]
        counts = []
        for _ in range(trainer.world_size):
            counts.append(torch.zeros(1, dtype=torch.int64))
        distributed.all_gather(counts, torch.tensor([rows]), group=self._cpu_group())
        return trainer.global_rank, list(map(int, counts))

    def on_rank_zero(self, use: Callable[[Iterator[FaceBatch]], None], batches: Iterator[FaceBatch]) -> None:
        """Let rank 0 use the batches of all processes, shard by shard in the order of the global batches.

        All processes have to call it with equally many batches. The same shards on any number of processes give the
        same result to the last bit, which matters where a nearly singular matrix is inverted.
        """
        trainer = self.module.trainer
        if trainer.world_size == 1:
            use(self._parts(batches))
        elif trainer.is_global_zero:
            use(self._parts(self._handed(batches)))
            self._tell(more=False)
        else:
            # What these processes say is overwritten by rank 0's word: they only listen.
            while self._tell(more=True):
                distributed.gather_object(next(batches).to("cpu"), None, dst=0, group=self._cpu_group())

    def _parts(self, batches: Iterator[FaceBatch]) -> Iterator[FaceBatch]:
        for batch in batches:
            for shard in cut(batch, self.accumulate, [len(batch)], 0, 0):
                yield shard.batch

    def _handed(self, batches: Iterator[FaceBatch]) -> Iterator[FaceBatch]:
        for batch in batches:
            self._tell(more=True)
            # gather_object overwrites the entries; it asks for a list of the right length.
            gathered: list[FaceBatch] = [batch] * self.module.trainer.world_size
            distributed.gather_object(batch.to("cpu"), gathered, dst=0, group=self._cpu_group())
            for item in gathered:
                yield item.to(self.module.device)

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
