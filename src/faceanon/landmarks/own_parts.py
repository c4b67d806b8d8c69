"""What of a face stays the person's own when another one is put on: hair over the forehead, and the mouth.

A mouth cannot be lent: a donor's lips are of another shape, teeth of another photograph show as such, and two mouths
that are mixed show both. Recognisers see little of a person in it.

Nothing here needs torch; both engines share it.
"""

from __future__ import annotations

from faceanon.landmarks.drawings import OUTER_LIPS
from faceanon.landmarks.geometry import Array, Mask, above_brows, around, filled, tidy, wider

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


def mouth(mesh: Array, side: int) -> Mask:
    """Pixels of the mouth of a face `(468, 2)`, lips and all, `(S, S)`."""
    return filled(around(mesh[list(OUTER_LIPS)], AROUND_LIPS), side)
