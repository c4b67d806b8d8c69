"""Eyes, brows, nose and mouth."""

from __future__ import annotations

import torch
from torch import Tensor

from drawn.geometry import Head, Spot
from drawn.ground_truth import BROW, EYE, MOUTH, NOSE
from drawn.head import nose_ridge
from faceanon.studies.occlusion.shapes import Canvas, ellipse, flat, gauss, hsv

_SIDES = (-1, 1)


def draw_nose(canvas: Canvas, head: Head, face: Tensor) -> None:
    """Nostrils, wings and a light on the tip; the ridge itself is drawn by the light."""
    tip = head.nose_tip
    width = head.nose_width
    ridge, slope, _ = nose_ridge(head)
    ends = torch.maximum(head.y - tip.y - 0.06, head.nose_root.y + 0.06 - head.y)
    region = torch.maximum((ridge.abs() - 1) * 0.085, ends)
    canvas.mark(canvas.cover(region) * face, NOSE)
    x = head.x - tip.x + 0.02 * head.sin_yaw
    y = head.y - tip.y
    for side in _SIDES:
        wing = gauss((x - side * width * 1.02) / 0.03) * gauss((y - 0.015) / 0.05)
        canvas.paint(0.5 * wing * face, head.skin * 0.45)
        nostril = ellipse(x - side * width * 0.52, y - 0.045, width * 0.38, 0.024)
        canvas.paint(canvas.cover(nostril, 1.6) * 0.8, head.skin * 0.34, NOSE)
    shine = gauss(x / 0.035) * gauss((y + 0.005) / 0.035) + 0.5 * gauss(ridge / 0.5) * gauss((slope - 0.5) / 0.3)
    canvas.paint(0.16 * shine * face, flat(x, 1.0, 0.97, 0.92))


def draw_eyes(canvas: Canvas, head: Head) -> None:
    """Paint both eyes of the head on the canvas."""
    for side, spot in zip(_SIDES, head.eyes, strict=True):
        _draw_eye(canvas, head, side, spot)


def _draw_eye(canvas: Canvas, head: Head, side: int, spot: Spot) -> None:
    """Lid shadow, white, iris, pupil, highlight and lash line of one eye."""
    size = head.eye_size
    blink = head.picture["blink"]
    cos = (head.eye_tilt * side).cos()
    sin = (head.eye_tilt * side).sin()
    dx = (head.x - spot.x) / spot.squeeze
    dy = head.y - spot.y
    x = (cos * dx + sin * dy) / size
    y = (cos * dy - sin * dx) / size
    opening = (0.56 + 0.15 * head.person["eye_aspect"]) * (1 - 0.9 * blink).clamp(min=0.06)
    lid = 1 - x * x
    socket = (y.abs() / (opening + 0.2) + 0.7 * x * x - 1) * size * 0.4
    canvas.paint(canvas.cover(socket, 2.2) * 0.5, head.skin * 0.58)
    white = canvas.cover((y.abs() / opening - lid) * size * 0.42, 1.3)
    canvas.paint(white, flat(x, 0.93, 0.92, 0.90), EYE)
    canvas.paint(white * 0.45 * gauss((y + opening * lid) / 0.22), flat(x, 0.35, 0.3, 0.3))
    # An iris stays about round when the head turns, so the narrowing of the eye is undone for it.
    _draw_iris(canvas, head, white, x * spot.squeeze, y)
    lash = torch.maximum((y + opening * lid).abs() * size - 0.014, (x.abs() - 1.06) * size)
    canvas.paint(canvas.cover(lash) * 0.85, head.skin * 0.2, EYE)
    crease = gauss((y + (opening + 0.26) * lid.clamp(min=0.2)) / 0.09) * gauss(x / 0.95)
    canvas.paint(0.3 * crease, head.skin * 0.4)


