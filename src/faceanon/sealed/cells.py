"""Codes of several faces at once, to and from a codec's latents; without torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.sealed.coder import CELL, decode_cells, encode_cells

# The codec sees across the border of the mask. Its first drawing makes the surroundings known, as if no stranger's face
# had ever stood there; the second, from those, is some 2 dB nearer to the original at the same number of bytes.
PASSES = 2


def encode_faces(
    latents: Iterable[NDArray[np.float32]], cells: Iterable[NDArray[np.bool_]], step: float | None = None
) -> list[bytes]:
    """Codes of the kept cells `(h, w)` of latents `(C, h, w)`, one for each face; `step` as in `encode_cells`."""
    codes = []
    for face, kept in zip(latents, cells, strict=True):
        codes.append(encode_cells(face, kept, step))
    return codes


def decode_faces(codes: Sequence[bytes], shape: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Latents `(B, C, h, w)` and kept cells `(B, 1, h, w)` of the codes of pictures.

    Args:
        codes: One for each picture.
        shape: Of the pictures, `(B, 3, 8 h, 8 w)`.

    Raises:
        UserError: If a code is damaged, or of pictures of another size.
        ValueError: If there are not as many codes as pictures.
    """
    if len(codes) != shape[0]:
        raise ValueError(f"{shape[0]} pictures need as many codes, not {len(codes)}")
    decoded = list(map(decode_cells, codes))
    height, width = shape[-2:]
    for _, kept in decoded:
        if kept.shape != (height // CELL, width // CELL):
            theirs = f"{kept.shape[1] * CELL} x {kept.shape[0] * CELL}"
            raise UserError(
                f"the code of a face is for faces of {theirs} px, and the model's are {width} x {height} px"
            )
    return np.stack([face for face, _ in decoded]), np.stack([kept for _, kept in decoded])[:, None]
