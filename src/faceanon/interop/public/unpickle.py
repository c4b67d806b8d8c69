"""Foreign checkpoints read without running anything that is in them.

Unpickling calls whatever a file names. `read_torch` leaves that to torch's restricted reader. NVIDIA's `.pkl` files
need classes that torch refuses, so `read_pickle` has a reader of its own: a short list of names, each with a harmless
stand-in, and no code of the file. Source text that such files carry (`module_src`, `build_module_src`) stays text.
"""

from __future__ import annotations

import argparse
import io
import math
import pickle
import pickletools
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.compat import untyped
from faceanon.errors import UserError
from faceanon.networks.local_weights import refuse_bomb

LARGEST = 4 << 30
MOST_OPERATIONS = 5_000_000
_NUMBERS = re.compile(r"[<>=|]?(?:[fiu][1248]|b1)")
_REFUSED = re.compile(r"GLOBAL\s+([\w.]+)")
_ADVICE = "nothing of it was run; get the file from its authors again"


class Record:
    """An object whose class is not here: its name and its state, and no behaviour.

    Attributes:
        name: Name of the class, or of the TensorFlow network.
        state: What the object held; numbers, texts, containers, tensors, `Array` and `Record`.
    """

    def __init__(self, name: str = "", state: dict[str, Any] | None = None) -> None:
        self.name = name
        self.state = state or {}


class TensorFlowNetwork(Record):
    """Stands for a pickled `dnnlib.tflib.network.Network` and keeps its name and state; none of its code runs."""

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict):
            raise pickle.UnpicklingError("a network whose state is no dictionary")
        self.name = str(state.get("name"))
        self.state = state


class DType:
    """A numpy type by its code, plain numbers only."""

    def __init__(self, code: str, *_: object) -> None:
        if not isinstance(code, str) or not _NUMBERS.fullmatch(code):
            raise pickle.UnpicklingError(f"an array of type {str(code)[:40]!r}, not of numbers")
        self.code = code

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # The second entry of numpy's state is the byte order; other marks than these mean that of the machine.
        if state[1] in ("<", ">"):
            self.code = state[1] + self.code.lstrip("<>=|")

    def read(self, raw: bytes) -> NDArray[Any]:
        """The numbers in `raw`, one dimension, without a copy."""
        return np.frombuffer(raw, np.dtype(self.code))


class Array:
    """A numpy array.

    Attributes:
        value: The array, read-only.
    """

    value: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self.value = dtype.read(raw).reshape(shape, order="F" if fortran else "C")


class _Plain(dict[Any, Any]):
    """Stands in for dictionaries with attributes; the attributes are dropped."""

    def __init__(self) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None:
        pass


class _Reader(pickle.Unpickler):
    """Unpickler with a fixed list of names.

    The stand-ins are classes with their own `__setstate__` or methods of this reader, which a file cannot alter.

    Args:
        data: The file.
        path: Its name in errors.
    """

    def __init__(self, data: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(data))
        self.path = path
        # A file holds every number once: whoever rebuilds more wants to fill the memory.
        self.left = 2 * len(data)
        self.known: dict[tuple[str, str], Callable[..., Any]] = {
            ("collections", "OrderedDict"): _Plain,
            ("dnnlib.util", "EasyDict"): _Plain,
            ("builtins", "set"): self.set,
            ("__builtin__", "set"): self.set,
            ("_codecs", "encode"): self.encode,
            ("numpy", "ndarray"): Array,
            ("numpy", "dtype"): DType,
            ("torch.storage", "_load_from_bytes"): self.storage,
            ("torch._utils", "_rebuild_tensor_v2"): self.tensor,
            ("torch._utils", "_rebuild_parameter"): self.parameter,
            ("torch_utils.persistence", "_reconstruct_persistent_obj"): self.persistent,
            ("dnnlib.tflib.network", "Network"): TensorFlowNetwork,
        }
        # NumPy 2 renamed `numpy.core`; files name what their writer had.
        for numpy in ("numpy.core", "numpy._core"):
            self.known[f"{numpy}.multiarray", "_reconstruct"] = self.array
            self.known[f"{numpy}.multiarray", "scalar"] = self.scalar
            self.known[f"{numpy}.numeric", "_frombuffer"] = self.buffer

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """The stand-in for a name.

        Raises:
            UserError: It is not on the list.
        """
        known = self.known.get((module, name))
        if known is None:
            raise UserError(f"{self.path} asks for {module}.{name}, which no StyleGAN2 file needs; {_ADVICE}")
        return known

    def spend(self, count: int) -> None:
        """Count bytes that a call rebuilds."""
        self.left -= count
        if self.left < 0:
            raise pickle.UnpicklingError("it unpacks to far more than its own size")

    def set(self, items: list[Any]) -> set[Any]:
        """A set, as older pickles write it."""
        self.spend(len(items))
        return set(items)

    def encode(self, text: str, encoding: str) -> bytes:
        """Bytes, as older pickles write them."""
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"an unknown encoding {str(encoding)[:40]!r}")
        self.spend(len(text))
        return text.encode("latin1")

    def storage(self, raw: bytes) -> Tensor:
        """The numbers of a torch storage, one dimension; `raw` is a torch file of its own."""
        self.spend(len(raw))
        # By torch's restricted reader, so that the file inside the file runs nothing either.
        storage = _load_torch(io.BytesIO(raw), self.path)
        if not isinstance(storage, torch.storage.TypedStorage):
            raise pickle.UnpicklingError("a tensor without numbers")
        return torch.empty(0, dtype=storage.dtype).set_(untyped(storage))

    def tensor(
        self, numbers: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
    ) -> Tensor:
        """A view of the numbers that is no larger than they are."""
        # Strides can make one number pose as many, so the count is checked here.
        if len(size) > 8 or math.prod(size) > numbers.numel():
            raise pickle.UnpicklingError(f"a tensor of shape {size} on {numbers.numel()} numbers"[:200])
        return numbers.as_strided(size, stride, offset)

    def parameter(self, tensor: Tensor, *_: object) -> Tensor:
        """The tensor of a parameter."""
        return tensor

    def persistent(self, meta: dict[str, Any]) -> Record:
        """A module of stylegan2-ada-pytorch; its source is dropped."""
        if not isinstance(meta["state"], dict):
            raise pickle.UnpicklingError("a module whose state is no dictionary")
        return Record(str(meta["class_name"]), meta["state"])

    def array(self, *_: object) -> Array:
        """An array that the next instruction fills."""
        return Array()

    def scalar(self, dtype: DType, raw: bytes) -> int | float | bool:
        """The one number that a numpy scalar was pickled as."""
        number: int | float | bool = dtype.read(raw)[0].item()
        return number

    def buffer(self, raw: bytes, dtype: DType, shape: tuple[int, ...], order: str) -> Array:
        """An array, as the newest pickles write it."""
        array = Array()
        array.__setstate__((1, shape, dtype, order == "F", raw))
        return array


