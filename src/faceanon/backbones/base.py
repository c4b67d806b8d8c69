"""The contract that every anonymization method fulfils."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from faceanon.backbones.frame_options import AS_DRAWN, FrameOptions
from faceanon.backbones.sealed import Sealed
from faceanon.backbones.trainable import Trainable
from faceanon.key import Secret
from faceanon.types import Codes


class Backbone(Trainable, Sealed, nn.Module, ABC):
    """Map an aligned face and a key to the face of somebody else, and back with the same key.

    Images are `(B, 3, S, S)` float in [-1, 1], S = `image_size`. A method without disentanglement overrides
    `anonymize` and `recover` alone. What a training asks for is in `Trainable`, and codes that travel beside a picture
    are in `Sealed`; both have defaults for all of it.

    Attributes:
        bundle: The pretrained networks the method stands on.
        init_args: The constructor's arguments, as given or by default; plain values.
        reversible: Whether `recover` brings the original back.
        exact: Whether it does so to the last bit of an 8-bit picture, or, for a method with codes, whether
            `transform(..., inverse=True)` undoes `transform` up to rounding; both whatever the weights.
        draws_in_frame: Whether it is used in the frame of a bundle that has one, where the bundle's generator draws; a
            method that needs what lies around a face is not.
        key_shape: Shape of one key, without the batch.
        key_bits: Size of the key space in bits, at most the 256 of a `Secret`; None for a method that takes no key.
        paper: Authors, title, where and when; what `faceanon backbones` shows.
        licence: Terms of the paper's own code and weights, neither of which is used here.
        frame_options: How its faces are put back where they are drawn in the frame of a mesh. A stage sets them, and a
            saved model brings its own.

    Examples:
        A method without codes overrides `anonymize` and `recover` alone. This one is no good: everybody can undo it.

        >>> import torch
        >>> from faceanon.backbones.pictures import WithoutCodes
        >>> from faceanon.weights.bundle import Bundle
        >>> class Negative(WithoutCodes):
        ...     exact = True
        ...     key_shape = (1,)
        ...     key_bits = None
        ...     trained_by = ()
        ...     def __init__(self, bundle: str = "photo128_prior") -> None:
        ...         super().__init__()
        ...         self.bundle = Bundle(bundle)
        ...     def anonymize(self, image, key):
        ...         return -image
        ...     def recover(self, image, key):
        ...         return -image
        >>> method = Negative()
        >>> face = torch.rand(1, 3, 64, 64)
        >>> key = method.sample_key(1)
        >>> torch.equal(method.recover(method.anonymize(face, key), key), face)
        True
    """

    reversible: bool = True
    frame_options: FrameOptions = AS_DRAWN
    exact: bool = False
    draws_in_frame: bool = True
    key_shape: tuple[int, ...]
    key_bits: int | None = 256
    paper: str = ""
    licence: str = ""
    init_args: dict[str, Any]

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Remember constructor arguments, so that a trained backbone can be saved with what rebuilds it."""
        super().__init_subclass__(**kwargs)
        # A class without a constructor of its own is wrapped as well: the inherited one notes arguments for its class
        # alone.
        original = cls.__init__
        signature = inspect.signature(original)

        # With the signature of the original: configs are parsed by the names and types of its arguments.
        @functools.wraps(original)
        def remembering(self: Backbone, *args: object, **arguments: object) -> None:
            bound = signature.bind(self, *args, **arguments)
            # Defaults too: a later release may have others, and a saved model must stay what it is.
            bound.apply_defaults()
            original(self, *args, **arguments)
            # A subclass's constructor calls this one as well, and only its own arguments rebuild it.
            if type(self) is cls:
                # The first bound argument is `self`.
                self.init_args = {name: value for name, value in list(bound.arguments.items())[1:]}

        cls.__init__ = remembering  # type: ignore[assignment, method-assign]

    @property
    def method(self) -> str:
        """Import path of the method's class: what manifests name."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @property
    def settings(self) -> dict[str, Any]:
        """What results depend on beside weights: arguments but for the bundle's name, and any options of the frame."""
        given = {}
        for name, value in self.init_args.items():
            # The same networks may lie elsewhere.
            if name != "bundle":
                given[name] = value
        if self.frame_options != AS_DRAWN:
            given["frame"] = asdict(self.frame_options)
        return given

    @property
    def image_size(self) -> int:
        """Side S of the images, in pixels."""
        return self.bundle.image_size

    @property
    def face_sizes(self) -> tuple[int, ...]:
        """Sides in pixels that its pictures may have, rising; the last one is `image_size`.

        A method with several takes each face at the size that fits how large it is in a photo.
        """
        return (self.image_size,)

    @property
    def framing(self) -> dict[str, float]:
        """Where the faces it knows lie, against FFHQ's square; arguments of `photo.align.reframed`."""
        return self.bundle.framing

    @abstractmethod
    def encode(self, image: Tensor) -> Codes:
        """Split `(B, 3, S, S)` into identity and attributes."""

    @abstractmethod
    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Edit the identity code under `key` `(B, *key_shape)`; `inverse` undoes it."""

    @abstractmethod
    def decode(self, codes: Codes) -> Tensor:
        """Draw the face of `codes`: `(B, 3, S, S)`, nominally in [-1, 1] and not clamped."""

    def lit(self, face: Tensor, like: Tensor) -> Tensor:
        """Drawn faces as they are put back: with `keep_light`, in the light of those that they take the place of.

        Args:
            face: `(B, 3, S, S)` in the bundle's frame.
            like: `(B, 3, S, S)`, what the pictures show there.
        """
        frame = self.bundle.frame
        light = self.frame_options.keep_light
        if frame is None or not light:
            return face
        return frame.in_light_of(face, like, light)

    @property
    def recovers_from_pictures(self) -> bool:
        """Whether the anonymized picture and the key alone bring the person back; a sealed code is not needed."""
        return self.reversible and not self.sealed

    def edit(self, codes: Codes, key: Tensor, inverse: bool = False) -> Codes:
        """The codes of somebody else, or with `inverse` of the person behind them."""
        return codes.with_identity(self.transform(codes.identity, key, inverse))

    def encode_anonymized(self, image: Tensor) -> Codes:
        """Codes of a picture that this method drew; a method may read its own drawings with another network."""
        return self.encode(image)

    def anonymize(self, image: Tensor, key: Tensor) -> Tensor:
        """Replace the person in `(B, 3, S, S)`; not clamped."""
        return self.decode(self.edit(self.encode(image), key))

    def anonymize_as(self, image: Tensor, identity: Tensor, key: Tensor) -> Tensor:
        """`anonymize`, with the identity code of a whole clip instead of each picture's own.

        Args:
            image: `(B, 3, S, S)`, frames of one clip.
            identity: `(B, ...)` codes, each the mean over the frames of its person.
            key: `(B, *key_shape)`.

        Returns:
            `(B, 3, S, S)`, not clamped.
        """
        return self.decode(self.edit(self.encode(image).with_identity(identity), key))

    def unlike(self, image: Tensor, identity: Tensor, key: Tensor) -> Tensor:
        """An identity code of whose stranger a method has made sure that it does not look like the person.

        Args:
            image: `(B, 3, S, S)`, some frames of the person.
            identity: `(...)`, the mean of the person's codes.
            key: `(1, *key_shape)`.

        Returns:
            A code like `identity`. Here it is `identity` itself: nothing is checked.
        """
        return identity

    @property
    def works_through_codes(self) -> bool:
        """Whether the method anonymizes by editing an identity code, so that a clip can have one code a person."""
        # A method with an `anonymize` of its own may edit no code, unless it says how one is given.
        own = type(self)
        return own.anonymize is Backbone.anonymize or own.anonymize_as is not Backbone.anonymize_as

    def recover(self, image: Tensor, key: Tensor) -> Tensor:
        """Bring the person back from an anonymized `(B, 3, S, S)`; not clamped.

        Raises:
            NotImplementedError: The method is not reversible, or its way back is a code beside the picture.
        """
        if not self.reversible:
            raise NotImplementedError(f"{type(self).__name__} cannot be undone")
        if self.sealed:
            raise NotImplementedError(
                f"{type(self).__name__}'s pictures do not show what recovery needs; use recover_from with the codes "
                "that code_of gave for the originals"
            )
        return self.decode(self.edit(self.encode_anonymized(image), key, inverse=True))

    def sample_key(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Random keys `(batch, *key_shape)`, drawn on the CPU from the same distribution as `key_from_secret`."""
        return torch.randn(batch, *self.key_shape, generator=generator)

    def key_from_secret(self, secret: Secret, batch: int) -> Tensor:
        """The key of a password, `(batch, *key_shape)`: one key repeated, so one person stays one stranger.

        Examples:
            >>> from faceanon.backbones.fit import FIT
            >>> from faceanon.key import Secret
            >>> method = FIT(password_bits=16)
            >>> keys = method.key_from_secret(Secret.random(0), batch=3)
            >>> keys.shape, bool((keys[0] == keys[1]).all())
            (torch.Size([3, 16]), True)
        """
        # A copy, since rows of `expand` share one memory that a caller may write to.
        return self.key_of(secret).expand(batch, *self.key_shape).clone()

    def key_of(self, secret: Secret) -> Tensor:
        """One key of a password, `(*key_shape)`; of the same distribution as `sample_key`'s."""
        return torch.from_numpy(secret.normal(self.key_label, self.key_shape))

    @property
    def key_label(self) -> str:
        """The stream of a `Secret` from which this method's keys are drawn."""
        # By the class: one password gives each method a key that tells nothing of the others'.
        return f"faceanon/{type(self).__name__}/key"
