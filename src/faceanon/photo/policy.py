"""What happens to each face that was found, also to a small one: the model, a classical method, nothing if asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.manifest import MAX_SIDE, CropGeometry
from faceanon.photo.align import Box, crop_window, framed_square
from faceanon.photo.crop_paste import crop, obscured, paste
from faceanon.photo.detect import CELL, Detection

SmallFaces = Literal["blur", "pixelate", "mask", "refuse"]
Treatment = Literal["model", "blur", "pixelate", "mask", "refuse", "left"]
SMALL_FACES: tuple[SmallFaces, ...] = get_args(SmallFaces)
MIN_FACE = 20.0
SEARCH = 0.6  # faces are looked for down to this share of `min_face`, so that smaller ones are hidden as well
LEAST_SIDE = 8.0  # px; a square below this holds nothing that a model could read
LEAST_VISIBLE = 1 / 3  # of the square; below it most of what the model would be given is mirrored
HIDDEN_SIZE = 64
MARGIN = 1.5  # side of the hidden square over the longer side of the detector's box
FEATHER = 0.1


@dataclass(frozen=True)
class Policy:
    """What to do with which face.

    Args:
        min_face: Faces smaller than this are not given to the model, in pixels of the photo.
        small: What hides them, and those the model cannot be applied to; `refuse` leaves the photo undone.
        select: Numbers of the only faces to change; None for all.
        exclude: Numbers of faces to leave as they are.
        why: By number, why a face is left, where it was not asked for by number.

    Raises:
        UserError: If `min_face` is no number from 0 up, or `small` is unknown.

    Examples:
        >>> from faceanon.photo.policy import Policy
        >>> policy = Policy(min_face=40, small="mask", exclude=frozenset({2}))
        >>> policy.wants(1), policy.wants(2)
        (True, False)
        >>> Policy(small="sticker")
        Traceback (most recent call last):
        faceanon.errors.UserError: small faces can be hidden by blur, pixelate, mask, refuse, not 'sticker'
    """

    min_face: float = MIN_FACE
    small: SmallFaces = "blur"
    select: frozenset[int] | None = None
    exclude: frozenset[int] = frozenset()
    why: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.min_face < math.inf:
            raise UserError(f"the smallest face for the model must have 0 px or more, not {self.min_face}")
        if self.small not in SMALL_FACES:
            raise UserError(f"small faces can be hidden by {', '.join(SMALL_FACES)}, not {self.small!r}")

    def everybody(self) -> Policy:
        """The same for a photo of which nobody is chosen yet."""
        return replace(self, select=None, exclude=frozenset())

    @property
    def searched(self) -> float:
        """Side in pixels from which faces are to be looked for: some that are too small for the model are found too."""
        return max(CELL, SEARCH * self.min_face)

    def wants(self, number: int) -> bool:
        """Whether the face of this number is to be changed."""
        return number not in self.exclude and (self.select is None or number in self.select)


@dataclass(frozen=True)
class Face:
    """A face in a photo and what is done with it.

    Args:
        number: From 1, in the detector's order: the largest first.
        box: x1, y1, x2, y2 in pixels; may stick out of the photo.
        score: Probability of being a face.
        geometry: Its square for the model, or None where there is no usable one.
        treatment: `model`, `left` as it is, or what hides it.
        reason: Why not the model; empty otherwise.
        stranger: How many strangers of the key are passed over for this face.
        region: No face: what is hidden is the box alone, without a margin.
        points: As in `Detection`; None where nothing was detected.
    """

    number: int
    box: tuple[float, float, float, float]
    score: float
    geometry: CropGeometry | None
    treatment: Treatment
    reason: str = ""
    stranger: int = 0
    region: bool = False
    points: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> float:
        """Side of a square of the box's area, in pixels."""
        return math.sqrt(max(0.0, self.box[2] - self.box[0]) * max(0.0, self.box[3] - self.box[1]))

    def hidden_by(self, method: SmallFaces, reason: str) -> Face:
        """The same face, not for the model."""
        return replace(self, treatment=method, reason=reason)

    def describe(self) -> str:
        """Number, size, place, score and treatment of the face, as one line for people."""
        x = (self.box[0] + self.box[2]) / 2
        y = (self.box[1] + self.box[3]) / 2
        what = "region" if self.region else "face"
        line = f"{what} {self.number}: {self.size:.0f} px at ({x:.0f}, {y:.0f})"
        line += f", score {self.score:.2f}: {self.treatment}"
        if self.reason:
            return f"{line} ({self.reason})"
        return line


def decide(
    found: Sequence[Detection], width: int, height: int, framing: dict[str, float], policy: Policy, name: str
) -> list[Face]:
    """Number the faces of a photo and say what is to be done with each.

    Args:
        found: From the detector.
        width: Of the photo.
        height: Of the photo.
        framing: Of the backbone.
        policy: What was asked for.
        name: What to call the photo in messages.

    Raises:
        UserError: If a number is asked for that no face has, or a face is to be refused.

    Examples:
        >>> import numpy as np
        >>> from faceanon.photo.detect import Detection
        >>> from faceanon.photo.policy import Policy, decide
        >>> points = np.array([[30, 40], [70, 40], [50, 60], [35, 80], [65, 80]], dtype=float)
        >>> large = Detection((10.0, 10.0, 90.0, 100.0), 0.99, points)
        >>> small = Detection((195.0, 195.0, 207.0, 210.0), 0.9, points / 7 + 190)
        >>> exact = {"scale": 1.0, "right": 0.0, "down": 0.0}
        >>> for face in decide([large, small], 400, 300, exact, Policy(min_face=20), "photo.jpg"):
        ...     print(face.describe())
        face 1: 85 px at (50, 55), score 0.99: model
        face 2: 13 px at (201, 202), score 0.90: blur (smaller than 20 px)
    """
    asked = policy.exclude | (policy.select or frozenset())
    if odd := sorted(number for number in asked if not 1 <= number <= len(found)):
        raise UserError(f"{name} has no face {odd[0]}; its faces are 1 to {len(found)}, as --list-faces shows them")
    faces = []
    for number, detection in enumerate(found, 1):
        geometry, reason = _usable(detection, width, height, framing)
        if detection.size < policy.min_face:
            reason = f"smaller than {policy.min_face:g} px"
        treatment: Treatment = policy.small if reason else "model"
        face = Face(number, detection.box, detection.score, geometry, treatment, reason, points=detection.points)
        left = replace(face, treatment="left", reason=policy.why.get(number, "as asked"))
        if policy.wants(number):
            faces.append(face)
        else:
            faces.append(left)
    return faces


