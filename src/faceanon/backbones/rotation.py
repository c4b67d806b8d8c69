"""Rotation: the key turns the recogniser's embedding by a set angle, and turns it back.

Cao, Liu, Wen, Xie and Song, "Personalized and Invertible Face De-identification by Disentangled Identity Information
Manipulation", ICCV 2021. A frozen recogniser gives the identity vector on the unit sphere, an encoder the attributes, a
generator draws the two; only the vector is edited, by a rotation whose direction is the password's and whose angle
theta ("degree of identity variation") the user chooses. Recovery is the opposite rotation. Only the drawing is trained.

What differs, and why:

- The paper, as we read it, turns z in the plane of z and the password's vector p: z' = z cos(theta) + p' sin(theta),
  with p' = p made orthogonal to z. The way back has to rebuild p' from z', and cannot tell whether z' came to lie
  before or beyond p: around 90 degrees, where p nearly always lies, both answers fit. Here the key chooses whole
  planes, the pairs of axes of a keyed frame, and turns every one by theta (`networks.keyed.KeyedTurn`): every z ends at
  the same angle theta from where it was, and the opposite turn undoes it for every z.
- The vector is the embedding of the bundle's training recogniser, not whitened, as in the paper.
- Attributes are read from the W+ code and drawn by the bundle's StyleGAN2, in place of a U-Net and a generator trained
  from nothing: w+ = attributes(w+) + expand(z).
- Stage 2 (configs/rotation_s2.yaml) is not the paper's: it tunes the drawing with anonymized pictures in the loop,
  without which the turned vector is not found again in the picture.
- For codes of principal components (`backbones.linear_person`): the drawing starts from a linear map of the vector
  (`identity_draft`), a stranger's vector is read off the encoder's code (`identity_reader`), and the vector has the
  leading principal components of the embedding alone (`components`). All are off by default.

As every linear map of the vector this one is revealed by about as many known pairs as the vector is long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from faceanon.backbones.base import Backbone
from faceanon.backbones.linear_person import (
    COMPONENT_ROWS,
    READER_ROWS,
    LinearPerson,
    leading_components,
    refuse_kept_alone,
)
from faceanon.errors import UserError
from faceanon.networks.attention import LayerTransformer
from faceanon.networks.compensation import correction, expansion
from faceanon.networks.keyed import KeyedTurn, check_stretch
from faceanon.types import Codes, FaceBatch
from faceanon.weights.bundle import Bundle

# Of the transformer that reads attributes off the W+ code: blocks, heads, width of a head.
READING = (2, 4, 48)


class Rotation(LinearPerson, Backbone):
    """The keyed vector rotation on any bundle.

    Args:
        bundle: Bundle by name or folder; its recogniser's embedding has an even length.
        angle: theta in degrees, above 0 and below 180: how far every identity vector is turned.
        hidden: Width of the network that expands the vector to W+.
        components: Even number K of principal components that the vector has, whitened, in place of the whole
            embedding (0, paper). A turn spreads the error of every number that is read over all of them, and the last
            numbers of an embedding are read badly.
        stretch: By how much a stranger lies farther from the mean code than a turn puts it; 1 not at all (paper). More
            draws strangers with clearer features, who are less like the person and less like each other. Stage 2 may
            have another one than stage 1.
        attributes_kept: Numbers of the encoder's code, from its beginning, that are all of the attributes where there
            is a draft. They hold light and skin in a code of principal components.
        identity_draft: How much of a linear map of the vector is drawn: 0 none (paper), 1 the map that fits the
            encoder's codes best, more to make up for what a fit shrinks. It is measured before stage 1 and suits codes
            of principal components. The transformer of the attributes, through which the person stays, is then left
            out, and `expand` learns from nothing what the map lacks.
        identity_reader: The vector of an anonymized picture is read off the encoder's code by a linear map that is
            measured before stage 2, and not by the recogniser.

    Raises:
        UserError: The angle or a number is out of range, or attributes are kept for a draft that is not there.

    Examples:
        >>> import torch
        >>> from faceanon.backbones.rotation import Rotation
        >>> from faceanon.testing import smooth_faces
        >>> method = Rotation(angle=110).eval()  # untrained
        >>> code = method.encode(smooth_faces(128)).identity
        >>> key = method.sample_key(4)
        >>> stranger = method.transform(code, key)
        >>> round(torch.cosine_similarity(code, stranger).mean().arccos().rad2deg().item())
        110
    """

    exact = True
    stage_arguments = frozenset({"stretch"})
    paper = "Cao et al., Personalized and Invertible Face De-identification by Disentangled Identity, ICCV 2021"
    licence = "no code of the authors is known to us"

    latent_avg: Tensor

    def __init__(
        self,
        bundle: str = "photo128_prior",
        angle: float = 110.0,
        hidden: int = 256,
        components: int = 0,
        stretch: float = 1.0,
        attributes_kept: int = 0,
        identity_draft: float = 0.0,
        identity_reader: bool = False,
    ) -> None:
        super().__init__()
        refuse_kept_alone(attributes_kept, identity_draft)
        if not 0 < angle < 180:
            raise UserError(
                f"angle is {angle}; give degrees between 0 and 180, more than 90 to leave the person behind"
            )
        self.bundle = Bundle(bundle)
        self.generator = self.bundle.generator()
        self.encoder = self.bundle.encoder()
        dim = self.generator.style_dim
        layers = self.generator.n_latent
        check_stretch("stretch", stretch, "components", bool(components))
        self.principal = leading_components(self.bundle.embedding_length, components)
        length = components or self.bundle.embedding_length
        # The turn by a frame of m reflections keeps exp(-4 m / E) of the turn without any, so the strangers of two keys
        # have a cosine of exp(-8 m / E): .02 with half as many reflections as the vector is long.
        self.key_shape = (length // 2, length)
        self.register_buffer("latent_avg", self.bundle.latent_avg.clone())
        self.attributes: LayerTransformer | None = None
        if not identity_draft:
            self.attributes = LayerTransformer(layers, dim, *READING, 4 * dim, dropout=0.0)
            # Attributes start out near the whole code, which can be drawn.
            nn.init.eye_(self.attributes.project.weight)
            nn.init.zeros_(self.attributes.project.bias)
        # KeyedTurn turns by an angle of cosine -away. Nothing fits its whitening, which so stays the identity map: the
        # vector keeps its unit length.
        self.turn = KeyedTurn(length, length, away=-math.cos(math.radians(angle)), stretch=stretch)
        self.expand: nn.Module = expansion(length, hidden, layers, dim)
        rows = COMPONENT_ROWS if components else READER_ROWS
        self.add_linear_maps(length, dim, attributes_kept, identity_draft, identity_reader, rows)
        if identity_draft:
            self.expand = correction(length + attributes_kept, hidden, hidden, dim)
        # Lightning does not call `train` when a fit starts.
        self.encoder.eval()

    def train(self, mode: bool = True) -> Rotation:
        """Train mode, save for the encoder, whose batch statistics stay as they came."""
        super().train(mode)
        self.encoder.eval()
        return self

    def encode(self, image: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`: identity `(B, E)` of unit length, attributes `(B, L, D)`."""
        return self._codes(image, None)

    def encode_batch(self, batch: FaceBatch) -> Codes:
        """As `encode`; latents that were prepared need not be computed."""
        return self._codes(batch.image, batch.latents)

    def _codes(self, image: Tensor, latents: Tensor | None) -> Codes:
        code = self.encoder_code(image, latents)
        latent = code + self.latent_avg
        # With a draft the encoder's code is all the attributes, of which `w_plus` draws the kept numbers.
        attributes = code if self.attributes is None else self.attributes(latent)
        return Codes(self.identity_of(self.bundle.recogniser(image)), attributes, latent=latent)

    def encode_anonymized(self, image: Tensor) -> Codes:
        """As `encode`, with the vector read off the encoder's code where there is a reader."""
        codes = self.encode(image)
        if self.identity_reader is None:
            return codes
        assert codes.latent is not None
        return codes.with_identity(self.identity_reader((codes.latent - self.latent_avg)[:, 0]))

    def identity_of(self, embedding: Tensor) -> Tensor:
        """The vector `(B, K)` of embeddings `(B, E)`: the embedding itself, or its leading principal components."""
        if self.principal is None:
            return embedding
        vector: Tensor = self.principal(embedding)
        return vector

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn unit vectors `(B, E)` under `key` `(B, m, E)`, or turn them back."""
        turned: Tensor = self.turn(identity, key.flatten(1), inverse)
        return turned

    def w_plus(self, codes: Codes) -> Tensor:
        """Attributes plus expanded vector: `(B, L, D)`.

        With a draft: mean code, kept numbers of the attributes, draft of the vector, and what `expand` adds to it.
        """
        assert codes.attributes is not None
        if self.identity_draft is None:
            expanded: Tensor = self.expand(codes.identity)
            return codes.attributes + expanded
        return self.latent_avg + self.person_with(codes.identity, codes.attributes, self.expand, codes.identity)

    def decode(self, codes: Codes) -> Tensor:
        """Draw the pictures `(B, 3, S, S)` of codes."""
        return self.generator.synthesis(self.w_plus(codes))

    @torch.no_grad()
    def calibrate(self, batches: Iterable[FaceBatch]) -> None:
        """Measure principal components and draft, where there are any."""
        if self.principal is None and self.identity_draft is None:
            return
        embedding, code, _ = self.embeddings_and_codes(batches)
        if self.principal is not None:
            self.principal.fit(embedding)
        if self.identity_draft is not None:
            self.identity_draft.fit(self.identity_of(embedding), code)
