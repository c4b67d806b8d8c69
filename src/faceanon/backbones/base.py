"""The contract that every anonymization method fulfils."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from faceanon.key import Secret
from faceanon.types import Codes, FaceBatch

if TYPE_CHECKING:
    from faceanon.weights.bundle import Bundle


class Backbone(nn.Module, ABC):
    """Map an aligned face and a key to the face of somebody else, and back with the same key.

    Images are `(B, 3, S, S)` float in [-1, 1], S = `image_size`. A method without disentanglement overrides
    `anonymize` and `recover` alone.

    Attributes:
        bundle: The pretrained networks the method stands on.
        init_args: The constructor's arguments, as given or by default; plain values.
        reversible: Whether `recover` brings the original back.
        key_shape: Shape of one key, without the batch.
    """

    reversible: bool = True
    key_shape: tuple[int, ...]
    bundle: Bundle
    init_args: dict[str, Any]

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Remember constructor arguments, so that a trained backbone can be saved with what rebuilds it."""
        super().__init_subclass__(**kwargs)
        original = cls.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def remembering(self: Backbone, *args: object, **arguments: object) -> None:
            bound = signature.bind(self, *args, **arguments)
            bound.apply_defaults()
            original(self, *args, **arguments)
            if type(self) is cls:
                self.init_args = {name: value for name, value in list(bound.arguments.items())[1:]}

        cls.__init__ = remembering  # type: ignore[assignment, method-assign]

    @property
    def image_size(self) -> int:
        """Side S of the images, in pixels."""
        return self.bundle.image_size

    @abstractmethod
    def encode(self, image: Tensor) -> Codes:
        """Split `(B, 3, S, S)` into identity and attributes."""

    @abstractmethod
    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Edit the identity code under `key` `(B, *key_shape)`; `inverse` undoes it."""

    @abstractmethod
    def decode(self, codes: Codes) -> Tensor:
        """Draw the face of `codes`: `(B, 3, S, S)`, nominally in [-1, 1] and not clamped."""

    def edit(self, codes: Codes, key: Tensor, inverse: bool = False) -> Codes:
        """The codes of somebody else, or with `inverse` of the person behind them."""
        return codes.with_identity(self.transform(codes.identity, key, inverse))

    def encode_anonymized(self, image: Tensor) -> Codes:
        """Codes of a picture that this method drew; a method may read its own drawings with another network."""
        return self.encode(image)

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """Replace the person in `(B, 3, S, S)`; not clamped."""
        return self.decode(self.edit(self.encode(image), key))

    def recover(self, image: Tensor, key: Tensor) -> Tensor:
        """Bring the person back from an anonymized `(B, 3, S, S)`; not clamped."""
        return self.decode(self.edit(self.encode_anonymized(image), key, inverse=True))

    def w_plus(self, codes: Codes) -> Tensor | None:
        """The W+ codes `(B, L, D)` that `decode` draws, for latent regularisers; None where there are none."""
        return None

    def sample_key(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Random keys `(batch, *key_shape)`, drawn on the CPU from the same distribution as `key_from_secret`."""
        return torch.randn(batch, *self.key_shape, generator=generator)

    def key_from_secret(self, secret: Secret, batch: int) -> Tensor:
        """The key of a password, `(batch, *key_shape)`: one key repeated, so one person stays one stranger."""
        key = secret.normal(f"faceanon/{type(self).__name__}/key", self.key_shape)
        return torch.from_numpy(key).expand(batch, *self.key_shape).clone()

    def calibrate(self, batches: Iterable[FaceBatch]) -> None:
        """Measure statistics of the training faces once, before stage 1 starts."""
