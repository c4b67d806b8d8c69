"""What a pipeline asks of a method, on arrays: `persona.use` is one, `TorchMethod` makes one of a backbone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from faceanon.key import Secret

# A pipeline without torch must not import it.
if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from faceanon.backbones.base import Backbone

Array = NDArray[Any]


class ArrayMethod(Protocol):
    """A method on arrays of float32; pictures are `(B, 3, S, S)` in [-1, 1], results are not clamped.

    Attributes:
        method: Its class, for manifests.
        sealed: Whether its way back is a code beside the picture.
        reversible: Whether there is a way back.
        on_processor: Whether it computes on the processor, where other threads take cores from it.
        works_through_codes: Whether a clip's frames can share one identity code.
        image_size: Side of the faces that it is made for, in pixels.
        face_sizes: Sides of all the faces that it takes, rising.
        framing: Where the faces it knows lie; arguments of `photo.align.reframed`.
    """

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
        ...

    def key(self, secret: Secret) -> Array:
        """The key of a password, `(*key_shape)`."""
        ...

    def anonymize(self, image: Array, keys: Array) -> Array:
        """Other people in the place of these; NaN where it can draw nobody."""
        ...

    def anonymize_with_codes(self, image: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """As `anonymize`, of a sealed method with the codes of the originals."""
        ...

    def deny(self, image: Array, keys: Array) -> Array:
        """Of a sealed method: other strangers for anonymized pictures."""
        ...

    def recover(self, image: Array, keys: Array) -> Array:
        """Of any other: the persons, under the right keys."""
        ...

    def code_of(self, image: Array) -> list[bytes]:
        """Of a sealed method: the codes of originals, not yet encrypted."""
        ...

    def recover_from(self, image: Array, codes: Sequence[bytes]) -> Array:
        """Of a sealed method: the persons, from the codes."""
        ...

    def identities(self, image: Array, inverse: bool = False) -> Array | None:
        """Identity codes `(B, ...)`, with `inverse` of anonymized faces; None where they hold pose and light too."""
        ...

    def unlike(self, image: Array, identity: Array, key: Array) -> Array:
        """A code from which a key gets a stranger unlike the person in all of some frames."""
        ...

    def anonymize_as(self, image: Array, identity: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """Frames with the strangers of identity codes, of a sealed method with the codes of the originals."""
        ...

    def recover_as(self, image: Array, identity: Array, keys: Array) -> Array:
        """Of a method that is not sealed: frames with the persons of strangers' identity codes."""
        ...


class TorchMethod:
    """A backbone as a `ArrayMethod`.

    Args:
        backbone: It is moved to the device, into eval mode.
        device: Where it runs.
    """

    def __init__(self, backbone: Backbone, device: torch.device | str) -> None:
        import torch

        self.torch = torch
        self.device = torch.device(device)
        self.backbone = backbone.to(self.device).eval()
        if (bundle := getattr(backbone, "bundle", None)) is not None:
            # Frozen networks lie outside the module tree.
            bundle.to(self.device)
        self.method = backbone.method
        self.sealed = backbone.sealed
        self.reversible = backbone.reversible
        self.on_processor = self.device.type == "cpu"
        self.works_through_codes = backbone.works_through_codes
        self.image_size = backbone.image_size
        self.face_sizes = backbone.face_sizes
        self.framing = backbone.framing

    def prepare(self, inverse: bool) -> None:
        """Nothing: a backbone has its networks."""

    def key(self, secret: Secret) -> Array:
        """The key of a password."""
        return self.backbone.key_from_secret(secret, 1)[0].cpu().numpy()

    def _run(self, function: Callable[..., Any], *rows: Array) -> Any:  # noqa: ANN401 - what the function gives
        """A function of the backbone on tensors of some rows; its tensors come back as arrays."""
        with self.torch.inference_mode():
            given = [self.torch.from_numpy(np.ascontiguousarray(part)).to(self.device) for part in rows]
            result = function(*given)
        if isinstance(result, tuple):
            return _array(result[0]), result[1]
        return _array(result) if isinstance(result, self.torch.Tensor) else result

    def anonymize(self, image: Array, keys: Array) -> Array:
        """As `ArrayMethod` says, like all of these."""
        found: Array = self._run(self.backbone.anonymize, image, keys)
        return found

    def anonymize_with_codes(self, image: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """Other people, and the codes of the originals."""
        found: tuple[Array, list[bytes]] = self._run(self.backbone.anonymize_with_codes, image, keys)
        return found

    def deny(self, image: Array, keys: Array) -> Array:
        """Other strangers."""
        found: Array = self._run(self.backbone.deny, image, keys)
        return found

    def recover(self, image: Array, keys: Array) -> Array:
        """The persons, under the right keys."""
        found: Array = self._run(self.backbone.recover, image, keys)
        return found

    def code_of(self, image: Array) -> list[bytes]:
        """The codes of originals."""
        found: list[bytes] = self._run(self.backbone.code_of, image)
        return found

    def recover_from(self, image: Array, codes: Sequence[bytes]) -> Array:
        """The persons, from the codes."""
        found: Array = self._run(lambda faces: self.backbone.recover_from(faces, list(codes)), image)
        return found

    def identities(self, image: Array, inverse: bool = False) -> Array | None:
        """Identity codes; None where the codes do not keep the attributes apart (RiDDLE, FIT)."""
        encode = self.backbone.encode_anonymized if inverse else self.backbone.encode

        def identities(faces: Tensor) -> Tensor | None:
            codes = encode(faces)
            return None if codes.attributes is None else codes.identity

        found: Array | None = self._run(identities, image)
        return found

    def unlike(self, image: Array, identity: Array, key: Array) -> Array:
        """A code whose stranger is unlike the person in all of some frames."""
        found: Array = self._run(self.backbone.unlike, image, identity, key[None])
        return found

    def anonymize_as(self, image: Array, identity: Array, keys: Array) -> tuple[Array, list[bytes]]:
        """Frames with the strangers of identity codes."""
        found: tuple[Array, list[bytes]] = self._run(self.backbone.anonymize_as_with_codes, image, identity, keys)
        return found

    def recover_as(self, image: Array, identity: Array, keys: Array) -> Array:
        """Frames with the persons of strangers' identity codes."""

        def recover(faces: Tensor, codes: Tensor, key: Tensor) -> Tensor:
            backbone = self.backbone
            seen = backbone.encode_anonymized(faces).with_identity(codes)
            return backbone.decode(backbone.edit(seen, key, inverse=True))

        found: Array = self._run(recover, image, identity, keys)
        return found


def _array(rows: Tensor) -> Array:
    return rows.float().cpu().numpy()
