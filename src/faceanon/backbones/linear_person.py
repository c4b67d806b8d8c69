"""Persons drawn and read by linear maps: what iFADIT, the rotation and Mirage share on some bundles.

On a bundle whose w+ codes are numbers of principal components, as `photo128_prior`, four things bring a training near
its goal before it starts. None is in a paper:

- a person is the leading principal components of a recogniser's embedding (`components`), which pictures show best;
- the first numbers of the encoder's code, which hold light and skin, stay (`attributes_kept`), and nothing else of it
  is drawn, so that no person comes from there;
- a linear map of the identity code draws the person (`identity_draft`), and a network learns what it lacks;
- the identity of a saved picture is read off the encoder's code by a linear map, since such a code tells more of what
  was drawn than a recogniser does.

Components and draft are measured before stage 1, the reader before stage 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.errors import UserError
from faceanon.losses.structure import own_rows
from faceanon.networks.linear_identity import IdentityDraft, IdentityReader
from faceanon.networks.principal_components import PrincipalComponents
from faceanon.types import Codes, FaceBatch
from faceanon.weights.bundle import Bundle

READER_ROWS = 1500  # strangers on whom a reader is measured
DRAFT_BATCHES = 2000  # components and a draft take more pictures than a mean and a variance do


def check_above_zero(name: str, value: float) -> None:
    """Refuse a stretch or a strength that is none.

    Args:
        name: Of the option.
        value: Its value.

    Raises:
        UserError: It is not above 0.
    """
    if value <= 0:
        raise UserError(f"{name} is {value}; give a number above 0")


def check_degrees(name: str, degrees: float) -> None:
    """Refuse an angle by which no code can be turned.

    Args:
        name: Of the option.
        degrees: Its value.

    Raises:
        UserError: It is not between 0 and 180.
    """
    if not 0 < degrees < 180:
        raise UserError(f"{name} is {degrees}; give degrees between 0 and 180, more than 90 to leave the person behind")


def leading_components(length: int, components: int) -> PrincipalComponents:
    """The map from embeddings to some leading principal components; it knows nothing until it is fitted.

    Keys spread the error of every number that is read off a picture over all numbers, and the last components of an
    embedding are read badly.

    Args:
        length: Length E of an embedding.
        components: Even number K of components.

    Returns:
        `(B, E)` -> `(B, K)`.

    Raises:
        UserError: `components` is odd, not above 0 or more than there are.
    """
    if components % 2 or not 0 < components <= length:
        raise UserError(f"components is {components}; give an even number from 2 to {length}")
    return PrincipalComponents(length, components)


class LinearPerson:
    """The maps of a backbone, mixed into it before `Backbone` among the bases.

    The backbone sets `principal` and calls `add_linear_maps` in its constructor, and draws with `kept_numbers` and
    `identity_draft`.

    Attributes:
        bundle: The backbone's.
        encoder: The bundle's encoder of w+ codes.
        principal: Embedding of the bundle's recogniser -> identity code.
        attributes_kept: Numbers of a row of w+, from its beginning, that come from the attributes.
        identity_draft: Identity code -> row of w+.
        identity_reader: Row of w+ -> identity code.
    """

    bundle: Bundle
    encoder: Any
    principal: PrincipalComponents
    attributes_kept: int
    identity_draft: IdentityDraft
    identity_reader: IdentityReader
    calibration_batches: int = DRAFT_BATCHES
    reader_rows: int = READER_ROWS

    def add_linear_maps(self, dim: int, kept: int, draft: float) -> None:
        """Build draft and reader; they know nothing until they are measured.

        Args:
            dim: Length D of a row of w+.
            kept: Numbers of a row, from its beginning, that come from the attributes.
            draft: What the differences of the draft to its mean are multiplied by.

        Raises:
            UserError: A number is out of range.
        """
        if not 0 <= kept < dim:
            raise UserError(f"attributes_kept is {kept}; give a number from 0 to {dim - 1}")
        check_above_zero("identity_draft", draft)
        self.attributes_kept = kept
        self.identity_draft = IdentityDraft(self.principal.outputs, dim, kept, draft)
        self.identity_reader = IdentityReader(dim, self.principal.outputs, kept)

    def identity_of(self, embedding: Tensor) -> Tensor:
        """The identity code `(B, K)` of embeddings `(B, E)` of the bundle's recogniser, which have unit length.

        Over many faces its entries have mean 0 and variance 1, and no two of them go together.
        """
        code: Tensor = self.principal(embedding)
        return code

    def encoder_code(self, image: Tensor, latents: Tensor | None) -> Tensor:
        """The encoder's code `(B, L, D)` of pictures, less the mean code; of the latents where they are at hand."""
        if latents is not None and self.encoder.has_codec:
            image = latents
        code: Tensor = self.encoder.with_features(image)[0]
        return code

    def kept_numbers(self, attributes: Tensor) -> Tensor:
        """`(B, L, D)` with the first numbers of every row, and 0 in place of the others."""
        kept = attributes[..., : self.attributes_kept]
        return F.pad(kept, (0, attributes.shape[-1] - self.attributes_kept))

    def calibrate(self, batches: Iterable[FaceBatch]) -> None:
        """Measure principal components and draft."""
        self.fit_draft(batches)

    @torch.no_grad()
    def fit_draft(self, batches: Iterable[FaceBatch]) -> Tensor:
        """As `calibrate`; gives the identity codes `(N, K)` of the faces."""
        embeddings = []
        codes = []
        for batch in batches:
            embedding = batch.embedding
            # One of another picture of the person tells less of how this one was taken.
            if embedding is None:
                embedding = self.bundle.recogniser(batch.image)
            embeddings.append(embedding)
            # The draft is the same in all rows, as is the first row of the encoder's code.
            codes.append(self.encoder_code(batch.image, batch.latents)[:, 0])
        embedding = torch.cat(embeddings)
        self.principal.fit(embedding)
        identity = self.identity_of(embedding)
        self.identity_draft.fit(identity, torch.cat(codes))
        return identity

    @torch.no_grad()
    def calibrate_reader(self, pairs: Iterable[tuple[Codes, Tensor]]) -> None:
        """Measure the linear map from the encoder's code of a saved picture to the identity that it was drawn from."""
        read = []
        drawn = []
        for codes, saved in pairs:
            read.append(self.encoder_code(saved, None)[:, 0])
            drawn.append(codes.identity)
        self.identity_reader.fit(torch.cat(read), torch.cat(drawn))

    def disentangle_terms(
        self, batch: FaceBatch, codes: Codes, drawn: Tensor, source: Tensor, wanted: Collection[str]
    ) -> dict[str, Tensor]:
        """Stage 1's terms of what was drawn from known identity codes, those of `wanted` alone.

        `image` is 0.84 (1 - SSIM) + 0.16 L1 over the rows that keep their own person; of the others no picture shows
        what they should be. `drawn_code` is 1 - cos between the identity code of what
        was drawn and the one that it was drawn from, which may be what a key made of a person's.

        Args:
            batch: The attribute sources.
            codes: Theirs, with the identity codes that were drawn.
            drawn: `(B, 3, S, S)`.
            source: `(B,)` row of every identity source.
            wanted: Names of terms.
        """
        terms: dict[str, Tensor] = {}
        if "image" in wanted:
            terms["image"] = own_rows(batch.image, drawn, source)
        if "drawn_code" in wanted:
            shown = self.identity_of(self.bundle.recogniser(drawn))
            terms["drawn_code"] = (1 - F.cosine_similarity(shown, codes.identity.detach())).mean()
        return terms
