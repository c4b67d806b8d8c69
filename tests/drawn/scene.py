"""What is behind and below the face: a blurred background, neck and clothes."""

from __future__ import annotations

import torch
from torch import Tensor

from drawn.geometry import Head
from drawn.ground_truth import CLOTH, NECK
from faceanon.studies.occlusion.shapes import Canvas, ellipse, gauss, hsv

_BLOBS = 3


def background(head: Head) -> Tensor:
    """A gradient of two colours with a few soft lights, as a portrait lens would blur a room; `(B, 3, S, S)`."""
    a = head.picture
    x = head.frame_x
    y = head.frame_y
    first = hsv(a["background_hue"], 0.42, a["background_luminance"])
    second = hsv(a["background_hue_2"], 0.32, a["background_luminance_2"])
    along = x * a["background_angle"].cos() + y * a["background_angle"].sin()
    image = torch.lerp(first, second, (0.5 + 0.5 * along).clamp(0, 1)[:, None])
    light = torch.zeros_like(along)
    for i in range(_BLOBS):
        phase = a["background_phase"] * (1 + 0.5 * i) + 2.1 * i
        dx = x - 0.85 * torch.sin(phase)
        dy = y + 0.25 - 0.75 * torch.cos(1.3 * phase)
        light = light + (1 - 0.7 * i) * gauss((dx * dx + dy * dy).sqrt() / (0.38 + 0.07 * i))
    return (image * (1 + 0.5 * a["background_texture"] * light)[:, None]).clamp(0, 0.97)


def draw_body(canvas: Canvas, head: Head) -> None:
    """Neck with the shadow of the chin, and clothes."""
    x = head.x - 0.02 * head.sin_yaw
    y = head.y
    side = x.abs() - 0.25 - 0.03 * head.person["jaw"] - 0.22 * (y - 0.72).clamp(min=0)
    chin = head.height + head.centre[1]
    shadow = 0.62 + 0.26 * torch.sigmoid((y - chin - 0.1) * 12)
    round_neck = 1 - 0.25 * (x / 0.3).clamp(-1, 1) ** 2
    canvas.paint(canvas.cover(torch.maximum(side, 0.3 - y)), head.skin * (shadow * round_neck)[:, None], NECK)
    a = head.picture
    shoulder = 0.80 + 0.42 * (x.abs() - 0.24).clamp(min=0) ** 1.4 - y
    collar = -ellipse(x, y - 0.74, 0.27, 0.12) - a["cloth_collar"] * (0.12 - 0.5 * x.abs()).clamp(min=0)
    cloth = torch.maximum(shoulder, collar)
    fold = 0.82 + 0.18 * gauss((x.abs() - 0.55) / 0.3) - 0.12 * gauss(cloth / 0.035)
    canvas.paint(canvas.cover(cloth), hsv(a["cloth_hue"], 0.5, a["cloth_luminance"]) * fold[:, None], CLOTH)
