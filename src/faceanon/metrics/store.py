"""A folder of tensors by key: written whole, checked when read, never larger than allowed."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from faceanon.errors import UserError
from faceanon.files import raw_bytes, write_atomic

_log = logging.getLogger(__name__)


class FeatureFolder:
    """Lists of tensors on disk, one safetensors file each; several processes may use a folder at once.

    What is damaged is not used and said so. When the folder is full, files that no one has asked for since this process
    began make room, those unused longest first; the others stay, and new ones are not kept.

    Args:
        folder: Made if missing, with access for its owner alone.
        limit: Bytes of all files at most.

    Raises:
        UserError: The folder cannot be made.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder of features {folder}: {error.strerror}; choose another") from error
        self._began = time.time()
        self._asked = set[str]()
        self._used = self._measure()
        self._said = False

    def _measure(self) -> int:
        return sum(size for _, size, _ in self._files())

    def _files(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of every file; one that another process takes away does not count."""
        files = []
        for path in self.folder.glob("*/*.safetensors"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        return sorted(files)

    def path(self, key: str) -> Path:
        """The file that holds the tensors kept under a key, whether or not it is there."""
        return self.folder / key[:2] / f"{key}.safetensors"

    def read(self, key: str) -> list[Tensor] | None:
        """The tensors of `key`; None where there are none, or damaged ones."""
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                tensors = []
                for number in range(len(file.keys())):
                    tensors.append(file.get_tensor(f"{number:03}"))
                # The digest covers the key, so that a file under a wrong name counts as damaged.
                intact = (file.metadata() or {}).get("sha256") == _digest(key, tensors)
        except (SafetensorError, OSError, ValueError, KeyError):  # another process may have taken it away
            intact = not path.is_file()
            tensors = []
        if not intact:
            _log.warning("features in %s are damaged and computed anew", path)
            return None
        # What this test still needs must not make room for what it computes.
        self._asked.add(path.name)
        with contextlib.suppress(OSError):
            # Other processes, too, are to see that it is used.
            os.utime(path)
        return tensors or None

    def write(self, key: str, tensors: list[Tensor]) -> None:
        """Keep an entry, if there is room; a disk that takes no more is no reason to end a test."""
        # Safetensors does not keep the order of tensors, so their names are their places in the list.
        named = {}
        for number, item in enumerate(tensors):
            named[f"{number:03}"] = item.contiguous()
        data = save(named, {"sha256": _digest(key, tensors)})
        if self._used + len(data) > self.limit:
            self._make_room(len(data))
        if self._used + len(data) > self.limit:
            self._say(f"{self.folder} holds the {self.limit / 1e9:g} GB that it may; further features are not kept")
            return
        try:
            write_atomic(self.path(key), data)
        except UserError as error:
            self._say(f"features are not kept: {error}")
            return
        self._used += len(data)
        self._asked.add(self.path(key).name)

    def _make_room(self, needed: int) -> None:
        # Other processes write here too.
        files = self._files()
        self._used = sum(size for _, size, _ in files)
        for used, size, path in files:
            # From the first file on that was used since this test began, by it or by one beside it, all are needed.
            if self._used + needed <= self.limit or used > self._began:
                return
            if path.name in self._asked:
                continue
            with contextlib.suppress(OSError):
                path.unlink()
                self._used -= size

    def _say(self, message: str) -> None:
        if not self._said:
            _log.warning("%s", message)
        self._said = True


def _digest(key: str, tensors: list[Tensor]) -> str:
    digest = hashlib.sha256(key.encode())
    for item in tensors:
        digest.update(f"{item.dtype} {tuple(item.shape)}".encode())
        digest.update(raw_bytes(item))
    return digest.hexdigest()
