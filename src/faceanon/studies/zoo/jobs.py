"""Several methods of `faceanon zoo` at once, each in a process of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.errors import RunError

if TYPE_CHECKING:
    from faceanon.studies.zoo.recipes import Method
    from faceanon.studies.zoo.train import ZooSettings

LOG = "log.txt"
Task = tuple["Method", int]


def run_at_once(tasks: Sequence[Task], jobs: int, out: Path, settings: ZooSettings) -> None:
    """Train and test; what a process prints goes to `log.txt` in the folder of its method and seed.

    Args:
        tasks: Methods, each with the seed of its training.
        jobs: Processes, which share the threads that torch would use in one.
        out: As `zoo.train.prepare` and `zoo.train.test` have it.
        settings: The zoo's.

    Raises:
        UserError: What one of them met; those that run are let finish, no other is begun.
        RunError: Likewise, or a process was killed.
    """
    chains = share_stages(tasks)
    jobs = min(jobs, len(chains))
    print(f"[zoo] {len(tasks)} to train and test, {jobs} at once; each writes {out}/NAME/seedN/{LOG}", flush=True)
    with _pool(jobs) as pool:
        running = {pool.submit(_work, chain, out, settings): chain for chain in chains}
        try:
            _follow(running, len(tasks))
        except KeyboardInterrupt:
            # Whoever stops the command does not want to wait for the trainings that run.
            for process in active_children():
                process.terminate()
            raise
        except BrokenProcessPool as error:
            raise RunError(
                "a process of the zoo was killed, perhaps for lack of memory; the same command resumes it, "
                "and needs less with a lower --jobs"
            ) from error


def share_stages(tasks: Iterable[Task]) -> list[list[Task]]:
    """Tasks that start from one first stage behind each other, so that no two processes train it."""
    chains: dict[tuple[str, int], list[Task]] = {}
    for method, seed in tasks:
        if method.stages:
            owner = method.stages[0].owner
        else:
            owner = method.name
        chains.setdefault((owner, seed), []).append((method, seed))
    return list(chains.values())


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that begin nothing more once the block is left."""
    import torch

    threads = max(1, torch.get_num_threads() // jobs)
    # Not forked: torch's threads do not survive that.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_begin, initargs=(threads,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _follow(running: dict[Future[None], list[Task]], total: int) -> None:
    """Say what is done as it gets done."""
    start = time.monotonic()
    done = 0
    for future in as_completed(running):
        future.result()
        done += len(running[future])
        labels = []
        for method, seed in running[future]:
            labels.append(f"{method.name} (seed {seed})")
        names = ", ".join(labels)
        print(f"[zoo] {done} of {total} after {(time.monotonic() - start) / 60:.0f} min: {names}", flush=True)


def _begin(threads: int) -> None:
    """Set up a process: its share of the threads, and an end when the command that started it is gone."""
    import torch

    from faceanon.training.ranks import ParentWatch

    torch.set_num_threads(threads)
    ParentWatch(0, "the zoo that started this training is gone; the same command resumes it").start()


def _work(chain: Sequence[Task], out: Path, settings: ZooSettings) -> None:
    """Train and test one after the other."""
    from faceanon.studies.zoo.train import folder_of, prepare, test

    try:
        for method, seed in chain:
            with _into(folder_of(method.name, seed, out) / LOG):
                test(method, seed, prepare(method, seed, out, settings), out, settings)
    except RunError as error:  # those of its kind with more than a message do not pass from process to process
        raise RunError(str(error), error.code) from None


@contextmanager
def _into(log: Path) -> Iterator[None]:
    """Append what this process and its children print to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    kept = {}
    for stream in (sys.stdout, sys.stderr):
        # By file descriptor, since libraries print past Python's own streams.
        kept[stream.fileno()] = os.dup(stream.fileno())
    try:
        # The descriptors stay open by themselves when the file is closed.
        with log.open("ab") as file:
            for number in kept:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)
