"""Around a whole training: whatever ends it ends every process, and becomes one line and an exit code."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lightning.pytorch.utilities import rank_zero_only

from faceanon.training.failures import PeerGoneError, explain
from faceanon.training.ranks import PERIOD, RankWatch, watched_ranks
from faceanon.training.signals import StoppedError, leave_on_sigterm


@contextmanager
def in_order() -> Iterator[None]:
    """Run a training, or a test, under the watch of its processes and with signals answered.

    Raises:
        UserError: What the user can mend: input, configuration, a full disk.
        RunError: What else is known to end a run, and a stop by Ctrl-C or SIGTERM.
        SystemExit: With 0, in the other processes of a training that was stopped and saved: the first one reports.
    """
    with watched_ranks() as watches:
        try:
            with leave_on_sigterm():
                yield
        except StoppedError as stop:
            if stop.saved and getattr(rank_zero_only, "rank", 0) != 0:
                raise SystemExit(0) from stop
            raise
        except Exception as error:
            known = explain(error)
            if known is None or known is error:
                raise
            raise _named(known, watches) from error


def _named(known: Exception, watches: Sequence[RankWatch]) -> Exception:
    """Say which process is gone, where that can be known: from the first of them."""
    if not isinstance(known, PeerGoneError):
        return known
    # The connection may break before the process can be asked.
    until = time.monotonic() + 3 * PERIOD
    while watches and time.monotonic() < until:
        why = watches[0].dead()
        if why:
            return PeerGoneError(f"{why}; resume from the last checkpoint")
        time.sleep(0.1)
    return known