def read_pickle(path: Path, limit: int = LARGEST) -> Any:  # noqa: ANN401 - whatever the file holds
    """Read one of NVIDIA's `.pkl` files of StyleGAN2 or stylegan2-ada, from TensorFlow or PyTorch.

    Args:
        path: The file.
        limit: Largest size in bytes.

    Returns:
        Plain containers with `Record`, `TensorFlowNetwork`, `Array`, tensors and numbers in them.

    Raises:
        UserError: Missing, too large, damaged, or it names anything that such a file does not need.
    """
    if not path.is_file():
        raise UserError(f"weights not found: {path}; check the path")
    if path.stat().st_size > limit:
        raise UserError(
            f"{path} has {path.stat().st_size} bytes, more than any StyleGAN2 ({limit}); is it the right file?"
        )
    data = path.read_bytes()
    try:
        _check_operations(data)
        return _Reader(data, path).load()
    except UserError:
        raise
    except Exception as error:  # rubbish makes the unpickler raise whatever it stumbles over
        _damaged(path, error)


def _check_operations(data: bytes) -> None:
    """Refuse what makes the unpickler reserve memory before it looks at the file: truncated data, wild memo numbers."""
    for count, (operation, argument, _) in enumerate(pickletools.genops(data), 1):
        if count > MOST_OPERATIONS:
            raise pickle.UnpicklingError("more instructions than any network needs")
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise pickle.UnpicklingError("a wild memo number")


def read_torch(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Read a `.pt` or `.pth` file of tensors, plain containers and `argparse.Namespace`, on the CPU.

    Raises:
        UserError: Missing, damaged, or it names anything else.
    """
    if not path.is_file():
        raise UserError(f"weights not found: {path}; check the path")
    refuse_bomb(path)
    return _load_torch(path, path)


def _load_torch(source: Path | io.BytesIO, path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            # Old formats make torch advise whoever wrote the file.
            warnings.simplefilter("ignore")
            return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # rubbish makes the unpickler raise whatever it stumbles over
        match = _REFUSED.search(str(error))
        if match:
            raise UserError(f"{path} asks for {match[1]}, which no checkpoint needs; {_ADVICE}") from error
        _damaged(path, error)


def _damaged(path: Path, error: Exception) -> NoReturn:
    lines = []
    for line in str(error).splitlines():
        if line.strip():
            lines.append(line.strip())
    if lines and lines[0].startswith("Weights only load failed"):
        # Torch's advice to load the file carelessly, or to write to torch.
        lines = []
    reason = "not in a format of torch, or damaged"
    if lines:
        reason = lines[0][:200]
    raise UserError(f"{path} is not a readable checkpoint ({reason}); {_ADVICE}") from error
