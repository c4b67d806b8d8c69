"""A person's code that a key turns exactly, drawn and read by linear maps: what the rotation and Mirage share.

- The identity z (B, K) is the leading principal components of a frozen recogniser's embedding, whitened. No encoder has
  to learn what a person is.
- The key turns it by a map whose inverse is exact. Each of the two methods has a map of its own.
- Of the encoder's w+ code the first numbers alone are drawn, which hold light and skin. The drawing starts from a
  linear map of z, and a network learns what this map lacks.
- The recovering side has the 8-bit picture alone: a linear map reads z' off the encoder's code of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faceanon.backbones.linear_person import LinearPerson, leading_components
from faceanon.backbones.on_codes import OnCodes
from faceanon.networks.compensation import correction
from faceanon.types import Codes, FaceBatch

HIDDEN = 256  # width of the network that learns what the draft lacks


class TurnedPerson(LinearPerson, OnCodes):
    """All of such a method but its map; a subclass sets `turn` and `key_shape`.

    Args:
        bundle: Bundle by name or folder.
        components: Even number K of principal components.
        attributes_kept: Numbers of the encoder's code, from its beginning, that are drawn.
        identity_draft: What the differences of the draft to its mean are multiplied by.

    Attributes:
        turn: `(B, K)`, keys `(B, n)` and whether to undo -> `(B, K)`.

    Raises:
        UserError: A number is out of range.
    """

    exact = True

    turn: nn.Module

    def __init__(self, bundle: str, components: int, attributes_kept: int, identity_draft: float) -> None:
        super().__init__(bundle)
        self.principal = leading_components(self.bundle.embedding_length, components)
        dim = self.generator.style_dim
        self.add_linear_maps(dim, attributes_kept, identity_draft)
        self.expand = correction(components + attributes_kept, HIDDEN, HIDDEN, dim)

    def encode(self, image: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`: identity `(B, K)`, attributes `(B, L, D)`."""
        identity = self.identity_of(self.bundle.recogniser(image))
        return self._codes(identity, self.encoder_code(image, None))

    def encode_batch(self, batch: FaceBatch) -> Codes:
        """As `encode`; latents that were prepared need not be computed."""
        identity = self.identity_of(self.bundle.recogniser(batch.image))
        return self._codes(identity, self.encoder_code(batch.image, batch.latents))

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, with the identity read off the encoder's code."""
        code = self.encoder_code(image, None)
        return self._codes(self.identity_reader(code[:, 0]), code)

    def _codes(self, identity: Tensor, code: Tensor) -> Codes:
        """The encoder's code is all of the attributes, of which `w_plus` draws the kept numbers."""
        return Codes(identity, code, latent=code + self.latent_avg)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn identity codes `(B, K)` under `key` `(B, *key_shape)`; `inverse` turns them back."""
        turned: Tensor = self.turn(identity, key.flatten(1), inverse)
        return turned

    def w_plus(self, codes: Codes) -> Tensor:
        """Mean code, kept numbers of the attributes, draft of the identity, and what `expand` adds: `(B, L, D)`."""
        assert codes.attributes is not None
        kept = self.kept_numbers(codes.attributes)
        seen = torch.cat([codes.identity, kept[:, 0, : self.attributes_kept]], 1)
        # The same in all rows, as the draft is.
        person = self.identity_draft(codes.identity) + self.expand(seen)
        latent: Tensor = self.latent_avg + (kept + person[:, None])
        return latent

    def decode(self, codes: Codes) -> Tensor:
        """Draw the pictures `(B, 3, S, S)` of codes."""
        return self.generator.synthesis(self.w_plus(codes))
