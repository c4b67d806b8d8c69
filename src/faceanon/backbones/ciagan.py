"""CIAGAN in its essence: landmarks and surroundings say how to draw, a vector says whom.

Maximov, Elezi and Leal-Taixe, "CIAGAN: Conditional Identity Anonymization Generative Adversarial Networks", CVPR 2020
(arXiv:2005.09544).

- The generator is a U-Net. It sees the picture with the face cut out, and the face's landmarks, which keep the pose;
  the identity vector enters at its narrowest map.
- A discriminator asks for real faces; a Siamese network asks that all faces drawn under one vector are one person.
- There is no reconstruction of the original, and no way back.

What differs, and why:

- The identity vector is a key of real numbers. In the paper it is the one-hot of a person in the training set, whom
  the result then resembles: a key has neither a limit of persons nor somebody else's face.
- So nobody's photographs pull the result; `guidance` asks, with the bundle's recogniser in place of the Siamese
  network, that faces under one key are near and those under different keys far (a softmax over the batch, in place of
  contrastive loss and Proxy-NCA). Stage 2's `identity` pushes away from the original, which the paper leaves to chance.
- The discriminator sees pictures alone, so it cannot ask for the pose; `pose`, L1 between landmarks, does.
- All the bundle's landmarks are drawn, as dots; the paper draws jaw, mouth and bridge of the nose, as lines. Of the
  face mesh, whose 468 dots would cover the face, the lines of eyes, brows, lips, nose and outline are drawn.
- The hole is the parser's face and neck, or without a parser the hull of the face mesh; the paper cuts along the
  landmarks. Outside it the pixels stay.
- The logistic loss with R1 instead of least squares.
- On a bundle with a codec (photographs) the U-Net is face_painter.py's on latents: the vector modulates every block.

With `by_person` the vector is also the person's, as in the paper, where everybody is given somebody: a code of the face
says which of the key's numbers change their sign. `likeness` and `seen` then teach what a vector means: under a
training person's own code the drawn face is to look like that person, and the recogniser is to know the person in it.
Without `by_person` (the default) all people under one key become one stranger, and a perceptual distance to the
originals draws the mean of them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.inpainting import Inpainting
from faceanon.backbones.region import has_mesh
from faceanon.errors import UserError
from faceanon.landmarks.drawings import (
    INNER_LIPS,
    LEFT_BROW,
    LEFT_EYE,
    NOSE_BASE,
    NOSE_BRIDGE,
    OUTER_LIPS,
    OUTLINE,
    RIGHT_BROW,
    RIGHT_EYE,
)
from faceanon.losses.identity import attract, in_batch_identity
from faceanon.networks.inpainting import CellUNet, IdentityUNet
from faceanon.networks.principal_components import PrincipalComponents
from faceanon.types import Branches, Codes, FaceBatch

# Points of the mesh along the lines of a face.
LINES = (*LEFT_EYE, *RIGHT_EYE, *LEFT_BROW, *RIGHT_BROW, *OUTER_LIPS, *INNER_LIPS, *NOSE_BRIDGE, *NOSE_BASE, *OUTLINE)
DOTS_IN_CELL = 4  # pixels of the picture of dots along a cell of latents
SEEN = 4  # faces of a batch that the recogniser looks at
DOT = 1 / 48  # standard deviation of a landmark's dot, in sides of the picture


class CIAGAN(Inpainting):
    """CIAGAN's essence on any bundle with landmarks and parser, or with the face mesh as landmarks.

    Args:
        bundle: Bundle by name or folder.
        key_dim: Length K of the vector that says whom to draw.
        widths: Channels of the U-Net's maps, finest first; multiples of 4. None gives those of 64 px on a processor. On
            a bundle with a codec, whose latents are drawn by `CellUNet`, None.
        by_person: The identity code is K whitened principal components of the recogniser's embedding, and where it is
            negative the key's number changes its sign. So two people become two strangers under one key. Keys are
            normally distributed, so without the key the vector tells nothing of the person.

    Raises:
        UserError: `by_person` with more numbers than an embedding has.

    Examples:
        >>> import torch
        >>> from faceanon.backbones.ciagan import CIAGAN
        >>> from faceanon.testing import smooth_faces
        >>> method = CIAGAN().eval()  # untrained
        >>> method.anonymize(smooth_faces(128), method.sample_key(4)).shape
        torch.Size([4, 3, 128, 128])
        >>> method.reversible
        False
    """

    paper = "Maximov et al., CIAGAN: Conditional Identity Anonymization Generative Adversarial Networks, CVPR 2020"
    licence = "nothing of the authors' code and weights is used"

    latent_terms = frozenset({"likeness", "seen"})

    def __init__(
        self,
        bundle: str = "photo128_pictures",
        key_dim: int = 128,
        widths: list[int] | None = None,
        by_person: bool = False,
    ) -> None:
        super().__init__(bundle, key_dim, widths)
        self.bundle.require("landmarks", "recogniser")
        self.components: PrincipalComponents | None = None
        if by_person:
            length = self.bundle.embedding_length
            if key_dim > length:
                raise UserError(f"key_dim is {key_dim}; with by_person give at most {length}, which an embedding has")
            self.components = PrincipalComponents(length, key_dim)
        self.drawn = list(LINES) if has_mesh(self.bundle) else None
        # Cells are too coarse for dots: each has several.
        self.dots_in_cell = DOTS_IN_CELL if self.on_latents else 1
        inputs = self.channels + 1 + self.dots_in_cell**2
        if self.on_latents:
            self.unet: CellUNet | IdentityUNet = CellUNet(inputs, key_dim, self.side, self.channels)
        else:
            self.unet = IdentityUNet(inputs, key_dim, self.side, self.unet_widths(widths))

    def encode(self, image: Tensor) -> Codes:
        """As of all methods that cut the face out; with `by_person` the identity `(B, K)` is the person's code."""
        codes = super().encode(image)
        if self.components is None:
            return codes
        with torch.no_grad():
            person: Tensor = self.components(self.bundle.recogniser(image))
        return replace(codes, identity=person)

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """The key's vector `(B, K)`, with other signs where the person's code is negative; nobody's code is 0."""
        vector = super().transform(identity, key, inverse)
        return torch.where(identity < 0, -vector, vector)

    @torch.no_grad()
    def calibrate(self, batches: Iterable[FaceBatch]) -> None:
        """Measure the components of embeddings, with `by_person`."""
        if self.components is None:
            return
        embeddings = [self.bundle.recogniser(batch.image) for batch in batches]
        self.components.fit(torch.cat(embeddings))

    def context(self, image: Tensor, hole: Tensor) -> Tensor:
        """Surroundings, hole, and the landmarks of `(B, 3, S, S)` as dots: `(B, I, s, s)`.

        I is 5; on latents C + 17, since 4 x 4 pixels of the picture of dots fall to a cell.
        """
        with torch.no_grad():
            points = self.bundle.landmarks(image)
        if self.drawn is not None:
            points = points[:, self.drawn]
        drawing = F.pixel_unshuffle(dots(points, self.side * self.dots_in_cell), self.dots_in_cell)
        return torch.cat([super().context(image, hole), drawing.to(image)], 1)

    def draw(self, context: Tensor, identity: Tensor) -> Tensor:
        """`(B, I, s, s)` and `(B, K)` to `(B, C, s, s)`; pictures in [-1, 1]."""
        drawn: Tensor = self.unet(context, identity)
        return drawn

    def anonymize_terms(self, batch: FaceBatch, branches: Branches, wanted: Collection[str]) -> dict[str, Tensor]:
        """`guidance`: one key, one person; `pose`: landmarks stay; `likeness`, `seen`: a person's code is that person.

        For `guidance` every key draws a second face. For the last two every person is drawn once more under the own
        code: `likeness` compares looks with the photograph, `seen` what the recogniser sees, of a few faces.
        """
        terms: dict[str, Tensor] = {}
        if "likeness" in wanted or "seen" in wanted:
            terms |= self._own_terms(batch, branches.original, wanted)
        if "guidance" in wanted:
            size = branches.size
            keys = branches.keys[:size]
            # Every key draws into the surroundings of another row too. Its two faces have to be one person, wherever it
            # draws.
            others = self.decode(self.edit(branches.original.map(lambda item: item.roll(1, 0)), keys))
            embeddings = self.bundle.recogniser(torch.cat([branches.pictures[:size], others]))
            terms["guidance"] = in_batch_identity(embeddings, torch.arange(size, device=keys.device).repeat(2))
        if "pose" in wanted:
            with torch.no_grad():
                # The pictures are whole batches behind each other, so the points of the originals are repeated in that
                # order.
                points = self.bundle.landmarks(batch.image).repeat(branches.versions, 1, 1)
            terms["pose"] = F.l1_loss(self.bundle.landmarks(branches.pictures), points)
        return terms

    def _own_terms(self, batch: FaceBatch, codes: Codes, wanted: Collection[str]) -> dict[str, Tensor]:
        """How far faces under the persons' own codes are from the photographs, in looks and to the recogniser."""
        latents = self.drawn_latents(codes)
        few = codes.map(lambda item: item[:SEEN])
        terms: dict[str, Tensor] = {}
        if latents is not None and batch.latents is not None and self.bundle.compares_latents:
            if "likeness" in wanted:
                terms["likeness"] = self.bundle.perceptual(latents, batch.latents).mean()
            # The codec's decoder takes most of a step, so few of these faces become pictures.
            shown = self.pictures_of(few, latents[:SEEN]) if "seen" in wanted else None
        else:
            # What is drawn already is not drawn again.
            pictures = self.decode(codes) if latents is None else self.pictures_of(codes, latents)
            if "likeness" in wanted:
                terms["likeness"] = self.bundle.perceptual(pictures, batch.image).mean()
            shown = pictures[:SEEN]
        if "seen" in wanted and shown is not None:
            with torch.no_grad():
                persons = self.bundle.recogniser(batch.image[:SEEN])
            terms["seen"] = attract(self.bundle.recogniser(shown), persons)
        return terms


def dots(points: Tensor, side: int) -> Tensor:
    """One channel `(B, 1, side, side)` in [0, 1] with a dot at each of `(B, P, 2)` (x, y) in [-1, 1]."""
    steps = (torch.arange(side, device=points.device) + 0.5) / side * 2 - 1
    # A round Gaussian is the product of one along x and one along y, each `(B, P, side)`. A side of the picture is 2 in
    # these coordinates, so the deviation is 2 DOT.
    x, y = ((-((steps - points[..., axis, None]) / (2 * DOT)).square() / 2).exp() for axis in (0, 1))
    # The largest dot counts: a sum would exceed 1 where dots overlap.
    return (y[..., :, None] * x[..., None, :]).amax(1, keepdim=True)
