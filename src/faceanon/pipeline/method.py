"""A backbone of torch as a method on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from faceanon.key import Secret
from faceanon.persona.cells import Array
from faceanon.persona.method import ArrayMethod

# A pipeline without torch must not import it.
if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from faceanon.backbones.base import Backbone


class TorchMethod(ArrayMethod):
    """A backbone as an `ArrayMethod`.

    Args:
        backbone: It is moved to the device, into eval mode.
        device: Where it runs.
        name: Of the model.
        weights: SHA-256 of its weights; hashed here when None.
    """

    def __init__(
        self, backbone: Backbone, device: torch.device | str, name: str = "unnamed", weights: str | None = None
    ) -> None:
        import torch

        from faceanon.files import state_sha256

        self.torch = torch
        self.device = torch.device(device)
        self.backbone = backbone.to(self.device).eval()
        if (bundle := getattr(backbone, "bundle", None)) is not None:
            # Frozen networks lie outside the module tree.
            bundle.to(self.device)
        self.name = name
        self.weights = weights or state_sha256(backbone)
        self.method = backbone.method
        self.sealed = backbone.sealed
        self.reversible = backbone.reversible
        self.on_processor = self.device.type == "cpu"
        self.works_through_codes = backbone.works_through_codes
        self.image_size = backbone.image_size
        self.face_sizes = backbone.face_sizes
        # A method without a bundle has none.
        self.framing = getattr(backbone, "framing", {"scale": 1.0, "right": 0.0, "down": 0.0})

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
        """As in the base, like all of these."""
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
