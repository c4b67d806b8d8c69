"""Many photos at once: threads decode, find, crop, paste and encode while the backbone works on full batches.

    decode, find, crop (threads) --> faces of many photos --> backbone --> paste, encode (threads)

On a GPU the backbone has a thread of its own, beside the others. The calling thread only deals out work, also while
the backbone is busy: were it to wait for a call, finished photos would hold their places in the window, no new ones
would be decoded, and the next call would find too few faces.

Where the backbone runs on the processor itself, a call of it is one more piece of work for the threads, on one core,
and as many calls run at once as there are cores. A call that is split over all cores waits for the slowest of them, so
whatever else takes a core for a while makes the others wait as long.

Every call of the backbone has the same number of rows, so that a photo's result does not depend on which photos it
shared a call with: what a resumed run writes is what an uninterrupted one would have written.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.persona.cells import Array
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.steps import Outcome, Row, Steps
from faceanon.pipeline.tasks import Task
from faceanon.pipeline.threads import threads
from faceanon.weights.shipped import usual_threads

MOST_WORKERS = 8
MOST_PIXELS = 400_000_000  # decoded at once, about 2.4 GB with their copies


@dataclass
class _Flight:
    """A photo between start and finish."""

    task: Task
    steps: Steps
    secret: Secret
    pixels: int
    faces: Array | None = None  # (B, 3, S, S), waiting for the backbone
    strangers: Sequence[int] = ()  # of each row: how many strangers of the key are passed over
    changed: dict[int, Row] = field(default_factory=dict)  # by row: calls may end in another order than they began


def usual_workers() -> int:
    """Threads where nobody says how many: as many as a network uses cores, but 2 to 8."""
    return max(2, min(MOST_WORKERS, usual_threads()))


def run_tasks(
    pipeline: Pipeline, tasks: Iterable[Task], workers: int, rows: int
) -> Generator[tuple[Task, Outcome | UserError], None, None]:
    """Do tasks of one kind, several at a time.

    Args:
        pipeline: The model.
        tasks: All hide, or all recover.
        workers: Threads that decode, paste and encode.
        rows: Faces in one call of the backbone, at least 1; fewer are filled up with copies.

    Yields:
        Each task, in the order in which they end, with what was done or the user's mistake; other errors are raised.
    """
    cores = usual_threads()
    with ExitStack() as stack:
        pool = stack.enter_context(threads("faceanon", workers, max(1, cores // workers)))
        if pipeline.on_processor:
            network = pool
            most_calls = min(cores, workers)
        else:
            network = stack.enter_context(threads("faceanon-network", 1, cores))
            most_calls = 1
        yield from _Engine(pipeline, iter(tasks), pool, network, workers, most_calls, rows).run()


class _Engine:
    """What `run_tasks` does.

    Args:
        pipeline: The model.
        tasks: What is to be done.
        pool: Threads that decode, paste and encode.
        network: Threads that the backbone runs in; the same ones where it computes on the processor.
        workers: How many `pool` has.
        most_calls: Of the backbone, at once.
        rows: Faces in one call of it.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        tasks: Iterator[Task],
        pool: ThreadPoolExecutor,
        network: ThreadPoolExecutor,
        workers: int,
        most_calls: int,
        rows: int,
    ) -> None:
        self.pipeline = pipeline
        self.tasks = tasks
        self.pool = pool
        self.network = network
        self.most_calls = most_calls
        self.rows = rows
        # The rows of each call that runs.
        self.calls: dict[Future[list[Row]], list[tuple[_Flight, int]]] = {}
        # Enough photos in flight for further full calls to gather while these run.
        self.window = (1 + most_calls) * rows + workers
        self.working: dict[Future[_Flight | Outcome], Task] = {}
        # Rows that wait for the backbone.
        self.queue: deque[tuple[_Flight, int]] = deque()
        # Pixels of every photo in flight, by the identity of its task.
        self.sizes: dict[int, int] = {}

    def run(self) -> Iterator[tuple[Task, Outcome | UserError]]:
        while True:
            self._refill()
            while len(self.calls) < self.most_calls and (side := self._next_side()) is not None:
                self._start_call(side)
            busy: set[Future[Any]] = {*self.working, *self.calls}
            if not busy:
                return
            # The photos that end first are told first, whatever order they came in.
            done, _ = wait(busy, return_when=FIRST_COMPLETED)
            for call in done & set(self.calls):
                done.remove(call)
                self._finish_call(call)
            yield from self._collect(done)

    def _next_side(self) -> int | None:
        """Side of the faces for the next call: of those that fill one, else of the last ones; None says to wait."""
        counts = Counter(_side(entry) for entry in self.queue)
        for side, count in counts.items():
            if count >= self.rows:
                return side
        # More faces may come from photos that are worked on, and from those that wait for their call.
        if self.working or self.calls:
            return None
        return next(iter(counts), None)

    def _refill(self) -> None:
        # Bounded by pixels too: a few large photos fill the memory as many small ones do.
        while len(self.sizes) < self.window and sum(self.sizes.values()) < MOST_PIXELS:
            task = next(self.tasks, None)
            if task is None:
                return
            # Its pixels are known once it is decoded.
            self.sizes[id(task)] = 0
            self.working[self.pool.submit(self._start, task)] = task

    def _collect(self, done: Iterable[Future[_Flight | Outcome]]) -> Iterator[tuple[Task, Outcome | UserError]]:
        for future in done:
            task = self.working.pop(future)
            try:
                result = future.result()
            except UserError as error:
                del self.sizes[id(task)]
                yield task, error
                continue
            if isinstance(result, Outcome):
                del self.sizes[id(task)]
                yield task, result
            elif result.faces is not None:
                self.sizes[id(task)] = result.pixels
                for row in range(len(result.faces)):
                    self.queue.append((result, row))

    def _start_call(self, side: int) -> None:
        """Give the backbone its next rows, of faces of one size."""
        taken: list[tuple[_Flight, int]] = []
        later: deque[tuple[_Flight, int]] = deque()
        for entry in self.queue:
            if len(taken) < self.rows and _side(entry) == side:
                taken.append(entry)
            else:
                later.append(entry)
        self.queue = later
        # Filled up with copies of the last row: kernels for other batch sizes round differently.
        filled = list(chain(taken, [taken[-1]] * (self.rows - len(taken))))
        self.calls[self.network.submit(self._draw, filled)] = taken

    def _draw(self, rows: list[tuple[_Flight, int]]) -> list[Row]:
        """One call of the backbone."""
        crops = []
        for flight, row in rows:
            if flight.faces is not None:
                crops.append(flight.faces[row])
        keys = self.pipeline.keys([flight.secret.after(flight.strangers[row]) for flight, row in rows])
        return self.pipeline.draw(np.stack(crops), keys, rows[0][0].task.inverse)

    def _finish_call(self, call: Future[list[Row]]) -> None:
        """Give photos whose faces are all changed back to the threads."""
        taken = self.calls.pop(call)
        # Results of the copies that filled the call up are left over.
        for (flight, row), face in zip(taken, call.result(), strict=False):
            flight.changed[row] = face
            if flight.faces is not None and len(flight.changed) == len(flight.faces):
                self.working[self.pool.submit(self._advance, flight)] = flight.task

    def _start(self, task: Task) -> _Flight | Outcome:
        steps, secret = task.start()
        flight = _Flight(task, steps, secret, task.pixels)
        return self._advance(flight)

    def _advance(self, flight: _Flight) -> _Flight | Outcome:
        """To the next faces for the backbone, or to the end."""
        try:
            if flight.faces is None:
                flight.faces, flight.strangers = next(flight.steps)
            else:
                changed = [flight.changed[row] for row in range(len(flight.faces))]
                flight.changed = {}
                flight.faces, flight.strangers = flight.steps.send(changed)
        except StopIteration as end:
            return flight.task.finish(end.value)
        return flight


def _side(entry: tuple[_Flight, int]) -> int:
    """Side in pixels of a face that waits for the backbone."""
    faces = entry[0].faces
    assert faces is not None
    return int(faces.shape[-1])
