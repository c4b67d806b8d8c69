"""Photos under review: what was found in each, what the visitor made of it on the screen, and whether it was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ImageColor

from faceanon.errors import UserError
from faceanon.photo.boxes import Choice, DecidedBox, DecidedPhoto, Decisions

if TYPE_CHECKING:
    from faceanon.web.film import ReviewedFilm

LARGEST = 1200  # px; longer side of a photo on the screen, on which boxes are drawn
CORNERS = ("xmin", "ymin", "xmax", "ymax")
NEAR = 1.5  # px of the screen by which a box that nobody touched may have moved by rounding
COLOURS = {"stranger": "#0d9488", "keep": "#64748b", "blur": "#dc2626", "pixelate": "#c2410c", "mask": "#1f2937"}
# What a box says on the screen: the choice, and how many strangers of the key are passed over.
LABELS: Mapping[str, tuple[Choice, int]] = {
    "stranger": ("stranger", 0),
    "another stranger": ("stranger", 1),
    "a third stranger": ("stranger", 2),
    "stays as it is": ("keep", 0),
    "blur for good": ("blur", 0),
    "pixels for good": ("pixelate", 0),
    "grey for good": ("mask", 0),
}

ScreenBox = dict[str, Any]
"""A box as the page's component takes and gives it: xmin, ymin, xmax, ymax in pixels of the screen, label, color."""


@dataclass
class ReviewedPhoto:
    """One photo.

    Args:
        path: As uploaded.
        found: What was found in it; None until it is looked at.
        boxes: As the visitor left them.
        seen: Whether the visitor said so.
        failed: Why it cannot be used; empty where it can.
    """

    path: Path
    found: DecidedPhoto | None = None
    boxes: list[ScreenBox] = field(default_factory=list)
    seen: bool = False
    failed: str = ""

    def show(self, found: DecidedPhoto) -> None:
        """Put what was found on the screen."""
        self.found = found
        self.boxes = [_labelled(box, self._scale) for box in found.boxes]

    def screen(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The photo `(H, W, 3)` uint8 as it is shown; not kept, since a hundred of them would fill the memory."""
        assert self.found is not None
        size = screen_size(self.found.width, self.found.height)
        return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA).astype(np.uint8)

    def line(self) -> str:
        """What was found, for people."""
        assert self.found is not None
        boxes = self.found.boxes
        if not boxes:
            return "No face found. Draw a box around each that you see."
        scores = ", ".join(f"{box.score:.2f}" for box in boxes)
        found = f"Found: {len(boxes)} face{'s' if len(boxes) != 1 else ''}, scores {scores}."
        return f"{found} Draw a box around who is missing, remove a wrong one."

    def decided(self) -> tuple[DecidedPhoto]:
        """What the boxes on the screen say; a box that was drawn for something else than a stranger is a region."""
        assert self.found is not None
        boxes = []
        for box in self.boxes:
            corners = [box[name] / axis for name, axis in zip(CORNERS, self._scale * 2, strict=True)]
            choice, stranger = LABELS.get(str(box.get("label")), ("stranger", 0))
            own = self._untouched(corners)
            if own is None:
                region = choice not in ("stranger", "keep")
                own = DecidedBox((corners[0], corners[1], corners[2], corners[3]), region=region)
            boxes.append(replace(own, choice=choice, stranger=stranger))
        return (replace(self.found, boxes=tuple(boxes)),)

    @property
    def colours(self) -> dict[str, str]:
        """By what a box may say."""
        return {label: COLOURS[choice] for label, (choice, _) in LABELS.items()}

    @property
    def _scale(self) -> tuple[float, float]:
        assert self.found is not None
        return screen_scale(self.found.width, self.found.height)

    def _untouched(self, corners: Sequence[float]) -> DecidedBox | None:
        """The box that was found here: it knows its eyes and its score."""
        assert self.found is not None
        for box in self.found.boxes:
            if max(abs(one - other) for one, other in zip(corners, box.box, strict=True)) <= NEAR / min(self._scale):
                return box
        return None


@dataclass
class Review:
    """All photos and films of one visitor, one of them on the screen.

    Args:
        photos: In the order in which they came.
        given: A file of boxes that came with them; in its photos nothing is searched for.
        index: Of the photo on the screen.
    """

    photos: list[ReviewedPhoto | ReviewedFilm]
    given: Decisions | None = None
    index: int = 0

    @property
    def current(self) -> ReviewedPhoto | ReviewedFilm:
        """What is on the screen."""
        return self.photos[self.index]

    def step(self, by: int) -> None:
        """Go on by so many photos, not beyond the first and the last."""
        self.index = min(max(self.index + by, 0), len(self.photos) - 1)

    def unseen(self) -> int | None:
        """Number from 1 of the first photo that nobody has looked at, or None."""
        for number, photo in enumerate(self.photos, 1):
            if not photo.seen:
                return number
        return None


def screen_size(width: int, height: int) -> tuple[int, int]:
    """Of a photo of this size, on the screen, in pixels."""
    factor = min(1.0, LARGEST / max(width, height))
    return max(1, round(width * factor)), max(1, round(height * factor))


def screen_scale(width: int, height: int) -> tuple[float, float]:
    """Pixels of the screen over those of a photo of this size, right and down."""
    wide, high = screen_size(width, height)
    return wide / width, high / height


def on_screen(corners: Sequence[float], scale: tuple[float, float]) -> ScreenBox:
    """A box on the screen, from x1, y1, x2, y2 in the photo and the scale right and down."""
    return {name: round(value * axis) for name, value, axis in zip(CORNERS, corners, scale * 2, strict=True)}


def coloured(box: ScreenBox, label: str, colour: str) -> ScreenBox:
    """The box with its label and a colour such as `#0d9488`."""
    return {**box, "label": label, "color": ImageColor.getrgb(colour)}


def as_lines(boxes: Sequence[ScreenBox]) -> str:
    """Boxes as text, one a line: left, top, right and bottom edge in pixels of the screen, and what the box says."""
    lines = []
    for box in boxes:
        edges = " ".join(str(round(box[name])) for name in CORNERS)
        lines.append(f"{edges} {box.get('label', '')}".rstrip())
    return "\n".join(lines)


def from_lines(text: str, colours: Mapping[str, str]) -> list[ScreenBox]:
    """Boxes of such text.

    Args:
        text: As `as_lines` writes it; empty lines count for nothing.
        colours: By what a box may say.

    Raises:
        UserError: A line is no box.
    """
    boxes = []
    for number, line in enumerate(text.splitlines(), 1):
        *edges, label = line.split(maxsplit=len(CORNERS)) or [""]
        if not label:
            continue
        if len(edges) != len(CORNERS) or not all(edge.isdecimal() for edge in edges):
            raise UserError(f"line {number}: give left, top, right, bottom in pixels, and what the box is")
        left, top, right, bottom = map(int, edges)
        if left >= right or top >= bottom:
            raise UserError(f"line {number}: the right edge lies right of the left one, the bottom below the top")
        if label not in colours:
            raise UserError(f"line {number}: no {label!r:.40}; a box is one of: {', '.join(colours)}")
        boxes.append(coloured(dict(zip(CORNERS, (left, top, right, bottom), strict=True)), label, colours[label]))
    return boxes


def _labelled(box: DecidedBox, scale: tuple[float, float]) -> ScreenBox:
    shown = on_screen(box.box, scale)
    for label, (choice, stranger) in LABELS.items():
        # Of strangers further on than the page can name, the last one stands for them.
        if choice == box.choice and stranger <= box.stranger:
            shown = coloured(shown, label, COLOURS[choice])
    return shown
