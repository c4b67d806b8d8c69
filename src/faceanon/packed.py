"""A safetensors file in Huffman code within another one: fewer bytes, the same numbers.

Weights in few bits lie close around zero, so that a code in which frequent bytes are short takes a tenth to a third
less. Such a file holds one tensor, `PACKED`; `files.load_tensors` and `files.load_arrays` read it as any other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

# Whoever reads a model without torch has no need of it here.
if TYPE_CHECKING:
    from torch import Tensor

Stored = TypeVar("Stored", "Tensor", NDArray[Any])

PACKED = "huffman::safetensors"
# A byte's code has one bit at least. A file that unfolds to more was not made here, and could fill the memory.
MOST_GROWTH = 8


def pack(data: bytes) -> bytes:
    """Bytes in Huffman code (RFC 1950). No strings are looked for that come again: weights have none.

    Examples:
        >>> from faceanon.packed import pack, unpack
        >>> coded = pack(bytes([7, 7, 7, 8]) * 1000)
        >>> len(coded) < 800, unpack(coded) == bytes([7, 7, 7, 8]) * 1000
        (True, True)
    """
    coder = zlib.compressobj(level=9, strategy=zlib.Z_HUFFMAN_ONLY)
    return coder.compress(data) + coder.flush()


def unpack(coded: bytes) -> bytes:
    """The bytes of `pack`.

    Raises:
        ValueError: They are damaged, cut off, or not from `pack`.
    """
    decoder = zlib.decompressobj()
    try:
        data = decoder.decompress(coded, MOST_GROWTH * len(coded))
    except zlib.error as error:
        raise ValueError(f"damaged Huffman code: {error}") from error
    if not decoder.eof or decoder.unused_data:
        raise ValueError("damaged Huffman code: it does not end where the file does")
    return data


def packed(data: bytes, metadata: dict[str, str] | None) -> bytes:
    """A safetensors file that holds another one in Huffman code.

    Args:
        data: The other file.
        metadata: Text of its head, which the outer head gets too: there it can be read without unpacking.
    """
    from safetensors.numpy import save

    return save({PACKED: np.frombuffer(pack(data), np.uint8)}, metadata)


def unpacked(stored: dict[str, Stored], load: Callable[[bytes], dict[str, Stored]]) -> dict[str, Stored]:
    """What a safetensors file holds, also if that is another one in Huffman code.

    Args:
        stored: What was read, tensors or arrays by name.
        load: How tensors, or arrays, are read from a safetensors file's bytes.

    Raises:
        ValueError: The code is damaged; `load` has errors of its own.
    """
    if stored.keys() != {PACKED}:
        return stored
    return load(unpack(np.asarray(stored[PACKED]).tobytes()))
