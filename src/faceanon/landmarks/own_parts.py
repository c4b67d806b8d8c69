"""What of a face stays the person's own when another one is put on: hair over the forehead, and an open mouth.

Lips that speak or laugh cannot be lent: a donor's are of another shape, and teeth of another photograph show as such.

Nothing here needs torch.
"""

from __future__ import annotations

import numpy as np

from faceanon.landmarks.drawings import OUTER_LIPS
from faceanon.landmarks.geometry import Array, Mask, above_brows, around, filled, openness, tidy, wider

# Heights of the gap between the lips, in distances between the eyes. Between the two the mouth is a mixture of both
# persons', so that in a clip nothing jumps when somebody begins to speak. They are near to each other, since a mixture
# shows both pairs of lips. Lips that are shut look better as the donor's, which fit the donor's cheeks.
SHUT = 0.045  # up to here lips are the donor's
PARTED = 0.055  # from here on they are the person's own
AROUND_LIPS = 1.15  # how far around its middle a mouth reaches, in sizes of the lips


def fringe(odd: Mask, mesh: Array) -> Mask:
    """Pixels of hair that falls over the forehead, `(S, S)`: those above the brows of another colour than the skin.

    Args:
        odd: `(S, S)`, the pixels whose colour is far from the skin's.
        mesh: `(468, 2)`, the face's points.
    """
    side = len(odd)
    forehead: Mask = above_brows(mesh, side) > 0.03 * side
    # Single dark pixels are no hair, and hair has gaps.
    return wider(tidy(odd & forehead)) & forehead


def own_mouth(mesh: Array) -> float:
    """How much of the mouth of a face `(468, 2 or 3)` stays the person's own, in [0, 1]: the wider open, the more."""
    return min(max((openness(mesh) - SHUT) / (PARTED - SHUT), 0.0), 1.0)


def own_share(mesh: Array, side: int) -> Array:
    """How much of each pixel below the forehead stays the person's own, `(S, S)` in [0, 1].

    Args:
        mesh: `(468, 2)`, the points of the face.
        side: Of the picture.
    """
    share: Array = np.float32(own_mouth(mesh)) * filled(around(mesh[list(OUTER_LIPS)], AROUND_LIPS), side)
    return share
