"""The default family of methods: DBAF's parts around a recogniser's code and an exactly invertible key.

- The identity code is a frozen recogniser's embedding, reduced to the directions in which persons differ most, and the
  key turns it by an exactly invertible map (`networks.keyed`), in KRIA's place.
- Attributes and encoder features are read as DBAF reads them (`backbones.dbaf`), and drawn with the turned code.
- For codes of principal components a linear map of the code draws the person, and another reads it off the encoder's
  code (`identity_draft`, `identity_reader`; `backbones.linear_person`).

docs/methods/dbaf_keyed.md says what each of these is worth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.linear_person import COMPONENT_ROWS, LinearPerson, refuse_kept_alone
from faceanon.errors import UserError
from faceanon.networks.attention import AttentionAxis, LayerTransformer
from faceanon.networks.compensation import correction, expansion
from faceanon.networks.discriminants import Discriminants
from faceanon.networks.keyed import KeyedTurn
from faceanon.networks.whitening import Whitening
from faceanon.types import Codes, FaceBatch


class Keyed(LinearPerson, DBAF):
    """A recogniser's code, turned by the key, and DBAF's attributes, on any bundle.

    Args:
        bundle: Bundle by name or folder.
        cid_depth: Blocks of the transformer that reads attributes, at least 1.
        cid_heads: Its attention heads.
        cid_head_dim: Width of a head.
        cid_dropout: Its dropout.
        cid_axis: What it attends across: the `layers` of a picture, or the `batch`.
        maar: Whether encoder features reach the generator.
        code_dim: Length K of the identity code; even.
        principal: The code's directions are the principal components of the embeddings instead of their discriminants,
            which a few dozen persons do not determine.
        turn_away: How far beyond the right angle the key turns codes, as a cosine in [0, 1).
        turn_stretch: By how much a stranger lies farther from the mean code than a turn puts it; 1 not at all. More
            draws strangers with clearer features, who are less like the person and less like each other. Stage 2 may
            have another one than stage 1.
        attributes_kept: Numbers of the encoder's code, from its beginning, that are all of the attributes where there
            is a draft. They hold light and skin in a code of principal components.
        identity_draft: How much of a linear map of the identity code is drawn: 0 none, 1 the map that fits the
            encoder's codes best, more to make up for what a fit shrinks. It is measured before stage 1 and suits codes
            of principal components. CID, through which the person stays, is then left out, and `expand` learns from
            nothing what the map lacks.
        identity_reader: The code of an anonymized picture is read off the encoder's code by a linear map that is
            measured before stage 2, and not by the recogniser.

    Raises:
        UserError: `cid_depth` is 0: attributes are read with CID. Or attributes are kept for a draft that is not there.

    Examples:
        >>> from faceanon.backbones.keyed import Keyed
        >>> from faceanon.testing import smooth_faces
        >>> method = Keyed(cid_depth=2, maar=False).eval()  # untrained
        >>> code = method.encode(smooth_faces(128)).identity
        >>> key = method.sample_key(4)
        >>> stranger = method.transform(code, key)
        >>> back = method.transform(stranger, key, inverse=True)
        >>> bool((back - code).norm() < 1e-2 * code.norm())
        True
    """

    stage_arguments = frozenset({"turn_stretch"})

    def __init__(
        self,
        bundle: str = "photo128_prior",
        cid_depth: int = 6,
        cid_heads: int = 14,
        cid_head_dim: int = 64,
        cid_dropout: float = 0.1,
        cid_axis: AttentionAxis = "layers",
        maar: bool = True,
        code_dim: int = 32,
        principal: bool = False,
        turn_away: float = 0.1,
        turn_stretch: float = 1.0,
        attributes_kept: int = 0,
        identity_draft: float = 0.0,
        identity_reader: bool = False,
    ) -> None:
        if not cid_depth:
            raise UserError("attributes are read with CID; give it a cid_depth of at least 1")
        refuse_kept_alone(attributes_kept, identity_draft)
        if turn_stretch <= 0:
            raise UserError(f"turn_stretch is {turn_stretch}; give a number above 0")
        depth = 0 if identity_draft else cid_depth
        super().__init__(bundle, depth, cid_heads, cid_head_dim, cid_dropout, cid_axis, maar)
        if self.cid is not None:
            assert isinstance(self.cid, LayerTransformer)
            # The attributes start as the whole code, which the prior can draw.
            nn.init.eye_(self.cid.project.weight)
            nn.init.zeros_(self.cid.project.bias)
        dim = self.generator.style_dim
        layers = self.generator.n_latent
        self.principal = principal
        self.discriminants = Discriminants(self.bundle.embedding_length, code_dim)
        self.turn: Whitening = KeyedTurn(code_dim, code_dim, turn_away, turn_stretch)
        self.expand: nn.Module = expansion(code_dim, 256, layers, dim)
        self.add_linear_maps(code_dim, dim, attributes_kept, identity_draft, identity_reader, COMPONENT_ROWS)
        if identity_draft:
            self.expand = correction(code_dim + attributes_kept, 256, 256, dim)

    def _add_key_edit(self, dim: int) -> None:
        """None of DBAF's: the turn takes their place."""

    def encode(self, image: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`: identity `(B, K)`."""
        return self._coded(image, self.identity_of(self.bundle.recogniser(image)))

    def encode_batch(self, batch: FaceBatch) -> Codes:
        """As `encode`; latents that were prepared need not be computed."""
        if batch.latents is not None and self.encoder.has_codec:
            self.bundle.codec.know(batch.image, batch.latents)
        return self.encode(batch.image)

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, with the identity read off the encoder's code where there is a reader."""
        if self.identity_reader is None:
            return self.encode(image)
        return self._coded(image, None)

    def _coded(self, image: Tensor, identity: Tensor | None) -> Codes:
        """Attributes of a picture with an identity code, or with the one that the reader sees.

        With a draft the encoder's code is all the attributes, of which `w_plus` draws the kept numbers.
        """
        codes = super().encode(image)
        assert codes.latent is not None
        code = codes.latent - self.latent_avg
        if identity is None:
            assert self.identity_reader is not None
            identity = self.identity_reader(code[:, 0])
        if self.identity_draft is not None:
            codes = replace(codes, attributes=code)
        return codes.with_identity(identity)

    def identity_of(self, embedding: Tensor) -> Tensor:
        """The identity code `(B, K)` of embeddings `(B, E)`."""
        code: Tensor = self.discriminants(embedding)
        return code

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn the identity `(B, K)` under `key` `(B, *key_shape)`; `inverse` turns it back."""
        turned: Tensor = self.turn(identity, key.flatten(1), inverse)
        return turned

    def w_plus(self, codes: Codes) -> Tensor:
        """What the identity code stands for in W+, plus attributes: `(B, L, D)`.

        With a draft: mean code, kept numbers of the attributes, draft of the code, and what `expand` adds to it.
        """
        assert codes.attributes is not None
        white = self.turn.white(codes.identity)
        if self.identity_draft is None:
            latent: Tensor = self.expand(white) + codes.attributes
            return latent
        return self.latent_avg + self.person_with(codes.identity, codes.attributes, self.expand, white)

    @torch.no_grad()
    def calibrate(self, batches: Iterable[FaceBatch]) -> None:
        """Fit the directions and the whitening of the identity code."""
        if self.identity_draft is None:
            embeddings = []
            identities = []
            for batch in batches:
                embeddings.append(self.bundle.recogniser(batch.image))
                identities.append(batch.identity)
            stacked = torch.cat(embeddings)
            persons = torch.cat(identities)
        else:
            stacked, codes, persons = self.embeddings_and_codes(batches)
        self.discriminants.fit(stacked, None if self.principal else persons)
        self.turn.fit(self.discriminants(stacked))
        if self.identity_draft is not None:
            self.identity_draft.fit(self.discriminants(stacked), codes)