def _draw_iris(canvas: Canvas, head: Head, white: Tensor, x: Tensor, y: Tensor) -> None:
    """Iris with a dark rim, pupil and highlight, clipped to the white; (x, y) in half eye widths."""
    a = head.picture
    person = head.person
    size = head.eye_size
    dx = x - 0.30 * a["gaze_x"] - 0.25 * head.sin_yaw
    dy = y - 0.16 * a["gaze_y"] - 0.1 * head.sin_pitch
    radius = (dx * dx + dy * dy + 1e-9).sqrt()
    hue = 0.33 + 0.29 * person["eye_hue"]
    value = 0.52 + 0.26 * person["eye_luminance"]
    rim = 1 - 0.5 * gauss((radius - 0.54) / 0.12)
    canvas.paint(white * canvas.cover((radius - 0.54) * size), hsv(hue, 0.72, value) * rim[:, None])
    canvas.paint(white * canvas.cover((radius - 0.22) * size), flat(x, 0.04, 0.04, 0.05))
    glint = ((dx + 0.18) ** 2 + (dy + 0.18) ** 2).sqrt() - 0.14
    canvas.paint(white * canvas.cover(glint * size), flat(x, 1.0, 1.0, 1.0))


def draw_brows(canvas: Canvas, head: Head) -> None:
    """Both brows, thicker towards the nose."""
    person = head.person
    colour = hsv(torch.full_like(head.width, 0.06), 0.55, 0.27 - 0.19 * person["brow_darkness"])
    strength = 0.82 + 0.14 * person["brow_darkness"]
    for side, spot in zip(_SIDES, head.brows, strict=True):
        x = (head.x - spot.x) / spot.squeeze / 0.155
        arch = head.y - spot.y - side * 0.065 * person["brow_tilt"] * x - 0.045 * x * x + 0.015
        half = (0.028 + 0.016 * person["brow_thickness"]) * (1.1 - 0.45 * side * x).clamp(0.45, 1.5)
        distance = torch.maximum(arch.abs() - half, (x.abs() - 1) * 0.155)
        canvas.paint(canvas.cover(distance, 1.7) * strength, colour, BROW)


def draw_mouth(canvas: Canvas, head: Head) -> None:
    """Lips, and between them the dark of the mouth with the upper teeth."""
    a = head.picture
    person = head.person
    half = head.mouth_half
    x = (head.x - head.mouth.x) / half
    profile = (1 - x * x).clamp(min=0)
    y = head.y - head.mouth.y - 0.055 * a["smile"] * (profile - 0.5)
    gap = 0.085 * a["mouth_open"] * profile
    side = (x.abs() - 1) * half
    bow = 1 - 0.25 * gauss(x / 0.28)
    upper = (0.033 + 0.022 * person["lip_upper"]) * profile.sqrt() * bow
    lower = (0.046 + 0.027 * person["lip_lower"]) * profile.sqrt()
    # In an open mouth the lower lip falls by the whole gap, and the upper one rises by a third of it.
    lips = torch.maximum(torch.maximum(-y - upper - 0.35 * gap, y - lower - gap), side)
    red = person["lip_red"]
    tone = torch.stack([0.82 + 0.02 * red, 0.54 - 0.24 * red, 0.59 - 0.20 * red], dim=1)
    shine = gauss((y - gap - 0.5 * lower) / 0.018) * gauss(x / 0.5)
    relief = 1 - 0.14 * torch.sigmoid(-(y - 0.3 * gap) * 60) + 0.16 * shine
    canvas.paint(0.22 * gauss((y - gap - lower - 0.025) / 0.02) * gauss(x / 0.6), head.skin * 0.5)
    canvas.paint(canvas.cover(lips, 1.5), head.skin * tone * relief[:, None], MOUTH)
    inside = torch.maximum(torch.maximum(-y - 0.35 * gap, y - gap), side)
    openness = (gap / 0.02).clamp(0, 1)
    canvas.paint(canvas.cover(inside, 1.5) * openness, flat(x, 0.22, 0.06, 0.07))
    teeth = torch.maximum(torch.maximum(-y - 0.30 * gap, y - 0.10 * gap - 0.012), side + 0.03)
    canvas.paint(canvas.cover(teeth, 1.3) * (gap / 0.03).clamp(0, 1), flat(x, 0.93, 0.92, 0.88))
    line = canvas.cover(y.abs() - 0.009 + side.clamp(min=0), 1.4)
    canvas.paint(line * 0.75 * (1 - openness), head.skin * 0.25)
