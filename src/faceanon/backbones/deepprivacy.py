"""DeepPrivacy in its essence: the face is cut out, and a generator that never saw it fills the hole.

Hukkelas, Mester and Lindseth, "DeepPrivacy: A Generative Adversarial Network for Face Anonymization", ISVC 2019
(arXiv:1909.04538); Hukkelas and Lindseth, "DeepPrivacy2: Towards Realistic Full-Body Anonymization", WACV 2023
(arXiv:2211.09454).

- A U-Net sees the surroundings and the hole; its decoder is modulated by a mapped z, as in DeepPrivacy2.
- It is trained to look real and for nothing else: what it has not seen it cannot give away, so no recogniser is needed.
- z is the key's: one key and one place give one face. There is no way back.

What differs, and why:

- The hole is the parser's face and neck, or without a parser the hull of the face mesh, where the papers cut out a
  detector's box (2019) or a segmented body.
- No key points condition the generator, as for the faces of DeepPrivacy2; DeepPrivacy gives it seven.
- The discriminator is the bundle's and sees pictures alone, not the condition beside them; the true surroundings are in
  the picture, so it sees seams. No progressive growing.
- On a bundle with a codec (photographs) the U-Net is face_painter.py's on latents, modulated in every block.
- configs/deepprivacy_s2.yaml adds a little perceptual distance to the original, for short trainings. It reaches the
  generator through what surroundings tell of a face, the mean of all that fit; nothing of the face itself.
"""

from __future__ import annotations

from torch import Tensor

from faceanon.backbones.inpainting import Inpainting
from faceanon.networks.inpainting import CellUNet, StyleUNet


class DeepPrivacy(Inpainting):
    """DeepPrivacy's essence on any bundle with a parser, or with the face mesh as landmarks.

    Args:
        bundle: Bundle by name or folder.
        key_dim: Length D of z and of the styles.
        widths: Channels of the U-Net's maps, finest first; multiples of 4. None gives those of 64 px on a processor. On
            a bundle with a codec, whose latents are drawn by `CellUNet`, None.

    Examples:
        >>> from faceanon.backbones.deepprivacy import DeepPrivacy
        >>> from faceanon.testing import smooth_faces
        >>> method = DeepPrivacy().eval()  # untrained
        >>> codes = method.encode(smooth_faces(128))
        >>> bool(codes.identity.any())  # the face is not looked at
        False
    """

    paper = "Hukkelas et al., DeepPrivacy, ISVC 2019, and DeepPrivacy2: Towards Full-Body Anonymization, WACV 2023"
    licence = "nothing of the authors' code and weights is used"

    def __init__(
        self,
        bundle: str = "photo128_pictures",
        key_dim: int = 128,
        widths: list[int] | None = None,
    ) -> None:
        super().__init__(bundle, key_dim, widths)
        inputs = self.channels + 1
        if self.on_latents:
            self.unet: CellUNet | StyleUNet = CellUNet(inputs, key_dim, self.side, self.channels)
        else:
            self.unet = StyleUNet(inputs, key_dim, self.unet_widths(widths))

    def draw(self, context: Tensor, identity: Tensor) -> Tensor:
        """`(B, C + 1, s, s)` and `(B, D)` to `(B, C, s, s)`, not clamped."""
        drawn: Tensor = self.unet(context, identity)
        return drawn
