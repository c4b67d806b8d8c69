"""What a run over a folder has done so far: one JSON line an event, only ever appended to.

The first line says what the run is; a run with other settings is refused. A kill may cut the last line short, and
nothing else. The salt and the cost of the key derivation are public; the password is not here, nor anything made of it.

Where several processes share a folder, the first writes the journal and each other a part beside it; parts are moved
into the journal at the end, or by whoever opens it next.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from faceanon.errors import UserError

JOURNAL_NAME = ".faceanon-journal.jsonl"
PART_NAME = ".faceanon-journal.part{}.jsonl"
VERSION = 1


@dataclass
class History:
    """What a journal tells.

    Args:
        head: What the run is.
        begun: Targets that may have been written, or begun to be.
        last: By source, its last `done` or `failed` line.
        album: The last `album` line, who becomes whom; None where the run has no album.
    """

    head: dict[str, Any]
    begun: set[str] = field(default_factory=set)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    album: dict[str, Any] | None = None

    def finished(self, source: str, fingerprint: str) -> bool:
        """Whether `source`, unchanged since, has been done."""
        line = self.last.get(source)
        return line is not None and line["event"] == "done" and line["stamp"] == fingerprint


def read_journal(path: Path) -> tuple[History | None, int]:
    """What the journal at `path` tells, and how many of its bytes are whole lines.

    Returns:
        None and 0 where there is none, or a kill left less than its first line.

    Raises:
        UserError: If it is no journal of this version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, 0
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    whole = data.rfind(b"\n") + 1
    try:
        lines = list(map(json.loads, data[:whole].splitlines()))
        if not lines:
            return None, 0
        history = History(dict(lines[0]["run"]))
        if lines[0]["version"] != VERSION:
            raise ValueError("another version")
        for line in lines[1:]:
            _note(history, line)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no journal of this version; give --overwrite to start again") from error
    return history, whole


def read_run(path: Path) -> tuple[History | None, int]:
    """As `read_journal`, with what lies in parts beside the journal.

    Raises:
        UserError: If one of them is no journal of this version.
    """
    history, whole = read_journal(path)
    if history is not None:
        for part in _parts(path):
            other, _ = read_journal(part)
            if other is not None and other.head == history.head:  # else what a run that was started anew left
                history.begun |= other.begun
                history.last |= other.last
    return history, whole


def _parts(path: Path) -> list[Path]:
    return sorted(path.parent.glob(PART_NAME.format("*")))


def _note(history: History, line: dict[str, Any]) -> None:
    if line["event"] == "begin":
        history.begun.add(line["target"])
    elif line["event"] == "album":
        history.album = {"of": str(line["of"]), "sealed": list(map(str, line["sealed"]))}
    else:
        history.last[line["source"]] = {"stamp": "", **line}


class Journal:
    """A journal being written; one process at a time.

    Args:
        path: The file; made with its folder.
        head: What the run is, for a new journal.
        whole: How many bytes of an existing one are good; what follows is cut off. None starts a new one.

    Raises:
        UserError: If another run writes to it, or it cannot be written.
    """

    def __init__(self, path: Path, head: dict[str, Any], whole: int | None = None) -> None:
        self.path = path
        self._turn = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer each event is one write of the operating system.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
        try:
            _lock(self._file.fileno(), path)
        except UserError:
            self._file.close()
            raise
        # Only under the lock: until then another run may write to it.
        self._file.truncate(whole or 0)
        if not whole:
            self.write({"version": VERSION, "run": head})

    def write(self, line: dict[str, Any], durable: bool = False) -> None:
        """Append one event; whole at once, so that threads and kills cannot mix lines.

        Args:
            line: The event.
            durable: Wait until it is on the disk.

        Raises:
            UserError: If it cannot be written; nothing more is, since half a line may only be the last.
        """
        self._append(json.dumps(line, separators=(",", ":")).encode() + b"\n", durable)

    def _append(self, data: bytes, durable: bool) -> None:
        with self._turn:
            try:
                if self._file.closed or self._file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, "no space left on the disk")
                if durable:
                    os.fsync(self._file.fileno())
            except OSError as error:
                self._file.close()
                raise UserError(f"cannot write {self.path}: {error.strerror}; free some space, then resume") from error

    def take_parts(self, head: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
        """Move the lines of the parts beside this journal into it.

        Args:
            head: What the run is; parts of other runs are removed. None removes all.

        Returns:
            By source, its last `done` or `failed` line in them.

        Raises:
            UserError: If a process still writes to one.
        """
        taken: dict[str, dict[str, Any]] = {}
        for part in _parts(self.path):
            with part.open("r+b") as file:
                _lock(file.fileno(), part)
                history, whole = read_journal(part)
                if history is not None and head is not None and history.head == head:
                    taken |= history.last
                    lines = file.read(whole)
                    # Without the part's first line, which says what the run is and stands in this journal already.
                    self._append(lines[lines.index(b"\n") + 1 :], durable=True)
            # Last: a kill before this leaves the lines twice; in the other order they could be lost.
            part.unlink(missing_ok=True)
        return taken

    def discard(self) -> None:
        """Remove the journal of a run that has done nothing, and its folder if that is empty."""
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()

    def close(self) -> None:
        """Put everything on the disk and let others in; closing twice is no mistake."""
        if self._file.closed:
            return
        with contextlib.suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the journal, whether or not the block failed."""
        self.close()


def _lock(descriptor: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows; there two runs over one folder are the user's own care
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(f"another run is writing to {path.parent}; wait for it, or choose another folder") from error
