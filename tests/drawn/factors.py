"""What a procedural face is made of: the factors of the person and those of the picture, and how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

IDENTITY: tuple[str, ...] = (
    "face_width",
    "face_height",
    "jaw",
    "chin_taper",
    "eye_spacing",
    "eye_size",
    "eye_aspect",
    "eye_tilt",
    "eye_height",
    "eye_hue",
    "eye_luminance",
    "brow_thickness",
    "brow_gap",
    "brow_tilt",
    "brow_darkness",
    "nose_length",
    "nose_width",
    "mouth_width",
    "mouth_height",
    "lip_upper",
    "lip_lower",
    "lip_red",
    "skin_luminance",
    "skin_hue",
    "ear_size",
    "freckles",
    "freckle_phase",
    "beard",
)
"""Columns of an identity, each uniform in [-1, 1]."""


@dataclass(frozen=True)
class Spread:
    """How an attribute is drawn: uniform in [low, high], or the mean of two draws (`peaked`), and at least `floor`."""

    low: float
    high: float
    peaked: bool = False
    floor: float = -1e9


_UNIT = Spread(0.0, 1.0)
_SIGNED = Spread(-1.0, 1.0)
# Angles are in radians, so this is a whole turn.
_ANGLE = Spread(0.0, 6.2832)

SPREADS: dict[str, Spread] = {
    "yaw": Spread(-0.56, 0.56, peaked=True),
    "pitch": Spread(-0.3, 0.3, peaked=True),
    "roll": Spread(-0.12, 0.12, peaked=True),
    "shift_x": Spread(-0.06, 0.06, peaked=True),
    "shift_y": Spread(-0.05, 0.05, peaked=True),
    "scale": Spread(1.12, 1.24),
    "mouth_open": Spread(-0.8, 1.0, floor=0.0),
    "smile": Spread(-0.6, 1.0),
    "gaze_x": Spread(-1.0, 1.0, peaked=True),
    "gaze_y": Spread(-0.6, 0.6, peaked=True),
    "blink": Spread(-2.5, 0.8, floor=0.0),
    "brow_raise": Spread(-1.0, 1.0, peaked=True),
    "light_x": _SIGNED,
    "light_y": Spread(-0.9, 0.3),
    "light_ambient": Spread(0.5, 0.8),
    "light_temperature": Spread(-0.12, 0.12, peaked=True),
    "light_gain": Spread(0.9, 1.1),
    "background_hue": _UNIT,
    "background_luminance": Spread(0.15, 0.85),
    "background_hue_2": _UNIT,
    "background_luminance_2": Spread(0.15, 0.85),
    "background_angle": _ANGLE,
    "background_texture": _UNIT,
    "background_phase": _ANGLE,
    "cloth_hue": _UNIT,
    "cloth_luminance": Spread(0.15, 0.85),
    "cloth_collar": _UNIT,
    "hair_hue": _SIGNED,
    "hair_luminance": _SIGNED,
    "hair_length": _SIGNED,
    "hair_line": _SIGNED,
    "hair_parting": _SIGNED,
    "occluder_hue": _UNIT,
    "occluder_luminance": Spread(0.2, 0.85),
    "occluder_place": _SIGNED,
    "occluder_angle": _SIGNED,
    "glasses_tint": _UNIT,
}
"""The attributes that are drawn from an interval."""

OCCLUDERS: tuple[str, ...] = ("glasses", "mask", "hand", "hat")
"""The attributes that are 0 or 1; a drawn picture has at most one of them."""

ATTRIBUTES: tuple[str, ...] = (*SPREADS, *OCCLUDERS)
"""Columns of an attribute set: everything in a picture that is not the person."""


def sample_identity(n: int, generator: torch.Generator) -> Tensor:
    """Draw `n` persons.

    Returns:
        `(n, len(IDENTITY))` float32, uniform in [-1, 1].

    Examples:
        >>> import torch
        >>> from drawn.factors import IDENTITY, sample_identity
        >>> people = sample_identity(3, torch.Generator().manual_seed(0))
        >>> people.shape == (3, len(IDENTITY))
        True
    """
    return torch.rand(n, len(IDENTITY), generator=generator) * 2 - 1


def sample_attributes(n: int, generator: torch.Generator, occlusion: float = 0.3) -> Tensor:
    """Draw `n` attribute sets.

    Args:
        n: How many.
        generator: Source of all randomness.
        occlusion: Share of pictures with an occluder, in [0, 1]; the four kinds are equally frequent.

    Returns:
        `(n, len(ATTRIBUTES))` float32, columns as `ATTRIBUTES` says.
    """
    # Two draws for every attribute, though most use one: an attribute that becomes peaked changes no other.
    draws = torch.rand(n, len(SPREADS), 2, generator=generator)
    # One draw for all kinds, so that nobody wears two things.
    choice = torch.rand(n, generator=generator)
    columns = []
    for i, spread in enumerate(SPREADS.values()):
        columns.append(_spread(draws[:, i], spread))
    step = occlusion / len(OCCLUDERS)
    worn = []
    for i in range(len(OCCLUDERS)):
        worn.append(((choice >= i * step) & (choice < (i + 1) * step)).float())
    return torch.stack(columns + worn, dim=1)


def _spread(draws: Tensor, spread: Spread) -> Tensor:
    """Two uniform draws `(n, 2)` to one attribute column `(n,)`."""
    unit = draws.mean(dim=1) if spread.peaked else draws[:, 0]
    return (spread.low + (spread.high - spread.low) * unit).clamp(min=spread.floor)


def column(names: tuple[str, ...], values: Tensor, name: str) -> Tensor:
    """One named column of `values` `(B, len(names))`, e.g. `column(ATTRIBUTES, attributes, "yaw")`; `(B,)`."""
    return values[:, names.index(name)]
