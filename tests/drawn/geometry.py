"""Where the parts of a head are: one place that both the drawing and the landmarks read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from drawn.factors import ATTRIBUTES, IDENTITY

# In head units: how far the face bulges towards the viewer, and the depth of the axis about which it turns sideways.
_DEPTH = 0.52
_PIVOT = 0.18


class Columns:
    """Named columns of a factor tensor, each as `(B, 1, 1)` so that it broadcasts over planes."""

    def __init__(self, names: tuple[str, ...], values: Tensor) -> None:
        self._columns = {name: values[:, i, None, None] for i, name in enumerate(names)}

    def __getitem__(self, name: str) -> Tensor:
        return self._columns[name]


@dataclass(frozen=True)
class Spot:
    """A point of the face as seen, in head units, and how far it is foreshortened sideways; each `(B, 1, 1)`."""

    x: Tensor
    y: Tensor
    squeeze: Tensor


class Head:
    """Coordinates and measures of a batch of heads; y points down, the head is about 1 wide and 1.3 high.

    Args:
        identity: `(B, len(IDENTITY))`.
        attributes: `(B, len(ATTRIBUTES))`.
        size: Side of the picture in pixels.
    """

    def __init__(self, identity: Tensor, attributes: Tensor, size: int) -> None:
        self.person = Columns(IDENTITY, identity)
        self.picture = Columns(ATTRIBUTES, attributes)
        line = (torch.arange(size, device=identity.device) + 0.5) * (2.0 / size) - 1
        self.frame_y, self.frame_x = (plane[None] for plane in torch.meshgrid(line, line, indexing="ij"))
        a = self.picture
        self.cos_yaw = a["yaw"].cos()
        self.sin_yaw = a["yaw"].sin()
        self.cos_pitch = a["pitch"].cos()
        self.sin_pitch = a["pitch"].sin()
        cos = a["roll"].cos()
        sin = a["roll"].sin()
        x = (self.frame_x - a["shift_x"]) / a["scale"]
        y = (self.frame_y - a["shift_y"]) / a["scale"]
        self.x = cos * x + sin * y
        self.y = cos * y - sin * x
        self.width = 0.49 + 0.06 * self.person["face_width"]
        self.height = 0.65 + 0.06 * self.person["face_height"]

    def to_frame(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Head units to picture coordinates in [-1, 1]."""
        a = self.picture
        cos = a["roll"].cos()
        sin = a["roll"].sin()
        return (cos * x - sin * y) * a["scale"] + a["shift_x"], (sin * x + cos * y) * a["scale"] + a["shift_y"]

    def project(self, u: Tensor, v: Tensor, lift: float = 0.0) -> Spot:
        """A point (u, v) of the frontal face, `lift` before its ellipsoid, as yaw and pitch show it."""
        # Beyond the ellipsoid there is no depth, and at its edge the squeeze below would divide by 0.
        depth = (1 - (u / self.width) ** 2 - (v / self.height) ** 2).clamp(min=0.08).sqrt()
        z = _DEPTH * depth + lift
        x = u * self.cos_yaw + z * self.sin_yaw
        z_turned = z * self.cos_yaw - u * self.sin_yaw
        y = v * self.cos_pitch + (z_turned - 0.35) * self.sin_pitch
        # The derivative of x by u: how much a small part of the face is narrowed at this place.
        squeeze = (self.cos_yaw - _DEPTH * u / (self.width**2 * depth) * self.sin_yaw).clamp(0.35, 1.15)
        return Spot(x - _PIVOT * self.sin_yaw, y, squeeze)

    @cached_property
    def centre(self) -> tuple[Tensor, Tensor]:
        """Middle of the face's outline."""
        return 0.06 * self.sin_yaw, 0.25 * self.sin_pitch

    @cached_property
    def local(self) -> tuple[Tensor, Tensor]:
        """Planes (x, y) relative to the middle of the face."""
        return self.x - self.centre[0], self.y - self.centre[1]

    @cached_property
    def outline_power(self) -> Tensor:
        """Exponent of the superellipse that the lower face is: 1.9 pointed to 3.2 square."""
        return 2.4 + 0.6 * self.person["jaw"]

    @cached_property
    def taper(self) -> Tensor:
        """How much the face narrows towards the chin."""
        return 0.18 + 0.17 * self.person["chin_taper"]

    @cached_property
    def face(self) -> Tensor:
        """Signed distance to the outline of the face."""
        x, y = self.local
        v = y / self.height
        low = v.clamp(min=0)
        u = (x / (self.width * (1 - self.taper * low * low))).abs()
        # Below eye level the outline is the jaw's; both halves meet at v = 0, where u alone counts.
        power = torch.where(v > 0, self.outline_power, torch.full_like(self.outline_power, 2.2))
        radius = ((u + 1e-4) ** power + (v.abs() + 1e-4) ** power) ** (1 / power)
        return (radius - 1) * 0.5

    @cached_property
    def eyes(self) -> tuple[Spot, Spot]:
        """Centres of the left and right eye (left in the picture first)."""
        u = 0.25 + 0.035 * self.person["eye_spacing"]
        v = -0.09 - 0.05 * self.person["eye_height"]
        return self.project(-u, v), self.project(u, v)

    @cached_property
    def eye_size(self) -> Tensor:
        """Half the width of an eye."""
        return 0.102 + 0.022 * self.person["eye_size"]

    @cached_property
    def eye_tilt(self) -> Tensor:
        """Angle of the eyes; positive: the outer corners are lower."""
        return 0.24 * self.person["eye_tilt"]

    @cached_property
    def brows(self) -> tuple[Spot, Spot]:
        """Centres of the left and the right brow."""
        u = 0.26 + 0.035 * self.person["eye_spacing"]
        v = -0.255 - 0.05 * self.person["eye_height"] - 0.035 * self.person["brow_gap"]
        v = v - 0.03 * self.picture["brow_raise"]
        return self.project(-u, v), self.project(u, v)

    @cached_property
    def nose_root(self) -> Spot:
        """Where the ridge of the nose begins, between the eyes."""
        return self.project(torch.zeros_like(self.width), torch.full_like(self.width, -0.12), 0.03)

    @cached_property
    def nose_tip(self) -> Spot:
        """Tip of the nose, before the face."""
        return self.project(torch.zeros_like(self.width), 0.13 + 0.06 * self.person["nose_length"], 0.13)

    @cached_property
    def nose_width(self) -> Tensor:
        """Half the width of the nose at its tip."""
        return 0.085 + 0.032 * self.person["nose_width"]

    @cached_property
    def mouth(self) -> Spot:
        """Where the middle of the mouth lies."""
        v = 0.365 + 0.045 * self.person["mouth_height"] + 0.03 * self.person["face_height"]
        return self.project(torch.zeros_like(self.width), v, 0.04)

    @cached_property
    def mouth_half(self) -> Tensor:
        """Half the width of the mouth as seen."""
        smile = self.picture["smile"].clamp(min=0)
        return (0.165 + 0.05 * self.person["mouth_width"] + 0.025 * smile) * self.mouth.squeeze

    @cached_property
    def skin(self) -> Tensor:
        """Colour of the skin, `(B, 3, 1, 1)`."""
        light = 0.5 + 0.5 * self.person["skin_luminance"]
        hue = self.person["skin_hue"]
        red = 0.40 + 0.53 * light
        green = 0.235 + 0.50 * light
        blue = 0.145 + 0.44 * light
        return torch.stack([red, green - 0.035 * hue, blue - 0.065 * hue], dim=1)
