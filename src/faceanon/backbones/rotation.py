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

As every linear map of the vector this one is revealed by about as many known pairs as the vector is long.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from faceanon.backbones.base import Backbone
from faceanon.errors import UserError
from faceanon.networks.attention import LayerTransformer
from faceanon.networks.compensation import expansion
from faceanon.networks.keyed import KeyedTurn
from faceanon.types import Codes
from faceanon.weights.bundle import Bundle


class Rotation(Backbone):
    """The keyed vector rotation on any bundle.

    Args:
        bundle: Bundle by name or folder; its recogniser's embedding has an even length.
        angle: theta in degrees, above 0 and below 180: how far every identity vector is turned.
        attribute_depth: Blocks of the transformer that reads attributes off the W+ code.
        attribute_heads: Its attention heads.
        attribute_head_dim: Width of a head.
        hidden: Width of the network that expands the vector to W+.

    Raises:
        UserError: The angle is out of range.

    Examples:
        >>> import torch
        >>> from faceanon.backbones.rotation import Rotation
        >>> from faceanon.testing import smooth_faces
        >>> method = Rotation("synth64", angle=110).eval()  # untrained
        >>> code = method.encode(smooth_faces(64)).identity
        >>> key = method.sample_key(4)
        >>> stranger = method.transform(code, key)
        >>> round(torch.cosine_similarity(code, stranger).mean().arccos().rad2deg().item())
        110
    """

    exact = True
    paper = "Cao et al., Personalized and Invertible Face De-identification by Disentangled Identity, ICCV 2021"
    licence = "no code of the authors is known to us"

    latent_avg: Tensor

    def __init__(
        self,
        bundle: str = "synth64",
        angle: float = 110.0,
        attribute_depth: int = 2,
        attribute_heads: int = 4,
        attribute_head_dim: int = 48,
        hidden: int = 256,
    ) -> None:
        super().__init__()
        if not 0 < angle < 180:
            raise UserError(
                f"angle is {angle}; give degrees between 0 and 180, more than 90 to leave the person behind"
            )
        self.bundle = Bundle(bundle)
        self.generator = self.bundle.generator()
        self.encoder = self.bundle.encoder()
        dim = self.generator.style_dim
        layers = self.generator.n_latent
        length = self.bundle.embedding_length
        # The turn by a frame of m reflections keeps exp(-4 m / E) of the turn without any, so the strangers of two keys
        # have a cosine of exp(-8 m / E): .02 with half as many reflections as the vector is long.
        self.key_shape = (length // 2, length)
        self.register_buffer("latent_avg", self.bundle.latent_avg.clone())
        self.attributes = LayerTransformer(
            layers, dim, attribute_depth, attribute_heads, attribute_head_dim, 4 * dim, dropout=0.0
        )
        # Attributes start out near the whole code, which can be drawn.
        nn.init.eye_(self.attributes.project.weight)
        nn.init.zeros_(self.attributes.project.bias)
        # KeyedTurn turns by an angle of cosine -away. Nothing fits its whitening, which so stays the identity map: the
        # vector keeps its unit length.
        self.turn = KeyedTurn(length, length, away=-math.cos(math.radians(angle)))
        self.expand = expansion(length, hidden, layers, dim)
        # Lightning does not call `train` when a fit starts.
        self.encoder.eval()

    def train(self, mode: bool = True) -> Rotation:
        """Train mode, save for the encoder, whose batch statistics stay as they came."""
        super().train(mode)
        self.encoder.eval()
        return self

    def encode(self, image: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`: identity `(B, E)` of unit length, attributes `(B, L, D)`."""
        codes, _ = self.encoder.with_features(image)
        latent = codes + self.latent_avg
        return Codes(self.bundle.recogniser(image), self.attributes(latent), latent=latent)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn unit vectors `(B, E)` under `key` `(B, m, E)`, or turn them back."""
        turned: Tensor = self.turn(identity, key.flatten(1), inverse)
        return turned

    def w_plus(self, codes: Codes) -> Tensor:
        """Attributes plus expanded vector: `(B, L, D)`."""
        assert codes.attributes is not None
        expanded: Tensor = self.expand(codes.identity)
        return codes.attributes + expanded

    def decode(self, codes: Codes) -> Tensor:
        """Draw the pictures `(B, 3, S, S)` of codes."""
        return self.generator.synthesis(self.w_plus(codes))
