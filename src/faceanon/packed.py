"""A safetensors file in Huffman code within another one: fewer bytes, the same numbers.

Weights in few bits lie close around zero, so that a code in which frequent bytes are short takes a tenth to a third
less. Such a file holds one tensor, `PACKED`; `files.load_tensors` and `files.load_arrays` read it as any other.
"""

from __future__ import annotations

import zlib

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
