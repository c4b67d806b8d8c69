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
- The vector has the leading principal components of the embedding, whitened (`components`). A turn spreads the error of
  every number over all of them, and the last numbers of an embedding are read badly.
- The bundle's StyleGAN2 draws, in place of a generator trained from nothing. Light and skin are all of the attributes,
  the drawing starts from a linear map of the vector, and a stranger's vector is read off the encoder's code by another
  (`backbones.turned_person`).
- Stage 2 (configs/rotation_s2.yaml) is not the paper's: it tunes the drawing with anonymized pictures in the loop, so
  that the turned vector is found again in the picture.

As every linear map of the vector this one is revealed by about as many known pairs as the vector is long.
"""

from __future__ import annotations

import math

from faceanon.backbones.linear_person import check_above_zero, check_degrees
from faceanon.backbones.turned_person import TurnedPerson
from faceanon.networks.keyed import KeyedTurn


class Rotation(TurnedPerson):
    """The keyed vector rotation on any bundle.

    Args:
        bundle: Bundle by name or folder.
        angle: theta in degrees, above 0 and below 180: how far every identity vector is turned.
        components: Even number K of principal components that the vector has.
        stretch: By how much a stranger lies farther from the mean code than a turn puts it; 1 not at all (paper). More
            draws strangers with clearer features, who are less like the person and less like each other. Stage 2 may
            have another one than stage 1.
        attributes_kept: Numbers of the encoder's code, from its beginning, that are all of the attributes. They hold
            light and skin in a code of principal components.
        identity_draft: How much of a linear map of the vector is drawn, above 0: 1 the map that fits the encoder's
            codes best, more to make up for what a fit shrinks. It is measured before stage 1.

    Raises:
        UserError: A number is out of range.

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

    stage_arguments = frozenset({"stretch"})
    paper = "Cao et al., Personalized and Invertible Face De-identification by Disentangled Identity, ICCV 2021"
    licence = "no code of the authors is known to us"

    def __init__(
        self,
        bundle: str = "photo128_prior",
        angle: float = 110.0,
        components: int = 64,
        stretch: float = 1.0,
        attributes_kept: int = 8,
        identity_draft: float = 2.0,
    ) -> None:
        check_degrees("angle", angle)
        check_above_zero("stretch", stretch)
        super().__init__(bundle, components, attributes_kept, identity_draft)
        # It turns by an angle of cosine -away.
        self.turn = KeyedTurn(components, away=-math.cos(math.radians(angle)), stretch=stretch)
        # The turn by a frame of m reflections keeps exp(-4 m / K) of the turn without any, so the strangers of two keys
        # have a cosine of exp(-8 m / K): .02 with half as many reflections as the vector is long.
        self.key_shape = (components // 2, components)
