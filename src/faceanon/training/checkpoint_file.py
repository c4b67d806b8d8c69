"""Checkpoints of a run on disk: written atomically, with their own hash inside, and nothing in them is executed."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from faceanon.errors import UserError
from faceanon.files import whole_file
from faceanon.networks.local_weights import refuse_bomb

NEWEST = "new.ckpt"
LAST = "last.ckpt"
PREVIOUS = "previous.ckpt"
# In the comment at the end of the zip file, where `torch.load` does not look: it reads our checkpoints as any others.
_MARK = b"faceanon sha256 "
_NOTE = len(_MARK) + 64
_LENGTH = 2  # bytes at the end of a zip file that hold the length of its comment
_CHUNK = 1 << 20


class DamagedError(Exception):
    """A checkpoint's bytes are not those that were written."""


def write_checkpoint(content: dict[str, Any], path: Path) -> None:
    """Write `content` so that `path` is either the old file or the whole new one, also after a power cut.

    The file is torch's zip format, whose comment holds the sha256 of everything before it: one file, one rename, and
    `torch.load` reads it as any other.

    Raises:
        OSError: The folder cannot be written, or the disk is full; `path` is as it was.
    """
    with whole_file(path) as file:
        torch.save(content, file)
        _write_checksum(file)
    sync_folder(path.parent)


def _write_checksum(file: BinaryIO) -> None:
    """Replace the empty comment at the end of a zip file by one that holds the hash of what stands before it."""
    end = file.seek(-_LENGTH, os.SEEK_END)
    # A zip file ends with the length of its comment and the comment. torch writes none, so the length is 0.
    assert file.read() == bytes(_LENGTH)
    file.seek(end)
    file.write(_NOTE.to_bytes(_LENGTH, "little"))
    # With the length of the comment, but without its text, which is the hash itself.
    digest = _digest(file, end + _LENGTH)
    file.seek(0, os.SEEK_END)
    file.write(_MARK + digest.encode())


def _digest(file: BinaryIO, size: int) -> str:
    """Hex sha256 of the first `size` bytes."""
    digest = hashlib.sha256()
    left = size
    file.seek(0)
    while left > 0 and (chunk := file.read(min(left, _CHUNK))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def check(path: Path) -> None:
    """Compare a checkpoint with the hash that it carries; one without any (saved by another program) passes.

    Raises:
        DamagedError: They differ.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _NOTE))
        note = file.read()
        if note.startswith(_MARK) and _digest(file, size - _NOTE).encode() != note[len(_MARK) :]:
            raise DamagedError(f"{path} is damaged: its content is not what was written")


def read_checkpoint(
    path: Path,
    map_location: Any = "cpu",  # noqa: ANN401 - as torch.load has it
    mapped: bool = False,
) -> dict[str, Any]:
    """Read a checkpoint after comparing it with its hash; tensors and plain values only.

    Args:
        path: The file.
        map_location: As `torch.load` takes it.
        mapped: Leave tensors on the disk until they are looked at.

    Raises:
        DamagedError: It is damaged, or no checkpoint.
        OSError: The file cannot be read.
    """
    check(path)
    try:
        refuse_bomb(path)
        content: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True, mmap=mapped)
        # Fails where there are no weights: such a file is no checkpoint.
        return {"state_dict": content["state_dict"], **content}
    # A disk that cannot be read says nothing of the file, which must not count as damaged.
    except OSError:
        raise
    except Exception as error:  # rubbish makes the unpickler raise whatever it stumbles over
        raise DamagedError(f"{path} is damaged or no checkpoint") from error


def newest(folders: Iterable[Path]) -> tuple[Path | None, list[Path]]:
    """The newest whole checkpoint that a run keeps in one of these folders, and the damaged ones that are newer.

    A run that was killed while it put `new.ckpt` in the place of `last.ckpt` leaves the former behind, whole.
    """
    files = []
    for folder in folders:
        for name in (NEWEST, LAST, PREVIOUS):
            if (path := folder / name).exists():
                files.append(path)
    damaged: list[Path] = []
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            # Without storage: the bytes are compared with their hash, and the tensors are not needed.
            read_checkpoint(path, "meta")
        except DamagedError:
            damaged.append(path)
        else:
            return path, damaged
    return None, damaged


def newest_or_refuse(folders: Iterable[Path]) -> tuple[Path | None, str]:
    """As `newest`, with one line for the user; the line is empty where nothing is to be said.

    Raises:
        UserError: There are checkpoints, and all are damaged.
    """
    path, damaged = newest(folders)
    names = ", ".join(map(str, damaged))
    if path is None and damaged:
        raise UserError(f"every checkpoint is damaged: {names}; move them away to start anew")
    if damaged:
        return path, f"{names} is damaged; resuming from the one before, {path}"
    return path, ""


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
