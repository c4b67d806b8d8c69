"""The head without its features: ears, skin, freckles, beard, and the light on it."""

from __future__ import annotations

import torch
from torch import Tensor

from drawn.geometry import Head
from drawn.ground_truth import NECK, SKIN
from faceanon.studies.occlusion.shapes import Canvas, ellipse, flat, gauss


def draw_ears(canvas: Canvas, head: Head) -> None:
    """Both ears; the one that turns away narrows."""
    height = 0.135 + 0.06 * head.person["ear_size"]
    for side in (-1, 1):
        width = 0.035 + (0.045 + 0.03 * head.person["ear_size"]) * (1 - side * 1.6 * head.sin_yaw).clamp(0, 1.2)
        x = head.x - side * (head.width + 0.015) + 0.04 * head.sin_yaw
        y = head.y + 0.01 - 0.1 * head.sin_pitch
        distance = ellipse(x, y, width, height)
        inner = 0.88 - 0.3 * gauss(ellipse(x, y, width * 0.5, height * 0.55).clamp(min=0) / 0.02)
        canvas.paint(canvas.cover(distance), head.skin * inner[:, None], NECK)


def draw_skin(canvas: Canvas, head: Head) -> Tensor:
    """Face with cheeks, freckles and beard; returns its opacity `(B, S, S)`."""
    face = canvas.cover(head.face)
    canvas.paint(face, head.skin, SKIN)
    x, y = head.local
    blush = gauss((x.abs() - 0.28) / 0.13) * gauss((y - 0.17) / 0.12)
    canvas.paint(0.16 * face * blush, flat(x, 0.8, 0.3, 0.3))
    canvas.paint(face * _freckles(head), head.skin * flat(x, 0.52, 0.40, 0.32))
    canvas.paint(face * _beard(head), flat(x, 0.19, 0.145, 0.12))
    return face


def _freckles(head: Head) -> Tensor:
    """Opacity of the freckles: dots where three waves agree, on cheeks and nose."""
    x, y = head.local
    phase = 2.4 * head.person["freckle_phase"]
    first = torch.sin(24 * x + 3 * phase)
    waves = first * torch.sin(26 * y + 9 * x + phase) * torch.sin(15 * x - 17 * y + 2 * phase)
    amount = (head.person["freckles"] + 0.1).clamp(min=0)
    return ((waves - 0.24).clamp(min=0) * 1.9 * gauss((y - 0.05) / 0.3) * amount).clamp(0, 0.75)


def _beard(head: Head) -> Tensor:
    """Opacity of the beard: jaw, chin and upper lip, from none to full."""
    x, y = head.local
    mouth = head.mouth.y - head.centre[1]
    line = mouth - 0.06 - 0.55 * (x.abs() - 0.12).clamp(min=0)
    lip = gauss((y - mouth + 0.095) / 0.035) * gauss(x / 0.17)
    amount = 0.8 * (head.person["beard"] + 0.15).clamp(min=0) / 1.15
    return amount * torch.maximum(torch.sigmoid((y - line) * 22) * 0.95, 0.9 * lip).clamp(0, 1)


def light(head: Head) -> Tensor:
    """Brightness of the lit head `(B, S, S)`, about 0.5 to 1.15: Lambert on an ellipsoid with nose and eye sockets."""
    across, down = _relief(head)
    towards = (1.05 - across * across - down * down).clamp(min=0.03).sqrt()
    a = head.picture
    length = (a["light_x"] ** 2 + a["light_y"] ** 2 + 1).sqrt()
    # The light comes from (light_x, light_y, 1), where 1 is towards the viewer, as `towards` is of the normal.
    lambert = ((across * a["light_x"] + down * a["light_y"] + towards) / length).clamp(min=0)
    return a["light_ambient"] + (1.12 - a["light_ambient"]) * 1.12 * lambert


def _relief(head: Head) -> tuple[Tensor, Tensor]:
    """Sideways and downward parts of the surface normal."""
    x, y = head.local
    ridge, slope, window = nose_ridge(head)
    across = 0.9 * x / head.width + 0.85 * ridge * window * (0.4 + 0.6 * slope)
    tip = head.nose_tip
    down = 0.85 * y / head.height
    down = down + 0.55 * gauss((head.y - tip.y - 0.05) / 0.045) * gauss(0.8 * (head.x - tip.x) / head.nose_width)
    for eye in head.eyes:
        down = down + 0.3 * gauss((head.y - eye.y + 0.03) / 0.10) * gauss((head.x - eye.x) / 0.13)
    down = down + 0.25 * gauss((head.y - head.mouth.y - 0.115) / 0.035) * gauss((head.x - head.mouth.x) / 0.12)
    return across, down


def nose_ridge(head: Head) -> tuple[Tensor, Tensor, Tensor]:
    """The nose as planes: sideways distance in half-widths, 0 root to 1 tip, and the opacity of the whole ridge."""
    root = head.nose_root
    tip = head.nose_tip
    slope = ((head.y - root.y) / (tip.y - root.y).clamp(min=0.1)).clamp(0, 1)
    ridge = (head.x - root.x - (tip.x - root.x) * slope) / ((0.35 + 0.65 * slope) * head.nose_width)
    ends = torch.sigmoid((head.y - root.y) * 25) * torch.sigmoid((tip.y + 0.03 - head.y) * 40)
    return ridge, slope, torch.exp(-0.5 * ridge * ridge) * ends
