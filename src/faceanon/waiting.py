"""How the threads of one operation wait for each other."""

from __future__ import annotations

import os


def sleep_at_barriers() -> None:
    """Let OpenMP's threads sleep where they wait for each other, unless the environment says otherwise.

    By default they spin, and hold the core that a thread which reads, pastes or writes pictures waits for; the network
    then waits for the one of its own threads that this one put aside. Call it before torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
