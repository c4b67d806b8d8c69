"""Three numbers that tell how a face is held: how far the mouth is open, and how far the head is turned and tilted."""

from __future__ import annotations

import torch
from torch import Tensor

from faceanon.landmarks.drawings import LEFT_CHEEK, RIGHT_CHEEK
from faceanon.landmarks.mesh import LEFT_EYE, LEFT_MOUTH, NOSE, RIGHT_EYE, RIGHT_MOUTH

# Points of the mesh: the inner edges of the lips in their middle.
UPPER_LIP = 13
LOWER_LIP = 14


def expression(points: Tensor) -> dict[str, Tensor]:
    """Mouth, yaw and pitch of meshes `(B, 468, 2)` in any unit, each `(B,)` without unit.

    All are measured along the line of the eyes and across it, so a turned picture has the same. `mouth`: gap between
    the lips over the distance of the eyes. `yaw`: place of the nose between the two edges of the face, 0 in the
    middle, -1 and 1 at the edges. `pitch`: place of the nose between eyes (0) and corners of the mouth (1).

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from faceanon.landmarks.expression import expression
        >>> from faceanon.landmarks.mesh import FaceMesh
        >>> from faceanon.photo.party import photo_party
        >>> face = np.array(photo_party().crop((14, 14, 270, 270)))
        >>> points = torch.from_numpy(FaceMesh().points(face[None])[0])
        >>> found = expression(points)
        >>> torch.allclose(expression(3 * points)["yaw"], found["yaw"])  # without a unit
        True
    """
    left = points[:, LEFT_EYE].mean(1)
    right = points[:, RIGHT_EYE].mean(1)
    eyes = right - left
    distance = eyes.norm(dim=1, keepdim=True)
    across = eyes / distance
    down = torch.stack([-across[:, 1], across[:, 0]], 1)
    middle = (left + right) / 2
    nose = points[:, NOSE]
    corners = (points[:, LEFT_MOUTH] + points[:, RIGHT_MOUTH]) / 2
    gap = (points[:, LOWER_LIP] - points[:, UPPER_LIP]).norm(dim=1)
    first = ((nose - points[:, LEFT_CHEEK]) * across).sum(1)
    second = ((points[:, RIGHT_CHEEK] - nose) * across).sum(1)
    height = ((corners - middle) * down).sum(1)
    return {
        "mouth": gap / distance[:, 0],
        "yaw": (first - second) / (first + second),
        "pitch": ((nose - middle) * down).sum(1) / height,
    }
