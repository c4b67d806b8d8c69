"""The contract that every anonymization method fulfils."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from faceanon.backbones.frame_options import AS_DRAWN, FrameOptions
from faceanon.key import Secret
from faceanon.sealed.faces import codes_of_cells, faces_of_cells
from faceanon.types import Branches, Codes, FaceBatch

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
        exact: Whether it does so to the last bit of an 8-bit picture, or, for a method with codes, whether
            `transform(..., inverse=True)` undoes `transform` up to rounding; both whatever the weights.
        sealed: Whether the way back is a code carried beside the picture, encrypted: `code_of` makes it and
            `recover_from` reads it, and `recover` refuses.
        trains_on_pictures: Whether `drawn_view` gives pictures, so that the stages' own terms apply. A method that
            trains on latents brings its terms itself.
        draws_in_frame: Whether it is used in the frame of a bundle that has one, where the bundle's generator draws; a
            method that needs what lies around a face is not.
        key_shape: Shape of one key, without the batch.
        key_bits: Size of the key space in bits, at most the 256 of a `Secret`; None for a method that takes no key.
        trained_by: Names of the stages that train it; empty for a method that needs no training.
        paper: Authors, title, where and when; what `faceanon backbones` shows.
        licence: Terms of the paper's own code and weights, neither of which is used here.
        calibration_batches: Training batches that `calibrate` gets at most.
        reader_rows: Strangers that `calibrate_reader` wants; 0 where a method has nothing to measure there.
        frame_options: How its faces are put back where they are drawn in the frame of a mesh. A stage sets them, and a
            saved model brings its own.
        stage_arguments: Names of arguments that a later stage may set anew, since no weight depends on them.
        latent_terms: Names of its own terms that need no pictures of the stage's where latents are compared.
        terms_of_one_key: Names of its own terms that compare strangers under one key: where one is wanted, all rows of
            a batch have the same second key.

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
    calibration_batches: int = 100
    reader_rows: int = 0
    frame_options: FrameOptions = AS_DRAWN
    stage_arguments: frozenset[str] = frozenset()
    latent_terms: frozenset[str] = frozenset()
    terms_of_one_key: frozenset[str] = frozenset({"pseudonym"})
    exact: bool = False
    sealed: bool = False
    trains_on_pictures: bool = True
    draws_in_frame: bool = True
    key_shape: tuple[int, ...]
    key_bits: int | None = 256
    trained_by: tuple[str, ...] = ("DisentangleStage", "AnonymizeStage")
    paper: str = ""
    licence: str = ""
    bundle: Bundle
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

    def encode_batch(self, batch: FaceBatch) -> Codes:
        """As `encode`, of a training batch; a method for prepared batches takes what they already hold."""
        return self.encode(batch.image)

    def mixed_identity(self, codes: Codes, source: Tensor) -> Tensor:
        """Identity codes with which stage 1 draws the rows of a batch.

        Args:
            codes: Of the batch, `(B, ...)`.
            source: `(B,)` row of every identity source.
        """
        return codes.identity[source]

    def drawn_latents(self, codes: Codes) -> Tensor | None:
        """The codec's latents `(B, C, h, h)` of which `decode` makes its pictures; None where it draws pictures."""
        return None

    def drawn_view(self, codes: Codes) -> Tensor:
        """What the stages' discriminator looks at, of drawn faces: pictures, or for some methods latents."""
        return self.decode(codes)

    def original_view(self, batch: FaceBatch, codes: Codes) -> Tensor:
        """The same of the photographs of a batch, whose codes are at hand."""
        return batch.image

    def new_discriminator(self) -> nn.Module:
        """A new discriminator for the stages: the bundle's, unless the method draws something else than pictures."""
        return self.bundle.discriminator()

    def build_readers(self) -> nn.ModuleDict:
        """New networks that a stage trains along, on what this method draws; most methods have none."""
        return nn.ModuleDict()

    def use_readers(self, readers: nn.ModuleDict) -> None:
        """Take the stage's readers, for the method's own terms; they are no part of the method."""
        # Past nn.Module.__setattr__, so that they are not saved with the method.
        self.__dict__["readers"] = readers

    def reader_terms(self, batch: FaceBatch, codes: Codes, drawn: Tensor) -> dict[str, Tensor]:
        """What the readers learn from, by name and weighted.

        Args:
            batch: The photographs, B rows.
            codes: Of the photographs.
            drawn: What `drawn_view` made of them, a multiple of B rows.
        """
        return {}

    def w_plus(self, codes: Codes) -> Tensor | None:
        """The W+ codes `(B, L, D)` that `decode` draws, for latent regularisers; None where there are none."""
        return None

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

    def disentangle_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, source: Tensor, wanted: Collection[str]
    ) -> dict[str, Tensor]:
        """Stage 1's terms of this method alone, unweighted: those of `wanted` that it knows.

        Args:
            batch: The attribute sources.
            codes: Theirs, with the identity codes that `mixed_identity` made of the identity sources'.
            drawn: `(B, 3, S, S)`, the faces of the identity sources with these attributes; what stage 1 trains.
            source: `(B,)` row of every identity source.
            wanted: Names in the stage's `extra_weights`.
        """
        return {}

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """As `disentangle_terms`, for stage 2 and its five pictures a face."""
        return {}

    def calibrate(self, batches: Iterable[FaceBatch]) -> None:
        """Measure statistics of the training faces once, before stage 1 starts."""

    def calibrate_reader(self, pairs: Iterable[tuple[Codes, Tensor]]) -> None:
        """Measure once, before stage 2 starts, how codes are read off saved pictures.

        Args:
            pairs: Edited codes of some faces, and the pictures `(B, 3, S, S)` that were drawn of them, as `recover`
                gets them.
        """
