"""The part of a method that the stages ask for when they train it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from faceanon.types import Branches, Codes, FaceBatch

if TYPE_CHECKING:
    from faceanon.weights.bundle import Bundle


class Trainable:
    """What a training asks of a method; `Backbone` has it, with defaults for all of it.

    Attributes:
        bundle: The pretrained networks the method stands on.
        trained_by: Names of the stages that train it; empty for a method that needs no training.
        trains_on_pictures: Whether `drawn_view` gives pictures, so that the stages' own terms apply. A method that
            trains on latents brings its terms itself.
        calibration_batches: Training batches that `calibrate` gets at most.
        reader_rows: Strangers that `calibrate_reader` wants; 0 where a method has nothing to measure there.
        stage_arguments: Names of arguments that a later stage may set anew, since no weight depends on them.
        latent_terms: Names of its own terms that need no pictures of the stage's where latents are compared.
        terms_of_one_key: Names of its own terms that compare strangers under one key: where one is wanted, all rows of
            a batch have the same second key.
    """

    bundle: Bundle
    trained_by: tuple[str, ...] = ("DisentangleStage", "AnonymizeStage")
    trains_on_pictures: bool = True
    calibration_batches: int = 100
    reader_rows: int = 0
    stage_arguments: frozenset[str] = frozenset()
    latent_terms: frozenset[str] = frozenset()
    terms_of_one_key: frozenset[str] = frozenset()

    def encode(self, image: Tensor) -> Codes:
        """As `Backbone.encode`."""
        raise NotImplementedError

    def decode(self, codes: Codes) -> Tensor:
        """As `Backbone.decode`."""
        raise NotImplementedError

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

    def drawn_before(self, image: Tensor, edited: Sequence[Codes]) -> Tensor:
        """What stage 2's anchors ask for, called on the method of before the stage.

        Args:
            image: `(B, 3, S, S)`, the originals.
            edited: Codes of strangers that the method in training made of them, each of a multiple of B rows. Their
                identities are that method's, all else is this one's: how a face is drawn is held.

        Returns:
            As `drawn_view`, of all strangers.
        """
        identity = torch.cat([codes.identity.detach() for codes in edited])
        times = len(identity) // len(image)
        codes = self.encode(image).map(lambda item: item.repeat(times, *[1] * (item.ndim - 1)))
        return self.drawn_view(codes.with_identity(identity))

    def w_plus(self, codes: Codes) -> Tensor | None:
        """The W+ codes `(B, L, D)` that `decode` draws, for latent regularisers; None where there are none."""
        return None

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
