"""What the methods share that cut the face out and draw another: the hole, and that there is no way back."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.backbones.region import face_hole, require_face, softened
from faceanon.errors import UserError
from faceanon.types import Codes
from faceanon.weights.bundle import Bundle

WIDTHS = [24, 48, 96, 128, 160]


class Inpainting(Backbone):
    """Draw into the hole where the face was, from the surroundings and the key alone.

    The identity code is the key's vector. That of an original is 0, nobody's: the face is not looked at.

    Args:
        bundle: Bundle by name or folder, with a parser, or with the face mesh as landmarks.
        key_dim: Length K of the key's vector.
        widths: Channels of the U-Net's maps, finest first, each half the side of the one before; multiples of 4.

    Raises:
        UserError: The widths do not fit the pictures or each other, or the bundle cannot tell where a face is.
    """

    reversible = False
    trained_by = ("AnonymizeStage",)
    draws_in_frame = False

    def __init__(self, bundle: str, key_dim: int, widths: list[int]) -> None:
        super().__init__()
        self.bundle = Bundle(bundle)
        self.key_shape = (key_dim,)
        require_face(self.bundle)
        if len(widths) < 2 or any(width < 4 or width % 4 for width in widths):
            raise UserError(f"widths are {widths}; give at least two, multiples of 4")
        # Each further width halves the maps.
        if self.image_size % (1 << (len(widths) - 1)):
            raise UserError(f"{len(widths)} widths need pictures of a multiple of {1 << (len(widths) - 1)} px")

    @abstractmethod
    def draw(self, context: Tensor, identity: Tensor) -> Tensor:
        """All of `(B, 3, S, S)` from a context `(B, C, S, S)` and vectors `(B, K)`."""

    def context(self, image: Tensor, hole: Tensor) -> Tensor:
        """What the network sees of `(B, 3, S, S)`: the hole `(B, 1, S, S)` and what lies around it, `(B, 4, S, S)`."""
        return torch.cat([image * (1 - hole), hole], 1)

    def encode(self, image: Tensor) -> Codes:
        """Surroundings of the face in `(B, 3, S, S)` (`features`), and nobody as identity `(B, K)`."""
        hole = face_hole(self.bundle, image).to(image)
        nobody = image.new_zeros(image.shape[0], *self.key_shape)
        # Nothing of what was cut out shines through.
        mask = torch.maximum(hole, softened(hole))
        return Codes(nobody, features={image.shape[-1]: self.context(image, hole)}, image=image, mask=mask)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """The key's vector `(B, K)`, whoever `identity` is.

        Raises:
            NotImplementedError: With `inverse`.
        """
        if inverse:
            raise NotImplementedError(f"{type(self).__name__} cannot be undone")
        return key.to(identity)

    def decode(self, codes: Codes) -> Tensor:
        """Draw `(B, 3, S, S)`; outside hole and edge the input's pixels stay."""
        assert codes.features is not None
        assert codes.image is not None
        assert codes.mask is not None
        drawn = self.draw(codes.features[codes.image.shape[-1]], codes.identity)
        # Where the mask is 1 nothing of the input is left, not even in the last bit.
        return codes.image * (1 - codes.mask) + drawn * codes.mask
