"""What may cover a part of the face: glasses, a surgical mask, a hand, a hat."""

from __future__ import annotations

import torch
from torch import Tensor

from drawn.geometry import Head
from drawn.ground_truth import OCCLUDER
from faceanon.studies.occlusion.shapes import Canvas, capsule, ellipse, flat, gauss, hsv, smoothstep


def _colour(head: Head, saturation: float) -> Tensor:
    """Colour of glasses, mask and hat."""
    return hsv(head.picture["occluder_hue"], saturation, head.picture["occluder_luminance"])


def draw_occluders(canvas: Canvas, head: Head, brightness: Tensor) -> None:
    """All four kinds, each where its 0/1 attribute says so; `brightness` is the light on the head."""
    lit = (0.35 + 0.65 * brightness)[:, None]
    _draw_hat(canvas, head, lit)
    _draw_glasses(canvas, head, lit)
    _draw_mask(canvas, head, lit)
    _draw_hand(canvas, head, lit)


def _draw_glasses(canvas: Canvas, head: Head, lit: Tensor) -> None:
    """Frame, bridge and temples, and lenses from clear to dark; the eyes stay visible through the darkest."""
    worn = head.picture["glasses"]
    left, right = head.eyes
    # Far outside of everything, so that the minimum over both eyes can begin with it.
    frame = torch.full_like(head.x, 9.0)
    lens = torch.full_like(head.x, 9.0)
    roundness = 2.7 + 0.7 * head.picture["occluder_angle"]
    for eye in (left, right):
        x = ((head.x - eye.x) / eye.squeeze).abs() + 1e-4
        y = (head.y - eye.y - 0.01).abs() * 1.2 + 1e-4
        radius = (x**roundness + y**roundness) ** (1 / roundness)
        frame = torch.minimum(frame, (radius - 0.16).abs() - 0.017)
        lens = torch.minimum(lens, radius - 0.16)
    bar = (head.y - 0.5 * (left.y + right.y) + 0.02).abs() - 0.014
    edge_left = left.x + 0.15 * left.squeeze
    edge_right = right.x - 0.15 * right.squeeze
    bridge = torch.maximum(edge_left - head.x, head.x - edge_right)
    sides = torch.maximum(left.x - 0.17 * left.squeeze - head.x, head.x - right.x - 0.17 * right.squeeze)
    beside = torch.maximum(-sides, head.x.abs() - head.width)
    frame = torch.minimum(frame, torch.maximum(bar, torch.minimum(bridge, beside)))
    glass = canvas.cover(lens) * worn
    dark = 0.08 + 0.62 * smoothstep(head.picture["glasses_tint"], 0.55, 0.7)
    slant = head.x - 0.6 * head.y + 0.05
    gleam = gauss((slant - left.x) / 0.05) + gauss((slant - right.x) / 0.05)
    canvas.paint(glass * dark, flat(head.x, 0.07, 0.07, 0.09))
    canvas.paint(glass * 0.16 * gleam, flat(head.x, 1.0, 1.0, 1.0))
    # Behind clear lenses eyes and brows keep their own class; dark lenses cover them.
    canvas.mark(glass * (dark > 0.4), OCCLUDER)
    canvas.paint(canvas.cover(frame) * worn, _colour(head, 0.5) * 0.5 * lit, OCCLUDER)


def _draw_mask(canvas: Canvas, head: Head, lit: Tensor) -> None:
    """Surgical mask: from the nose to the chin, pleated, with loops to the ears."""
    worn = head.picture["mask"]
    x = head.local[0]
    top = head.nose_tip.y - 0.05 + 0.10 * (x * x / head.width**2) + 0.03 * head.picture["occluder_place"]
    cloth = torch.maximum(head.face - 0.015, top - head.y)
    cloth = torch.maximum(cloth, x.abs() - 0.86 * head.width)
    reach = 0.86 * head.width
    loop = (head.y - top - 0.02 + 0.45 * (x.abs() - reach)).abs() - 0.012
    loop = torch.maximum(loop, torch.maximum(reach - x.abs(), x.abs() - head.width - 0.02))
    canvas.paint(canvas.cover(loop) * worn, flat(x, 0.9, 0.9, 0.9) * lit, OCCLUDER)
    pleats = 0.94 + 0.06 * torch.sin(30 * (head.y - top)) - 0.15 * gauss((head.y - top) / 0.03)
    bulge = 1.05 - 0.3 * (x / head.width) ** 2
    canvas.paint(canvas.cover(cloth) * worn, _colour(head, 0.28) * lit * (pleats * bulge)[:, None], OCCLUDER)