def check_aligned(width: int, height: int, name: str) -> None:
    """Refuse what is no aligned face.

    Raises:
        UserError: If the picture is not square, or too small for anybody to be seen.

    Examples:
        >>> from faceanon.photo.policy import check_aligned
        >>> check_aligned(256, 256, "face.png")
        >>> check_aligned(300, 256, "face.png")
        Traceback (most recent call last):
        faceanon.errors.UserError: face.png: an aligned face must be square, not 300x256 px; ...
    """
    if width != height:
        advice = "crop it, or leave --aligned away"
        raise UserError(f"{name}: an aligned face must be square, not {width}x{height} px; {advice}")
    if width < LEAST_SIDE:
        raise UserError(f"{name}: {width}x{height} px are too few for a face; give a larger picture")


def refuse_hopeless(faces: Sequence[Face], name: str) -> None:
    """Stop at a face that must not be hidden in another way.

    Raises:
        UserError: If there is one.
    """
    for face in faces:
        if face.treatment == "refuse":
            advice = "say what hides it by --small-faces"
            raise UserError(f"{name}: face {face.number} cannot be given to the model ({face.reason}); {advice}")


def squares(faces: Sequence[Face]) -> list[CropGeometry]:
    """The squares of the faces that are for the model."""
    geometries = []
    for face in faces:
        if face.geometry is not None and face.treatment == "model":
            geometries.append(face.geometry)
    return geometries


def hidden_window(face: Face, width: int, height: int) -> Box | None:
    """Outside which `hide` changes nothing of a photo of this size; None where it changes nothing at all."""
    if not face.region:
        try:
            return crop_window(_hidden_square(face), width, height)
        # It lies outside the photo: nothing of it is there to be seen.
        except UserError:
            return None
    x1, y1, x2, y2 = face.box
    left, top = max(0, math.floor(x1)), max(0, math.floor(y1))
    right, bottom = min(width, math.ceil(x2)), min(height, math.ceil(y2))
    return (left, top, right, bottom) if left < right and top < bottom else None


def hide(pixels: NDArray[np.uint8], face: Face) -> None:
    """Make a face or a region unrecognisable in place, for good, by its own treatment."""
    window = hidden_window(face, pixels.shape[1], pixels.shape[0])
    if window is None:
        return
    if face.region:
        left, top, right, bottom = window
        part = pixels[top:bottom, left:right]
        small = cv2.resize(part, (HIDDEN_SIZE, HIDDEN_SIZE), interpolation=cv2.INTER_AREA)
        patch = obscured(small.transpose(2, 0, 1).astype(np.float32) / 127.5 - 1, face.treatment)
        shown = ((patch.clip(-1, 1) + 1) * 127.5).round().astype(np.uint8).transpose(1, 2, 0)
        part[:] = cv2.resize(shown, (right - left, bottom - top), interpolation=cv2.INTER_LINEAR)
        return
    square = _hidden_square(face)
    patch = obscured(crop(pixels, square, HIDDEN_SIZE), face.treatment)
    # No corrections: nothing has to be read back from a face that is hidden for good.
    paste(pixels, patch, square, feather=FEATHER, passes=0)


def _hidden_square(face: Face) -> CropGeometry:
    """The square in which a face is hidden; it may lie outside the photo."""
    x1, y1, x2, y2 = face.box
    # Not below 2 px: a box without an area would give a square without a side, which cannot be sampled.
    half = max(x2 - x1, y2 - y1, 2.0) * MARGIN / 2
    return CropGeometry((x1 + x2) / 2, (y1 + y2) / 2, half, 0.0)


def _usable(
    detection: Detection, width: int, height: int, framing: dict[str, float]
) -> tuple[CropGeometry | None, str]:
    """The square for the model, and why it cannot be used."""
    if not np.isfinite(detection.points).all():
        return None, "its points were not found"
    geometry = framed_square(detection.points, framing)
    # A manifest takes no number beyond MAX_SIDE.
    reach = max(abs(geometry.center_x), abs(geometry.center_y), geometry.side)
    if not LEAST_SIDE <= geometry.side <= reach <= MAX_SIDE:
        return None, "its points make no face"
    if _visible(geometry, width, height) < LEAST_VISIBLE:
        return geometry, "most of it lies outside the photo"
    return geometry, ""


def _visible(geometry: CropGeometry, width: int, height: int) -> float:
    """Share of the square that lies within the photo, from a grid of points."""
    steps = (np.arange(16) * 2 + 1) / 16 - 1
    down, right = np.meshgrid(steps, steps, indexing="ij")
    x = geometry.center_x + geometry.axis_x * right - geometry.axis_y * down
    y = geometry.center_y + geometry.axis_y * right + geometry.axis_x * down
    return float(((x >= 0) & (x < width) & (y >= 0) & (y < height)).mean())
