"""The procedural faces: factors in, picture and ground truth out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drawn import features, hair, scene
from drawn import head as skull
from drawn.factors import ATTRIBUTES, IDENTITY
from drawn.geometry import Head
from drawn.ground_truth import CLASSES, LANDMARKS, landmarks
from drawn.occluders import draw_occluders
from faceanon.studies.occlusion.shapes import Canvas

__all__ = ["CLASSES", "LANDMARKS", "Rendered", "render"]

# The middle of the factor `scale`, by which head units are larger than the picture's; edges are equally soft in all
# faces.
_MEAN_SCALE = 1.18


@dataclass(frozen=True)
class Rendered:
    """Pictures and what is known of them.

    Args:
        image: `(B, 3, S, S)` float32 in [-1, 1].
        parsing: `(B, S, S)` int64, an index into `CLASSES`.
        landmarks: `(B, len(LANDMARKS), 2)` float32 (x, y), [-1, 1] over the picture; may lie a little outside.
    """

    image: Tensor
    parsing: Tensor
    landmarks: Tensor


@torch.no_grad()
def render(identity: Tensor, attributes: Tensor, size: int = 64) -> Rendered:
    """Draw one face per row. Deterministic; a row's picture does not depend on the other rows.

    Args:
        identity: `(B, len(IDENTITY))` float32 in [-1, 1].
        attributes: `(B, len(ATTRIBUTES))` float32, as `sample_attributes` draws them.
        size: Side S of the pictures in pixels.

    Raises:
        ValueError: A factor tensor has the wrong shape.

    Examples:
        >>> import torch
        >>> from drawn.factors import sample_attributes, sample_identity
        >>> from drawn.render import render
        >>> generator = torch.Generator().manual_seed(0)
        >>> person = sample_identity(1, generator).expand(4, -1)
        >>> faces = render(person, sample_attributes(4, generator, occlusion=0.0), size=64)  # one person, four pictures
        >>> faces.image.shape, faces.parsing.shape
        (torch.Size([4, 3, 64, 64]), torch.Size([4, 64, 64]))
    """
    _check(identity, attributes)
    head = Head(identity, attributes, size)
    blank = torch.zeros(len(identity), size, size, dtype=torch.int64, device=identity.device)
    canvas = Canvas(scene.background(head), blank, pixel=2.0 / size / _MEAN_SCALE)
    brightness = _draw_head(canvas, head)
    draw_occluders(canvas, head, brightness)
    return Rendered(_expose(canvas.image, head), canvas.parsing, landmarks(head))


def _draw_head(canvas: Canvas, head: Head) -> Tensor:
    """All layers from the back hair to the fringe, then the light, which is returned."""
    # From behind to the front: each layer paints over those before it.
    mass, strands = hair.draw_back_hair(canvas, head)
    scene.draw_body(canvas, head)
    skull.draw_ears(canvas, head)
    face = skull.draw_skin(canvas, head)
    features.draw_nose(canvas, head, face)
    features.draw_mouth(canvas, head)
    features.draw_eyes(canvas, head)
    features.draw_brows(canvas, head)
    front = hair.draw_front_hair(canvas, head, mass, strands)
    brightness = skull.light(head)
    canvas.shade(brightness, torch.maximum(face, 0.85 * front))
    return brightness


def _expose(image: Tensor, head: Head) -> Tensor:
    """Colour temperature and gain of the whole picture; [0, 1] to [-1, 1]."""
    warm = head.picture["light_temperature"]
    tint = torch.stack([1 + warm, torch.ones_like(warm), 1 - warm], dim=1)
    return (image * tint * head.picture["light_gain"][:, None]).clamp(0, 1) * 2 - 1


def _check(identity: Tensor, attributes: Tensor) -> None:
    """Refuse tensors whose columns cannot be the factors."""
    rows = len(identity)
    for name, value, columns in (("identity", identity, IDENTITY), ("attributes", attributes, ATTRIBUTES)):
        if value.shape != (rows, len(columns)):
            raise ValueError(f"{name} must be ({rows}, {len(columns)}), got {tuple(value.shape)}")
