"""Where a case is measured: in a process of its own, or in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from bench.cases import Case
from bench.probe import Sample
from bench.settings import Settings
from bench.worker import Bench, reason

TAIL = 300


class CaseFailedError(Exception):
    """A case could not be built or measured; the message says why. The others are still measured."""


class Runner(Protocol):
    """A case that is ready to be measured."""

    def prepare(self) -> dict[str, Any]:
        """Build and warm up; gives `gflop`, `images` and `repeats`."""

    def sample(self) -> Sample:
        """Measure the prepared case once."""

    def close(self) -> None:
        """Free the memory that the case holds."""


class Here:
    """A case in this process: quick to start, but its memory is not told apart from what was there.

    Args:
        case: What.
        settings: How.
        warmup: Calls before the first sample.
    """

    def __init__(self, case: Case, settings: Settings, warmup: int) -> None:
        self.case = case
        self.settings = settings
        self.warmup = warmup
        self.bench: Bench | None = None

    def prepare(self) -> dict[str, Any]:
        """Build the case in this process and warm it up; gives its facts."""
        try:
            self.bench = Bench(self.case, self.settings, self.warmup)
        except Exception as error:  # whatever a case raises; the others are still measured
            raise CaseFailedError(reason(error)) from error
        return self.bench.facts()

    def sample(self) -> Sample:
        """Measure the case once in this process.

        Raises:
            CaseFailedError: The case raised something; the message gives the reason.
        """
        assert self.bench is not None
        try:
            return self.bench.sample()
        except Exception as error:  # as above
            raise CaseFailedError(reason(error)) from error

    def close(self) -> None:
        """Free what the case built in this process; without a case nothing happens."""
        if self.bench is not None:
            self.bench.work.close()
            self.bench = None


def _path() -> str:
    """Where the other process finds this package and what this process was told to find."""
    here = str(Path(__file__).parents[1])
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))


class Apart:
    """A case in a process of its own. Arguments as `Here`."""

    def __init__(self, case: Case, settings: Settings, warmup: int) -> None:
        self.case = case
        self.settings = settings
        self.warmup = warmup
        # A file, not a pipe: nobody reads while the case runs, and a full pipe would stop it.
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        # OpenMP reads its threads when torch is imported, before `Settings.start`.
        environment = {**os.environ, "OMP_NUM_THREADS": str(settings.threads), "PYTHONPATH": _path()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )

    def prepare(self) -> dict[str, Any]:
        """Build the case in another process and warm it up; gives its facts."""
        settings = asdict(self.settings)
        return self._ask(
            {"module": self.case.module, "case": self.case.name, "settings": settings, "warmup": self.warmup}
        )

    def sample(self) -> Sample:
        """Have the other process measure the case once."""
        return Sample(**self._ask({}))

    def _ask(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Send one line of JSON to the other process, and read the line that it answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(wish) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        # At the end of the pipe `readline` gives an empty line: the process is gone.
        if not line:
            raise CaseFailedError(f"its process ended with {self.process.wait()}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise CaseFailedError(answer["failed"])
        return answer

    def _last_words(self) -> str:
        # The process wrote through the same open file, so its position stands at the end.
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        if lines:
            # The last line of a traceback is the error itself.
            return lines[-1][-TAIL:]
        return "it said nothing (killed, perhaps for want of memory)"

    def close(self) -> None:
        """End the other process; kill it if it does not end within 20 seconds."""
        # The worker's loop over its input ends with the pipe.
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()
