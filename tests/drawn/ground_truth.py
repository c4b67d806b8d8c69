"""What the renderer knows about its pictures: the classes of the parsing and the landmarks."""

from __future__ import annotations

import torch
from torch import Tensor

from drawn.geometry import Head

CLASSES: tuple[str, ...] = (
    "background",
    "skin",
    "neck",
    "hair",
    "brow",
    "eye",
    "nose",
    "mouth",
    "cloth",
    "occluder",
)
"""Classes of the parsing in their order; ears count as neck: skin that is not the face."""

BACKGROUND, SKIN, NECK, HAIR, BROW, EYE, NOSE, MOUTH, CLOTH, OCCLUDER = range(len(CLASSES))

LANDMARKS: tuple[str, ...] = (
    "eye_left",
    "eye_right",
    "eye_left_outer",
    "eye_left_inner",
    "eye_right_inner",
    "eye_right_outer",
    "brow_left",
    "brow_right",
    "nose_tip",
    "mouth_left",
    "mouth_right",
    "mouth_top",
    "mouth_bottom",
    "chin",
    "jaw_left",
    "jaw_right",
)
"""The landmarks in their order; left and right as the viewer sees them."""

_JAW_LEVEL = 0.35

Point = tuple[Tensor, Tensor]


def landmarks(head: Head) -> Tensor:
    """Where the landmarks of `head` are, also those that something covers.

    Returns:
        `(B, len(LANDMARKS), 2)` float32 (x, y), [-1, 1] over the picture.
    """
    left, right = head.eyes
    centres = [(left.x, left.y), (right.x, right.y)]
    brows = [(brow.x, brow.y) for brow in head.brows]
    nose = [(head.nose_tip.x, head.nose_tip.y)]
    points = centres + _eye_corners(head) + brows + nose + _mouth(head) + _outline(head)
    framed = [head.to_frame(x, y) for x, y in points]
    x = torch.cat([point[0].flatten(1) for point in framed], dim=1)
    y = torch.cat([point[1].flatten(1) for point in framed], dim=1)
    return torch.stack([x, y], dim=2)


def _eye_corners(head: Head) -> list[Point]:
    """Left outer, left inner, right inner, right outer."""
    left, right = head.eyes
    across = head.eye_size * head.eye_tilt.cos()
    down = head.eye_size * head.eye_tilt.sin()
    return [
        (left.x - across * left.squeeze, left.y + down),
        (left.x + across * left.squeeze, left.y - down),
        (right.x - across * right.squeeze, right.y - down),
        (right.x + across * right.squeeze, right.y + down),
    ]


def _mouth(head: Head) -> list[Point]:
    """Left and right corner, top of the upper lip, bottom of the lower."""
    mouth = head.mouth
    smile = head.picture["smile"]
    opening = head.picture["mouth_open"]
    # The curve by which `features.draw_mouth` bends the lips, at the corners and in the middle.
    corner = mouth.y - 0.0275 * smile
    middle = mouth.y + 0.0275 * smile
    # The lips of `features.draw_mouth` in the middle, where the bow takes a quarter off the upper one.
    top = middle - 0.75 * (0.033 + 0.022 * head.person["lip_upper"]) - 0.03 * opening
    bottom = middle + 0.046 + 0.027 * head.person["lip_lower"] + 0.085 * opening
    half = head.mouth_half
    return [(mouth.x - half, corner), (mouth.x + half, corner), (mouth.x, top), (mouth.x, bottom)]


def _outline(head: Head) -> list[Point]:
    """Chin, left jaw, right jaw: on the outline of the face."""
    x, y = head.centre
    power = head.outline_power
    # The superellipse of `Head.face`, solved for x at this level.
    reach = head.width * (1 - head.taper * _JAW_LEVEL**2) * (1 - _JAW_LEVEL**power) ** (1 / power)
    level = y + _JAW_LEVEL * head.height
    return [(x, y + head.height), (x - reach, level), (x + reach, level)]
