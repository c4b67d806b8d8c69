"""Codes of faces by a codec's latents: from pictures, and back into anonymized pictures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from faceanon.networks.codec import LatentCodec
from faceanon.sealed.cells import PASSES, decode_faces, encode_faces


def codes_of_cells(codec: LatentCodec, image: Tensor, mask: Tensor, step: float | None = None) -> list[bytes]:
    """Latents of some cells of pictures, as bytes.

    Args:
        codec: Of the bundle.
        image: `(B, 3, S, S)` in [-1, 1].
        mask: `(B, 1, S / 8, S / 8)`, the cells to keep.
        step: Rounding step, see `encode_cells`.
    """
    with torch.no_grad():
        latents = codec.encode(image.detach())
    return codes_of_latents(latents, mask, step)


def codes_of_latents(latents: Tensor, mask: Tensor, step: float | None = None) -> list[bytes]:
    """As `codes_of_cells`, for who has the pictures' normalised latents `(B, C, S / 8, S / 8)` at hand."""
    faces = latents.detach().float().cpu().numpy()
    cells = mask[:, 0].bool().cpu().numpy()
    return encode_faces(faces, cells, step)


def faces_of_cells(codec: LatentCodec, image: Tensor, codes: Sequence[bytes], passes: int = PASSES) -> Tensor:
    """Pictures whose coded cells show again what they showed when `codes_of_cells` saw them.

    Args:
        codec: The same.
        image: `(B, 3, S, S)` in [-1, 1], in which the coded cells may show anything, and the others are as they were.
        codes: One for each picture.
        passes: How often the codec draws, at least once.

    Returns:
        `(B, 3, S, S)`; outside the coded cells the pixels of `image`. Not clamped.

    Raises:
        UserError: If a code is damaged, or of pictures of another size.
        ValueError: If there are not as many codes as pictures.
    """
    faces, kept = decode_faces(codes, tuple(image.shape))
    latents = torch.from_numpy(faces).to(image.device)
    cells = torch.from_numpy(kept).to(image.device)
    pixels = cells.repeat_interleave(codec.shrink, -2).repeat_interleave(codec.shrink, -1)
    shown = image.float()
    with torch.no_grad():
        for _ in range(passes):
            # What the codec draws may leave [-1, 1], which pictures never do.
            around = codec.encode(shown.clamp(-1, 1)).float()
            drawn = codec.decode(torch.where(cells, latents, around)).float()
            shown = torch.where(pixels, drawn, image.float())
    return shown
