"""What a pipeline asks of a method, on arrays: `persona.use` is one, `pipeline.method` makes others of backbones."""

from __future__ import annotations

from collections.abc import Sequence

from faceanon.key import Secret
from faceanon.persona.cells import Array


class ArrayMethod:
    """A method on arrays of float32; pictures are `(B, 3, S, S)` in [-1, 1], results are not clamped.

    A kind leaves out what it is never asked for.

    Attributes:
        name: Of the model, for people.
        weights: SHA-256 of its weights, 64 hex digits.
        method: Its class, for manifests.
        sealed: Whether its way back is a code beside the picture.
        reversible: Whether there is a way back.
        on_processor: Whether it computes on the processor, where other threads take cores from it.
        works_through_codes: Whether a clip's frames can share one identity code.
        image_size: Side of the faces that it is made for, in pixels.
        face_sizes: Sides of all the faces that it takes, rising.
        framing: Where the faces it knows lie; arguments of `photo.align.reframed`.
    """

    name: str
    weights: str
    method: str
    sealed: bool
    reversible: bool
    on_processor: bool
    works_through_codes: bool
    image_size: int
    face_sizes: tuple[int, ...]
    framing: dict[str, float]

    def prepare(self, inverse: bool) -> None:
        """Begin to open what anonymizing or, with `inverse`, recovering will need."""

    def key(self, secret: Secret) -> Array:
        """The key of a password, `(*key_shape)`."""
        raise NotImplementedError

    def anonymize(self, image: Array, keys: Array) -> Array:
        """Other people in the place of these; NaN where it can draw nobody."""
        raise NotImplementedError

    def anonymize_with_codes(self, image: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """As `anonymize`, of a sealed method with the codes of the originals."""
        return self.anonymize(image, keys), []

    def deny(self, image: Array, keys: Array) -> Array:
        """Of a sealed method: other strangers for anonymized pictures."""
        raise NotImplementedError

    def recover(self, image: Array, keys: Array) -> Array:
        """Of any other: the persons, under the right keys."""
        raise NotImplementedError

    def code_of(self, image: Array) -> list[bytes]:
        """Of a sealed method: the codes of originals, not yet encrypted."""
        raise NotImplementedError

    def recover_from(self, image: Array, codes: Sequence[bytes]) -> Array:
        """Of a sealed method: the persons, from the codes."""
        raise NotImplementedError

    def identities(self, image: Array, inverse: bool = False) -> Array | None:
        """Identity codes `(B, ...)`, with `inverse` of anonymized faces; None where they hold pose and light too."""
        return None

    def unlike(self, image: Array, identity: Array, key: Array) -> Array:
        """A code from which a key gets a stranger unlike the person in all of some frames."""
        raise NotImplementedError

    def anonymize_as(self, image: Array, identity: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """Frames with the strangers of identity codes, of a sealed method with the codes of the originals."""
        raise NotImplementedError

    def recover_as(self, image: Array, identity: Array, keys: Array) -> Array:
        """Of a method that is not sealed: frames with the persons of strangers' identity codes."""
        raise NotImplementedError
