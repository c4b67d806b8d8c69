"""Several processes on one machine: when one dies, the others say so in one line and end too."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from faceanon.compat import swap_process_observer

GRACE = 20.0  # seconds in which a process may still fail by itself, with a line of its own
PERIOD = 1.0
_PARENT = "FACEANON_FIRST_PROCESS"  # its id, for the others: it may be gone before they ask who started them


class RankWatch(threading.Thread):
    """Watches the processes that the first one started; Lightning's own watch kills all of them without a word.

    When one ends with anything but 0, the first process usually fails by itself, in a collective. Where it does not,
    because it waits or computes, this ends it after `GRACE` seconds, with a line.

    Args:
        children: The other processes, ranks 1 and up, in order.
        grace: Seconds.
    """

    def __init__(self, children: Sequence[subprocess.Popen[bytes]], grace: float = GRACE) -> None:
        super().__init__(daemon=True, name="rank-watch")
        self.children = children
        self.grace = grace
        self.leaving = threading.Event()

    def dead(self) -> str | None:
        """Which process died, and how; None while none has."""
        for rank, child in enumerate(self.children, start=1):
            code = child.poll()
            # None is a process that runs, 0 one that came to its end.
            if code:
                if code < 0:
                    how = f"was killed by signal {-code}"
                else:
                    how = f"ended with exit code {code}; see its line"
                return f"process {rank} of {len(self.children) + 1} (pid {child.pid}) {how}"
        return None

    def run(self) -> None:
        """Look every second whether a process is dead, and end the others after a time of grace."""
        while any(child.poll() is None for child in self.children) and not self.dead():
            if self.leaving.wait(PERIOD):
                return
        why = self.dead()
        if why is None or self.leaving.wait(self.grace):
            return
        self.end_children()
        _end(f"{why}; resume from the last checkpoint")

    def end_children(self, grace: float = 5.0) -> None:
        """Let the others end, then end them."""
        self.leaving.set()
        until = time.monotonic() + grace
        while time.monotonic() < until and any(child.poll() is None for child in self.children):
            time.sleep(0.05)
        for child in self.children:
            if child.poll() is None:
                child.kill()


class ParentWatch(threading.Thread):
    """In the processes that another one started: ends this one when that is gone.

    Args:
        grace: Seconds in which this process may fail by itself first.
        line: What it says then.
    """

    def __init__(
        self,
        grace: float = GRACE,
        line: str = "the first process of this training is gone; resume from the last checkpoint",
    ) -> None:
        super().__init__(daemon=True, name="parent-watch")
        self.line = line
        self.parent = int(os.environ.get(_PARENT, os.getppid()))
        self.grace = grace
        self.leaving = threading.Event()

    def run(self) -> None:
        """Look every second whether the parent is gone, and end this process after a time of grace."""
        # A process whose parent is gone gets another one.
        while os.getppid() == self.parent:
            if self.leaving.wait(PERIOD):
                return
        if not self.leaving.wait(self.grace):
            _end(self.line)


@contextmanager
def watched_ranks() -> Iterator[list[RankWatch]]:
    """Put our watch in the place of Lightning's while a training runs; the list holds it once there are processes."""
    watches: list[RankWatch] = []
    parent = None
    if os.environ.get("LOCAL_RANK", "0") != "0":
        parent = ParentWatch()
    told = os.environ.get(_PARENT)

    def ours(children: list[subprocess.Popen[bytes]]) -> None:
        watches.append(RankWatch(children))
        watches[-1].start()

    theirs = swap_process_observer(ours)
    if parent is None:
        # Lightning hands the environment on.
        os.environ[_PARENT] = str(os.getpid())
    else:
        parent.start()
    try:
        yield watches
    except BaseException:
        for watch in watches:
            watch.end_children()
        raise
    finally:
        swap_process_observer(theirs)
        for watch in watches:
            watch.leaving.set()
        if parent is not None:
            parent.leaving.set()
        elif told is None:
            del os.environ[_PARENT]


def _end(line: str) -> None:
    """Leave from a thread while the main one hangs, where only this is left."""
    print(f"faceanon: {line}", file=sys.stderr, flush=True)
    # `sys.exit` would end this thread alone.
    os._exit(1)
