"""Persons drawn and read by linear maps: what iFADIT, the rotation, DBAF keyed and Mirage share on some bundles.

On a bundle whose w+ codes are numbers of principal components, as `photo128_prior`, three things bring a training near
its goal before it starts. Each is off by default, and none is in a paper:

- the first numbers of the encoder's code, which hold light and skin, stay (`attributes_kept`), and nothing else of it
  is drawn, so that no person comes from there;
- a linear map of the identity code draws the person (`identity_draft`), and a network learns what it lacks;
- the identity of a saved picture is read off the encoder's code by a linear map (`identity_reader`), since such a code
  tells more of what was drawn than a recogniser does.

The first map is measured before stage 1, the second before stage 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.errors import UserError
from faceanon.losses.structure import own_rows
from faceanon.networks.discriminants import Discriminants
from faceanon.networks.linear_identity import IdentityDraft, IdentityReader
from faceanon.types import Codes, FaceBatch
from faceanon.weights.bundle import Bundle

READER_ROWS = 4000  # strangers on whom a reader of whole embeddings is measured, by 500 weights for each of its numbers
COMPONENT_ROWS = 1500  # and one of some leading principal components, which pictures show best
DRAFT_BATCHES = 2000  # a linear map of whole embeddings takes more pictures than a mean and a variance do


def refuse_kept_alone(kept: int, draft: float) -> None:
    """Refuse numbers that are kept for a draft that is not there.

    Args:
        kept: `attributes_kept`.
        draft: `identity_draft`.

    Raises:
        UserError: There is no draft.
    """
    if kept and not draft:
        raise UserError(f"attributes_kept is {kept} without an identity_draft; give both, or neither")


def leading_components(length: int, components: int) -> Discriminants | None:
    """The map from embeddings to some leading principal components, whitened; it knows nothing until it is fitted.

    Keys spread the error of every number that is read off a picture over all numbers, and the last components of an
    embedding are read badly.

    Args:
        length: Length E of an embedding.
        components: Even number of components; 0 for the whole embedding.

    Returns:
        `(B, E)` -> `(B, components)`, or None for the whole embedding.

    Raises:
        UserError: `components` is odd, negative or more than there are.
    """
    if not components:
        return None
    if components % 2 or not 0 < components <= length:
        raise UserError(f"components is {components}; give an even number up to {length}, or 0 for all")
    return Discriminants(length, components)


class LinearPerson:
    """The maps of a backbone, mixed into it before `Backbone` among the bases; `None` where they are not asked for.

    The backbone calls `add_linear_maps` in its constructor, says what an identity code is (`identity_of`), and draws
    with `kept_numbers` and `identity_draft`.

    Attributes:
        bundle: The backbone's.
        encoder: The bundle's encoder of w+ codes.
        attributes_kept: Numbers of a row of w+, from its beginning, that come from the attributes.
        identity_draft: Identity code -> row of w+.
        identity_reader: Row of w+ -> identity code.
    """

    bundle: Bundle
    encoder: Any
    attributes_kept: int
    identity_draft: IdentityDraft | None
    identity_reader: IdentityReader | None

    def add_linear_maps(self, length: int, dim: int, kept: int, draft: float, reader: bool, rows: int) -> None:
        """Build the maps; they know nothing until they are measured.

        Args:
            length: Length E of an identity code.
            dim: Length D of a row of w+.
            kept: Numbers of a row, from its beginning, that come from the attributes.
            draft: What the differences of the draft to its mean are multiplied by; 0 builds none.
            reader: Whether a reader is built.
            rows: Strangers on whom it is measured.
        """
        self.attributes_kept = kept
        self.identity_draft = None
        if draft:
            self.identity_draft = IdentityDraft(length, dim, kept, draft)
            self.calibration_batches = DRAFT_BATCHES
        self.identity_reader = None
        if reader:
            self.identity_reader = IdentityReader(dim, length, kept)
            self.reader_rows = rows

    def identity_of(self, embedding: Tensor) -> Tensor:
        """The identity code `(B, E)` of embeddings of the bundle's recogniser, which have unit length."""
        raise NotImplementedError

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

    def person_with(self, identity: Tensor, attributes: Tensor, network: nn.Module, seen: Tensor) -> Tensor:
        """Kept numbers of attributes, and the draft of identity codes with what a network adds to it.

        Args:
            identity: `(B, E)`.
            attributes: `(B, L, D)`.
            network: `(B, E + kept)` -> `(B, D)`, the same for all rows.
            seen: `(B, E)`, what the network sees of the identity codes, beside the kept numbers of the first row.

        Returns:
            `(B, L, D)`, less the mean code.
        """
        assert self.identity_draft is not None
        kept = self.kept_numbers(attributes)
        person = self.identity_draft(identity) + network(torch.cat([seen, kept[:, 0, : self.attributes_kept]], 1))
        code: Tensor = kept + person[:, None]
        return code

    def embeddings_and_codes(self, batches: Iterable[FaceBatch]) -> tuple[Tensor, Tensor, Tensor]:
        """What is measured before stage 1: embeddings `(N, E)`, first rows of codes `(N, D)`, and persons `(N,)`."""
        embeddings = []
        codes = []
        persons = []
        for batch in batches:
            embedding = batch.embedding
            # One of another picture of the person tells less of how this one was taken.
            if embedding is None:
                embedding = self.bundle.recogniser(batch.image)
            embeddings.append(embedding)
            # The draft is the same in all rows, as is the first row of the encoder's code.
            codes.append(self.encoder_code(batch.image, batch.latents)[:, 0])
            persons.append(batch.identity)
        return torch.cat(embeddings), torch.cat(codes), torch.cat(persons)

    @torch.no_grad()
    def calibrate_reader(self, pairs: Iterable[tuple[Codes, Tensor]]) -> None:
        """Measure the linear map from the encoder's code of a saved picture to the identity that it was drawn from."""
        if self.identity_reader is None:
            return
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
