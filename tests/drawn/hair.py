"""Hair: what hangs behind the head, what frames the face, and its strands; all smooth in the hair factors."""

from __future__ import annotations

import torch
from torch import Tensor

from drawn.geometry import Head
from drawn.ground_truth import HAIR
from faceanon.studies.occlusion.shapes import Canvas, gauss, hsv, smoothstep


def _long(head: Head) -> Tensor:
    """0 for short hair that leaves the ears free, 1 for long hair that covers them."""
    return smoothstep(head.picture["hair_length"], -0.6, 0.2)


def _bottom(head: Head) -> Tensor:
    """How far below the middle of the head the hair reaches."""
    return 0.06 + 0.9 * smoothstep(head.picture["hair_length"], -0.7, 1.2)


def _colour(head: Head) -> Tensor:
    """Base colour `(B, 3, 1, 1)`, from black over brown and red to blond."""
    light = 0.5 + 0.5 * head.picture["hair_luminance"]
    hue = 0.075 + 0.04 * head.picture["hair_hue"]
    return hsv(hue, 0.72 - 0.28 * light - 0.08 * head.picture["hair_hue"], 0.13 + 0.72 * light**1.5)


def _strands(head: Head) -> Tensor:
    """Brightness of the strands, which run from the parting, with a band of shine; `(B, S, S)` about 1."""
    x = head.x - 0.25 * head.picture["hair_parting"] + 0.05 * head.sin_yaw
    y = head.y + 0.85
    angle = torch.atan2(x, y + 0.15)
    radius = (x * x + y * y).sqrt()
    fine = torch.sin(17 * angle + 2 * radius) + 0.7 * torch.sin(29 * angle - 3 * radius + 1)
    shine = gauss((radius - 0.36 + 0.05 * fine) / 0.16)
    return 0.90 + 0.07 * fine + 0.30 * shine - 0.12 * smoothstep(head.y, 0.0, 0.9)


def _mass(head: Head) -> Tensor:
    """Signed distance to all the hair as seen against the background: round above, hanging below."""
    width = head.width + 0.04 + 0.09 * _long(head)
    x = (head.x + 0.05 * head.sin_yaw) / width
    above = head.y / (head.height + 0.1)
    below = head.y / _bottom(head)
    upper = (x * x + above * above + 1e-6).sqrt()
    # A superellipse of power 4: straight sides and a blunt end, as hanging hair has.
    lower = (x**4 + below**4 + 1e-6).sqrt().sqrt()
    return (torch.where(head.y < 0, upper, lower) - 1) * 0.4


def draw_back_hair(canvas: Canvas, head: Head) -> tuple[Tensor, Tensor]:
    """The hair behind neck and face; returns its signed distance and its strands, for the front."""
    mass = _mass(head)
    strands = _strands(head)
    canvas.paint(canvas.cover(mass, 2.0), _colour(head) * (0.7 * strands)[:, None], HAIR)
    return mass, strands


def draw_front_hair(canvas: Canvas, head: Head, mass: Tensor, strands: Tensor) -> Tensor:
    """The hair on the skull and beside the face; returns its opacity `(B, S, S)`."""
    a = head.picture
    x, y = head.local
    skull_x = (head.x + 0.02 * head.sin_yaw) / (head.width + 0.06)
    skull_y = head.y + 0.02 - 0.12 * head.sin_pitch
    cap = ((skull_x**2 + (skull_y / (head.height + 0.09)) ** 2).sqrt() - 1) * 0.5
    part = x - 0.3 * a["hair_parting"]
    line = -0.47 - 0.09 * a["hair_line"] + 0.22 * (part * part + 0.004).sqrt()
    temple = (x.abs() - 0.72 * head.width).clamp(min=0)
    fringe = torch.maximum(cap, y - line - 2.4 * temple)
    # The lock opens downwards, so that the jaw, which belongs to the person, stays in sight.
    inner = head.width * (1.02 - 0.13 * _long(head)) - 0.10 * (y - 0.05).clamp(min=0)
    # The last summand takes the lock away from short hair: no point is inside of it then.
    lock = torch.maximum(torch.maximum(inner - x.abs(), mass), -0.2 - y) + 0.3 * (1 - _long(head))
    opacity = canvas.cover(torch.minimum(fringe, lock), 2.0)
    edge = 1 - 0.25 * gauss(fringe / 0.05)
    canvas.paint(opacity, _colour(head) * (strands * edge)[:, None], HAIR)
    return opacity
