"""Threads for pieces of work in which torch and numpy compute."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from faceanon.pipeline.process import openblas
from faceanon.weights.shipped import usual_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def threads(name: str, count: int, each: int) -> Iterator[ThreadPoolExecutor]:
    """Threads in which torch uses so many cores each, as it does in the calling thread meanwhile, and numpy one.

    By itself torch would use all cores in every thread, and those that it has nothing for would spin.

    Args:
        name: What their names begin with.
        count: How many there are.
        each: Cores of one.
    """
    cores = usual_threads()
    pool = ThreadPoolExecutor(count, name, initializer=_use_cores, initargs=(each,))
    with openblas().limit(limits=1):
        try:
            _use_cores(each)
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            # Threads that others start later take over what was set last.
            _use_cores(cores)


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item], most: int
) -> Iterator[Result]:
    """The results of pieces of work that threads do, in the order of the pieces.

    Args:
        pool: The threads.
        work: Is given one item, in a thread of the pool.
        items: Taken one by one, when there is room.
        most: Pieces that are begun or done and not yet taken over.
    """
    begun: deque[Future[Result]] = deque()
    for item in items:
        begun.append(pool.submit(work, item))
        if len(begun) == most:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()


def _use_cores(count: int) -> None:
    """Have torch use so many cores in this thread, where the pipeline has brought it along."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)
