"""The process's three standard streams, made safe: a closed one, and a reader that goes away, stop no work."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CLOSED_PIPE = 141  # 128 + 13, the number of SIGPIPE, as shells count it


class Forgiving(io.FileIO):
    """A stream whose writes never fail: what cannot be written is dropped, and `failure` says why.

    Args:
        number: File descriptor, which stays open when this is closed.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, or drop, `data`; how many bytes are dealt with."""
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            return memoryview(data).nbytes


def open_closed_ones() -> None:
    """Open the null device where the process was started with a closed stream (`<&-`, `>&-`).

    The system gives the number of a closed stream to the next file that is opened: messages would land in a photo.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Python has none of these where it found the stream closed.
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def forgive() -> Forgiving | None:
    """Let no write to standard output and standard error fail from here on.

    Returns:
        What knows of failures of standard output; None where a program that calls ours has put its own stream there.
    """
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr, _ = _safe(sys.stderr)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout, output = _safe(sys.stdout)
        return output
    return None


def _safe(stream: io.TextIOWrapper[Any]) -> tuple[TextIO, Forgiving]:
    raw = Forgiving(stream.fileno())
    safe = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
    )
    return safe, raw


def code_of(code: int, output: Forgiving | None) -> int:
    """The exit code of a command, once what it printed has left the process.

    Args:
        code: What the command ended with.
        output: Of standard output, or None.

    Returns:
        `code`; where that is 0, 141 if the reader of the output went away, and 2 if the output could not be written.
    """
    if output is None:
        return code
    sys.stdout.flush()
    if output.failure is None or code != 0:
        return code
    if output.failure.errno == errno.EPIPE:
        return CLOSED_PIPE
    print(f"faceanon: cannot write to standard output: {output.failure.strerror}", file=sys.stderr)
    return 2