def _draw_hand(canvas: Canvas, head: Head, lit: Tensor) -> None:
    """The person's own hand, raised to a cheek or the mouth from below."""
    a = head.picture
    side = torch.where(a["occluder_place"] < 0, -1.0, 1.0)
    angle = side * (-0.25 - 0.35 * a["occluder_angle"].abs())
    dx = head.x - side * 0.12 - 0.26 * a["occluder_place"]
    dy = head.y - 0.48
    x = angle.cos() * dx + angle.sin() * dy
    y = angle.cos() * dy - angle.sin() * dx
    zero = torch.zeros_like(angle)
    parts = [
        capsule(x, y, (zero, zero + 0.1), (zero - 0.02 * side, zero + 1.2), 0.115),
        ellipse(x, y, 0.155, 0.17),
    ]
    for i, length in enumerate((0.30, 0.37, 0.40, 0.35)):
        base = side * (i - 1.5) * 0.08
        tip = side * (i - 1.5) * 0.1
        parts.append(capsule(x, y, (base, zero - 0.05), (tip, zero - length), 0.04))
    parts.append(capsule(x, y, (-0.0 - side * 0.1, zero + 0.07), (-side * 0.25, zero - 0.11), 0.045))
    distance = parts[0]
    for part in parts[1:]:
        distance = torch.minimum(distance, part)
    # Each finger is rounded by itself; below the knuckles the back of the hand takes over.
    fingers = torch.stack(parts[2:]).amin(dim=0)
    knuckles = torch.sigmoid((y + 0.10) * 40)
    depth = torch.lerp(fingers, distance, knuckles)
    rounded = 0.68 + 0.34 * (-depth / 0.04).clamp(0, 1)
    canvas.paint(0.35 * canvas.cover(distance - 0.03, 6.0) * a["hand"], head.skin * 0.3)
    canvas.paint(canvas.cover(distance) * a["hand"], head.skin * lit * rounded[:, None], OCCLUDER)


def _draw_hat(canvas: Canvas, head: Head, lit: Tensor) -> None:
    """A hat with a band; its brim goes from none to wide."""
    worn = head.picture["hat"]
    x = head.x + 0.02 * head.sin_yaw
    y = head.y - 0.12 * head.sin_pitch
    edge = -0.40 - 0.05 * head.picture["occluder_angle"] + 0.08 * (x / head.width) ** 2
    dome = ellipse(x, y + 0.36, head.width + 0.10, torch.full_like(head.width, 0.47))
    crown = torch.maximum(dome, y - edge)
    wide = 0.09 + 0.12 * (0.5 + 0.5 * head.picture["occluder_place"])
    brim = ellipse(x, y - edge, head.width + wide, 0.035 + 0.2 * wide)
    canvas.paint(0.3 * canvas.cover(brim - 0.05, 8.0) * worn, flat(x, 0.05, 0.04, 0.04))
    colour = _colour(head, 0.45)
    band = 1 - 0.4 * torch.sigmoid((y - edge + 0.13) * 80)
    rounded = (1.05 - 0.35 * (x / (head.width + 0.1)) ** 2) * band
    canvas.paint(canvas.cover(crown) * worn, colour * lit * rounded[:, None], OCCLUDER)
    under = 0.95 * lit - 0.2 * gauss((y - edge + 0.02) / 0.05)[:, None]
    canvas.paint(canvas.cover(brim) * worn, colour * under, OCCLUDER)
