"""A method that was trained on faces in the frame of their mesh, in use on pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.key import Secret
from faceanon.losses.reconstruction import round_to_8_bit
from faceanon.networks.mesh_frame import WayBack
from faceanon.types import Codes

CORRECTED = 0.6  # of what was read wrongly; all of it overshoots, since a changed face is read otherwise


def in_use(backbone: Backbone) -> Backbone:
    """The method as it is used on pictures: itself, unless its bundle's faces lie in the frame of a mesh."""
    if not backbone.draws_in_frame or backbone.bundle.frame is None or isinstance(backbone, InMeshFrame):
        return backbone
    framed = InMeshFrame(backbone).train(backbone.training)
    # A backbone notes its own arguments when it is built; what rebuilds this one are those of the method inside.
    framed.init_args = backbone.init_args
    return framed


class _Spot(NamedTuple):
    """Where faces are drawn.

    Args:
        image: `(B, 3, S, S)`, what stays around the faces.
        face: `(B, 3, side, side)`, what the frame shows of them, whose light may be kept.
        way: The way back from the frame.
    """

    image: Tensor
    face: Tensor
    way: WayBack


class InMeshFrame(Backbone):
    """Lays the face of each picture into the frame of its mesh, lets a method change it there, and puts it back.

    So pose, expression, hair and background are those of the picture, and the method needs to know none of them.
    Recovery finds the mesh anew: the anonymized picture and the key are all that it takes.

    It is no method of its own: class, arguments and keys are those of the method inside.

    Args:
        inner: Of a bundle with a `frame` and the mesh as its `landmarks`.
    """

    def __init__(self, inner: Backbone) -> None:
        super().__init__()
        assert inner.bundle.frame is not None
        inner.bundle.require("landmarks")
        self.inner = inner
        self.frame = inner.bundle.frame
        self.bundle = inner.bundle
        self.frame_options = inner.frame_options
        self.reversible = inner.reversible
        self.exact = inner.exact
        self.sealed = inner.sealed
        self.key_shape = inner.key_shape
        self.key_bits = inner.key_bits
        self.trained_by = inner.trained_by
        self.paper = inner.paper
        self.licence = inner.licence

    @property
    def method(self) -> str:
        """What the method inside is called."""
        return self.inner.method

    @property
    def key_label(self) -> str:
        """The stream of the method inside."""
        return self.inner.key_label

    @property
    def works_through_codes(self) -> bool:
        """Whether the method inside anonymizes by editing an identity code."""
        return self.inner.works_through_codes

    def sample_key(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Keys of the method inside."""
        return self.inner.sample_key(batch, generator)

    def key_of(self, secret: Secret) -> Tensor:
        """The key of the method inside."""
        return self.inner.key_of(secret)

    def encode(self, image: Tensor) -> Codes:
        """The codes of the faces of `(B, 3, S, S)`, and what `decode` needs to put others back."""
        face, mesh = self.cut(image)
        return replace(self.inner.encode(face), mesh=mesh, around=image)

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, with the method's own reading of what it drew."""
        face, mesh = self.cut(image)
        return replace(self.inner.encode_anonymized(face), mesh=mesh, around=image)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """That of the method inside."""
        return self.inner.transform(identity, key, inverse)

    def edit(self, codes: Codes, key: Tensor, inverse: bool = False) -> Codes:
        """That of the method inside."""
        return self.inner.edit(codes, key, inverse)

    def decode(self, codes: Codes) -> Tensor:
        """The pictures `(B, 3, S, S)` with the faces of codes in them."""
        return self._drawn(codes, self._spot_of(codes))

    def under_keys(self, image: Tensor, keys: Iterable[Tensor]) -> Iterator[tuple[Codes, Tensor]]:
        """The same faces edited under one key after the other: edited codes, and the pictures that `decode` draws.

        What does not hang on the key is found once.

        Args:
            image: `(B, 3, S, S)`.
            keys: `(B, *key_shape)` each.
        """
        codes = self.encode(image)
        spot = self._spot_of(codes)
        for key in keys:
            edited = self.edit(codes, key)
            yield edited, self._drawn(edited, spot)

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """Replace the person in `(B, 3, S, S)`."""
        face, mesh = self.cut(image)
        spot = self._spot(image, face, mesh)
        if not self.frame_options.corrections:
            return self._put(self.inner.anonymize(face, key), spot)
        return self._aimed(self.inner.edit(self.inner.encode(face), key), spot)

    def anonymize_as(self, image: Tensor, identity: Tensor, key: Tensor) -> Tensor:
        """`anonymize`, with given identity codes in place of each picture's own."""
        face, mesh = self.cut(image)
        spot = self._spot(image, face, mesh)
        if not self.frame_options.corrections:
            return self._put(self.inner.anonymize_as(face, identity, key), spot)
        codes = self.inner.encode(face).with_identity(identity)
        return self._aimed(self.inner.edit(codes, key), spot)

    def recover(self, image: Tensor, key: Tensor) -> Tensor:
        """Bring the person back from an anonymized `(B, 3, S, S)`.

        Raises:
            NotImplementedError: The method is not reversible.
        """
        face, mesh = self.cut(image)
        return self._put(self.inner.recover(face, key), self._spot(image, face, mesh))

    def _aimed(self, edited: Codes, spot: _Spot) -> Tensor:
        """Pictures of which a receiver reads edited codes better than of those that are drawn of them at once.

        Whoever anonymizes can do what the receiver will do: save the picture, find the mesh anew, read the code. What
        was read wrongly is added to the code that is drawn. The code that is meant stays the same.

        Args:
            edited: Codes that are to be read, of B faces.
            spot: Where the faces are drawn.
        """
        drawn = edited
        for _ in range(self.frame_options.corrections):
            saved = round_to_8_bit(self._put(self.inner.decode(drawn), spot))
            missed = edited.identity - self.encode_anonymized(saved).identity
            drawn = drawn.with_identity(drawn.identity + CORRECTED * missed)
        return self._put(self.inner.decode(drawn), spot)

    def cut(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The faces of pictures `(B, 3, S, S)` in the frame, of the same shape, and their meshes `(B, 468, 2)`."""
        mesh = self.bundle.landmarks(image)
        return self.frame.cut(image, mesh), mesh

    def _spot(self, image: Tensor, face: Tensor, mesh: Tensor) -> _Spot:
        return _Spot(image, face, self.frame.way(mesh, image.shape[-1]))

    def _spot_of(self, codes: Codes) -> _Spot:
        assert codes.around is not None
        assert codes.mesh is not None
        return self._spot(codes.around, self.frame.cut(codes.around, codes.mesh), codes.mesh)

    def _drawn(self, codes: Codes, spot: _Spot) -> Tensor:
        # The method inside gets back what its own `encode` gives; mesh and surroundings are this wrapper's.
        return self._put(self.inner.decode(replace(codes, mesh=None, around=None)), spot)

    def _put(self, drawn: Tensor, spot: _Spot) -> Tensor:
        # Beyond [-1, 1] the warp back would mix what no file can hold.
        face = drawn.clamp(-1, 1)
        return self.frame.put(self.lit(face, spot.face), spot.image, spot.way)
