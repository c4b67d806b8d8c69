"""One case in one process: it builds, warms up, and then measures a sample whenever it is told to.

The parent (`runners`) writes one line of JSON to standard input per wish and reads one line back. What the case
itself prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from bench.cases import CASES, Case, Work
from bench.probe import Memory, Sample, count_flops, sample
from bench.settings import Settings
from faceanon.errors import UserError

LEAST = 0.2
"""Seconds of a sample; quicker calls are repeated."""
MOST_REPEATS = 1000


class Bench:
    """A case that has been built and warmed up.

    Args:
        case: What to build.
        settings: How.
        warmup: Calls before the first sample, beside the one whose FLOPs are counted.
    """

    def __init__(self, case: Case, settings: Settings, warmup: int = 1) -> None:
        settings.start()
        self.settings = settings
        # Before the case is built, so that weights and optimizer states count as its memory.
        self.memory = Memory(settings)
        self.work: Work = case.build(settings)
        self.gflop: float | None = None
        # Building may have moved threads and seed.
        settings.start()
        seconds = [self._seconds(self._count), *(self._seconds(self.work.call) for _ in range(warmup))]
        # By the fastest call: the first ones also compile, and count FLOPs.
        self.repeats = max(1, min(MOST_REPEATS, round(LEAST / max(min(seconds), 1e-6))))

    def _count(self) -> None:
        self.gflop = count_flops(self.work)

    def _seconds(self, call: Callable[[], object]) -> float:
        start = time.perf_counter()
        call()
        self.settings.synchronise()
        return time.perf_counter() - start

    def sample(self) -> Sample:
        """Measure the case once: `repeats` calls in a row, their time and memory."""
        return sample(self.work, self.settings, self.memory, self.repeats)

    def facts(self) -> dict[str, Any]:
        """What is known before the first sample."""
        return {"gflop": self.gflop, "images": self.work.images, "repeats": self.repeats}


def reason(error: Exception) -> str:
    """One line on what a case raised."""
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), 'no message')}"


def _private_output() -> TextIO:
    """Standard output for the parent alone; whatever else is printed goes to standard error."""
    # By file descriptors: libraries in C print past `sys.stdout`, into the answers.
    private = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return private


def _answer(bench: Bench | None, wish: dict[str, Any]) -> tuple[Bench, dict[str, Any]]:
    """Carry out one request of the parent process, and give the answer."""
    if bench is None:
        importlib.import_module(wish["module"])
        bench = Bench(CASES[wish["case"]], Settings(**wish["settings"]), wish["warmup"])
        return bench, bench.facts()
    return bench, asdict(bench.sample())


def main() -> None:
    """Answer until standard input ends."""
    out = _private_output()
    bench = None
    for line in sys.stdin:
        try:
            bench, answer = _answer(bench, json.loads(line))
        except Exception as error:  # whatever a case raises is told; the other cases are still measured
            answer = {"failed": reason(error)}
        print(json.dumps(answer), file=out, flush=True)
    if bench is not None:
        bench.work.close()


if __name__ == "__main__":
    main()
