"""What ends a training from outside, each as one line: a full disk, a worker or a process that died."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faceanon.errors import NO_ROOM, RunError, UserError

# What torch's zip writer says on a full disk; it raises a RuntimeError, not an OSError.
_TORCH_NO_ROOM = re.compile(r"No space left on device|PytorchStreamWriter failed|unexpected pos \d+ vs \d+")
_WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (.*)", re.DOTALL)
# What gloo, NCCL and torch's store say when the process at the other end is gone.
_PEER = re.compile(
    r"Connection (?:closed|reset)|remote process exited|recvValue|Broken pipe|Timed out waiting|broken by peer",
    re.IGNORECASE,
)


class PeerGoneError(RunError):
    """Another process of the training ended, and a collective with it."""


def last_checkpoint(trainer: Any) -> Path | None:  # noqa: ANN401 - a Lightning trainer, which this file does not import
    """The newest checkpoint that this training has written, or None."""
    written: list[Path] = []
    for callback in trainer.checkpoint_callbacks:
        if getattr(callback, "dirpath", None):
            written += Path(callback.dirpath).glob("*.ckpt")
    return max(written, key=lambda path: path.stat().st_mtime, default=None)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from."""
    # `raise ... from` can make a circle of causes.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def explain(error: BaseException) -> UserError | RunError | None:
    """The one line that an error, or what it was raised from, is known by; None where it is nothing known.

    What explains itself goes first; of the rest what was raised first, for a full disk also keeps the loggers from
    closing, and that comes last.
    """
    chain = list(causes(error))
    for cause in chain:
        if isinstance(cause, UserError | RunError):
            return _own(cause)
    known = []
    for cause in chain:
        if (explained := _explained(cause)) is not None:
            known.append(explained)
    # What is farthest down the chain is what happened first.
    if known:
        return known[-1]
    return None


def _own(error: UserError | RunError) -> UserError | RunError:
    """The error itself; a data loader wraps what its worker raised into a whole traceback, of which the end counts.

    Other messages of several lines are meant so: a missing bundle names each of its networks.
    """
    text = str(error).strip()
    if "Traceback (most recent call last)" not in text:
        return error
    return type(error)(text.splitlines()[-1].removeprefix(f"{type(error).__module__}.{type(error).__name__}: "))


def _explained(error: BaseException) -> UserError | RunError | None:
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return no_room(error)
    if not isinstance(error, RuntimeError):
        return None
    text = str(error)
    if _TORCH_NO_ROOM.search(text):
        return UserError("no space left on the disk; free some, then resume from the last checkpoint")
    worker = _WORKER.search(text)
    if worker:
        return _dead_worker(worker[1], worker[2])
    if _PEER.search(text):
        # Gloo puts the place in its own source in front.
        why = re.sub(r"^\[[^]]*\] ?", "", text.strip()).splitlines()[0].split(". ")[0][:160]
        return PeerGoneError(f"another process of this training is gone ({why}); resume from the last checkpoint")
    return None


def no_room(error: OSError) -> UserError:
    """The line of a disk that takes no more."""
    where = f" {error.filename}" if error.filename else ""
    reason = NO_ROOM[error.errno or 0]
    return UserError(f"{reason}{where}; free some, then resume from the last checkpoint, which is untouched")


def _dead_worker(number: str, how: str) -> RunError:
    how = how.strip().splitlines()[0].rstrip(".")
    return RunError(
        f"worker {number.strip()} of the data loader died ({how[:120]}), which often is want of memory or of room in "
        "/dev/shm; give data fewer workers, then resume from the last checkpoint"
    )
