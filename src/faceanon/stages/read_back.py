"""A drawn face as it is read back from a saved picture, in training."""

from __future__ import annotations

import torch
from torch import Tensor

from faceanon.losses.reconstruction import round_to_8_bit
from faceanon.weights.bundle import Bundle


def read_back(bundle: Bundle, drawn: Tensor, original: Tensor, mesh: Tensor | None) -> Tensor:
    """What a receiver sees of drawn faces: they are saved with 8 bits, and in a frame laid there by a mesh found anew.

    Args:
        bundle: Whose frame it is.
        drawn: `(B, 3, S, S)` in [-1, 1], in the bundle's frame where it has one. Gradients reach it.
        original: The originals, likewise; of them is what lies around the drawn faces.
        mesh: `(B, 468, 2)` of the faces in their pictures; needed where the bundle has a frame.

    Returns:
        `(B, 3, S, S)`, in the bundle's frame where it has one.
    """
    frame = bundle.frame
    if frame is None or mesh is None:
        return round_to_8_bit(drawn)
    # As six channels: one grid moves the faces and what lies around them.
    way = frame.way(mesh, bundle.image_size)
    face, around = frame.moved(torch.cat([drawn, original], 1), way).chunk(2, 1)
    saved = round_to_8_bit(around + way.edge * (face - around))
    with torch.no_grad():
        # The stranger's points lie a little elsewhere than the person's, and so does what is cut out.
        found = bundle.landmarks(saved)
    return frame.cut(saved, found)
