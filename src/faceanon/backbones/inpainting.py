"""What the methods share that cut the face out and draw another: the hole, and that there is no way back.

On a bundle with a codec the networks see and draw normalised latents, one cell for a square of pixels, and the codec
makes the picture: on photographs the layers that draw skin and hair are then trained already.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.base import Backbone
from faceanon.backbones.region import face_hole, require_face, softened
from faceanon.errors import UserError
from faceanon.networks.taef2 import SHRINK
from faceanon.types import Codes
from faceanon.weights.bundle import Bundle

WIDTHS = [24, 48, 96, 128, 160]  # on pictures of 64 px


class Inpainting(Backbone):
    """Draw into the hole where the face was, from the surroundings and the key alone.

    The identity code is the key's vector. That of an original is 0, nobody's: the face is not looked at.

    Args:
        bundle: Bundle by name or folder, with a parser, or with the face mesh as landmarks.
        key_dim: Length K of the key's vector.
        widths: Channels of the U-Net's maps, finest first, each half the side of the one before; multiples of 4. None
            gives those of 64 px on a processor. On latents, whose network has widths of its own, None.

    Attributes:
        on_latents: Whether the bundle has a codec.
        side: Side s of what the network sees and draws: the picture's in pixels, or the latents' in cells.
        channels: Channels C of what it draws: 3, or the latents'.

    Raises:
        UserError: The widths do not fit the pictures or each other, or the bundle cannot tell where a face is.
    """

    reversible = False
    trained_by = ("AnonymizeStage",)
    draws_in_frame = False

    def __init__(self, bundle: str, key_dim: int, widths: list[int] | None) -> None:
        super().__init__()
        self.bundle = Bundle(bundle)
        self.key_shape = (key_dim,)
        require_face(self.bundle)
        self.on_latents = self.bundle.has("codec")
        if self.on_latents:
            if widths is not None:
                raise UserError(f"widths are {widths}: set them to null for a bundle with a codec, {bundle} has one")
            self.side = self.image_size // SHRINK
            self.channels = self.bundle.codec.channels
        else:
            self.side = self.image_size
            self.channels = 3

    def unet_widths(self, widths: list[int] | None) -> list[int]:
        """Widths of a U-Net on pictures, checked: as given, or what None stands for."""
        widths = WIDTHS if widths is None else widths
        if len(widths) < 2 or any(width < 4 or width % 4 for width in widths):
            raise UserError(f"widths are {widths}; give at least two, multiples of 4")
        # Each further width halves the maps.
        if self.image_size % (1 << (len(widths) - 1)):
            raise UserError(f"{len(widths)} widths need pictures of a multiple of {1 << (len(widths) - 1)} px")
        return widths

    @abstractmethod
    def draw(self, context: Tensor, identity: Tensor) -> Tensor:
        """All of `(B, C, s, s)` from a context `(B, I, s, s)` and vectors `(B, K)`."""

    def context(self, image: Tensor, hole: Tensor) -> Tensor:
        """What the network sees of `(B, 3, S, S)`: what lies around the hole `(B, 1, S, S)`, and the hole.

        Returns:
            `(B, C + 1, s, s)`. On latents the hole is the share of each cell that it takes.
        """
        around = image * (1 - hole)
        if not self.on_latents:
            return torch.cat([around, hole], 1)
        return torch.cat([self.bundle.codec.encode(around), F.avg_pool2d(hole, SHRINK)], 1)

    def encode(self, image: Tensor) -> Codes:
        """Surroundings of the face in `(B, 3, S, S)` (`features`), and nobody as identity `(B, K)`."""
        hole = face_hole(self.bundle, image).to(image)
        nobody = image.new_zeros(image.shape[0], *self.key_shape)
        # Nothing of what was cut out shines through.
        mask = torch.maximum(hole, softened(hole))
        with torch.no_grad():
            context = self.context(image, hole)
        return Codes(nobody, features={self.side: context}, image=image, mask=mask)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """The key's vector `(B, K)`, whoever `identity` is.

        Raises:
            NotImplementedError: With `inverse`.
        """
        if inverse:
            raise NotImplementedError(f"{type(self).__name__} cannot be undone")
        return key.to(identity)

    def drawn_latents(self, codes: Codes) -> Tensor | None:
        """All cells `(B, C, s, s)` of a method on latents, around the hole too; None of one on pictures."""
        if not self.on_latents:
            return None
        assert codes.features is not None
        return self.draw(codes.features[self.side], codes.identity)

    def decode(self, codes: Codes) -> Tensor:
        """Draw `(B, 3, S, S)`; outside hole and edge the input's pixels stay."""
        assert codes.features is not None
        latents = self.drawn_latents(codes)
        if latents is None:
            return self._framed(codes, self.draw(codes.features[self.side], codes.identity))
        return self.pictures_of(codes, latents)

    def pictures_of(self, codes: Codes, latents: Tensor) -> Tensor:
        """What `decode` gives `(B, 3, S, S)`, of latents `(B, C, s, s)` that are drawn already."""
        return self._framed(codes, self.bundle.codec.decode(latents))

    def _framed(self, codes: Codes, drawn: Tensor) -> Tensor:
        """Drawn pictures inside hole and edge, the input's outside."""
        assert codes.image is not None
        assert codes.mask is not None
        # Where the mask is 1 nothing of the input is left, not even in the last bit.
        return codes.image * (1 - codes.mask) + drawn * codes.mask
