"""The part of a method whose way back is a code beside the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from faceanon.sealed.faces import codes_of_cells, faces_of_cells

if TYPE_CHECKING:
    from faceanon.weights.bundle import Bundle


class Sealed:
    """What a method with codes beside its pictures can do; `Backbone` has it, switched off.

    Attributes:
        bundle: The pretrained networks the method stands on.
        sealed: Whether the way back is a code carried beside the picture, encrypted: `code_of` makes it and
            `recover_from` reads it, and `recover` refuses.
    """

    bundle: Bundle
    sealed: bool = False

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """As `Backbone.anonymize`."""
        raise NotImplementedError

    def anonymize_as(self, image: Tensor, identity: Tensor, key: Tensor) -> Tensor:
        """As `Backbone.anonymize_as`."""
        raise NotImplementedError

    def face_mask(self, image: Tensor) -> Tensor:
        """The cells of the bundle's codec in which `anonymize` changes any pixel of `image` `(B, 3, S, S)`.

        Only for sealed methods that use `code_of` and `recover_from` as they are here.

        Returns:
            `(B, 1, S / 8, S / 8)` bool.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say which cells it changes: define face_mask")

    def code_of(self, image: Tensor) -> list[bytes]:
        """What brings originals `(B, 3, S, S)` back, one code a face, not yet encrypted.

        Here it is the codec's latents of the cells of `face_mask`, rounded and entropy-coded. Whoever holds such a code
        sees the face.

        Raises:
            NotImplementedError: The method is not sealed.
        """
        self._need_sealed()
        return codes_of_cells(self.bundle.codec, image, self.face_mask(image))

    def anonymize_with_codes(self, image: Tensor, key: Tensor) -> tuple[Tensor, list[bytes]]:
        """`anonymize`, and of a sealed method the codes of the originals; a method may share work between the two."""
        drawn = self.anonymize(image, key)
        return drawn, self.code_of(image) if self.sealed else []

    def anonymize_as_with_codes(self, image: Tensor, identity: Tensor, key: Tensor) -> tuple[Tensor, list[bytes]]:
        """`anonymize_as`, and of a sealed method the codes of the originals; a method may share work between the two.

        Args:
            image: `(B, 3, S, S)`, frames of one clip.
            identity: `(B, ...)` codes, as of `anonymize_as`.
            key: `(B, *key_shape)`.

        Returns:
            `(B, 3, S, S)`, not clamped, and B codes, or none of a method that is not sealed.
        """
        drawn = self.anonymize_as(image, identity, key)
        return drawn, self.code_of(image) if self.sealed else []

    def deny(self, image: Tensor, key: Tensor) -> Tensor:
        """What a wrong key makes of anonymized `(B, 3, S, S)` where a sealed code does not open: another stranger.

        Whoever asks knows the first stranger alone, and not the person.

        Returns:
            As `anonymize`.

        Raises:
            NotImplementedError: The method is not sealed.
        """
        self._need_sealed()
        return self.anonymize(image, key)

    def recover_from(self, image: Tensor, codes: list[bytes]) -> Tensor:
        """Bring the persons back from anonymized `(B, 3, S, S)` and the codes of the originals; not clamped.

        Raises:
            NotImplementedError: The method is not sealed.
            UserError: A code is damaged, or of faces of another size.
        """
        self._need_sealed()
        return faces_of_cells(self.bundle.codec, image, codes)

    def _need_sealed(self) -> None:
        if not self.sealed:
            raise NotImplementedError(f"{type(self).__name__} carries no codes; use recover with the key")
