"""Occluders with a true mask, drawn over any picture.

Each occluder comes beside the same face without it, so that a figure under occlusion has its figure without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from faceanon.data.faces import Reader
from faceanon.data.files import Photo, UnreadableError
from faceanon.data.streams import stream
from faceanon.photo.detect import Detector
from faceanon.studies.occlusion.shapes import Canvas, capsule, flat, hsv
from faceanon.types import FaceBatch


@dataclass(frozen=True)
class Occlusion:
    """Faces that wear something.

    Args:
        image: `(B, 3, S, S)` float32 on 256 levels in [-1, 1].
        mask: `(B, S, S)` bool, the pixels of the occluder; shadows and soft edges are not in it.
    """

    image: Tensor
    mask: Tensor


@dataclass(frozen=True)
class OccludedBatch:
    """Faces, and the same faces with each kind of occluder.

    Args:
        plain: The faces without.
        worn: The faces with it, by kind, row by row those of `plain`.
        numbers: Of every picture over the whole test, from which its keys are drawn.
    """

    plain: FaceBatch
    worn: dict[str, Occlusion]
    numbers: list[int]

    def to(self, device: torch.device | str) -> OccludedBatch:
        """The same batch with every tensor on `device`."""
        worn = {}
        for kind, item in self.worn.items():
            worn[kind] = Occlusion(item.image.to(device), item.mask.to(device))
        return OccludedBatch(self.plain.to(device), worn, self.numbers)


@dataclass(frozen=True)
class _Frame:
    """Coordinates of a face: eyes at (-.5, 0) and (.5, 0), the mouth's middle at v = 1; planes `(B, S, S)`.

    Args:
        u: Across, in distances between the eyes.
        v: Down, in distances from eyes to mouth.
        scale: `(B, 1, 1)` distance between the eyes in half sides of the picture.
        style: `(B, 4)` uniform in [0, 1], what is free in an occluder.
        skin: `(B, 3, 1, 1)` colour of the face in [0, 1].
    """

    u: Tensor
    v: Tensor
    scale: Tensor
    style: Tensor
    skin: Tensor

    def free(self, column: int) -> Tensor:
        """One column of `style`, `(B, 1, 1)`."""
        return self.style[:, column, None, None]


def draw(kind: str, image: Tensor, points: Tensor, numbers: Sequence[int], seed: int = 0) -> Occlusion:
    """Draw a simple occluder over any faces.

    Args:
        kind: One of `DRAWN`.
        image: `(B, 3, S, S)` in [-1, 1].
        points: `(B, 5, 2)` x, y in [-1, 1]: eye at the left of the picture, eye at the right, nose, mouth corner at the
            left, at the right.
        numbers: One a picture; colour and place follow from it and `seed`, whatever the batch.
        seed: Of colours and places.

    Raises:
        ValueError: No such kind, or tensors that do not fit each other.
    """
    if kind not in DRAWN:
        raise ValueError(f"drawn occluders are {', '.join(DRAWN)}, not {kind!r}")
    if points.shape != (len(image), 5, 2) or len(numbers) != len(image):
        raise ValueError(f"{len(image)} pictures need points ({len(image)}, 5, 2) and as many numbers")
    blank = torch.zeros(len(image), *image.shape[2:], dtype=torch.long, device=image.device)
    # The canvas has colours in [0, 1]; its labels are 1 where an occluder lies, else 0.
    canvas = Canvas((image + 1) / 2, blank, pixel=2.0 / image.shape[-1])
    rows = []
    for number in numbers:
        rows.append(torch.rand(4, generator=stream("occlusion", seed, kind, number)))
    DRAWN[kind](canvas, _frame(image, points, torch.stack(rows).to(image)))
    # To 8 bits, as a file would hold the picture.
    return Occlusion((canvas.image * 255).round() / 127.5 - 1, canvas.parsing > 0)


def _frame(image: Tensor, points: Tensor, style: Tensor) -> _Frame:
    left, right, nose, mouth_left, mouth_right = points.unbind(1)
    eyes = (left + right) / 2
    across = right - left
    # Two eyes in one place would have no direction.
    scale = across.norm(dim=1).clamp_min(1e-3)
    # y points down in a picture, so a quarter turn of this direction points from the eyes to the mouth.
    right_way = across / scale[:, None]
    down_way = torch.stack([-right_way[:, 1], right_way[:, 0]], 1)
    height = (((mouth_left + mouth_right) / 2 - eyes) * down_way).sum(1)
    # Points of a profile may lie in one line.
    height = torch.maximum(height, 0.5 * scale)
    size = image.shape[-1]
    # Centres of the pixels.
    steps = (torch.arange(size, device=image.device) * 2 + 1) / size - 1
    down, along = torch.meshgrid(steps, steps, indexing="ij")
    offset = torch.stack([along, down]) - eyes[:, :, None, None]  # (B, 2, S, S)
    u = (offset * right_way[:, :, None, None]).sum(1) / scale[:, None, None]
    v = (offset * down_way[:, :, None, None]).sum(1) / height[:, None, None]
    # Three places, since any single one may lie in a beard or in a shadow.
    cheeks = torch.stack([(left + mouth_left) / 2, (right + mouth_right) / 2, nose], 1)
    skin = functional.grid_sample(image, cheeks[:, :, None], padding_mode="border", align_corners=False)
    return _Frame(u, v, scale[:, None, None], style, (skin.mean((2, 3))[:, :, None, None] + 1) / 2)


def _glasses(canvas: Canvas, face: _Frame) -> None:
    """Frame, bridge and temples; dark lenses on every other face, clear ones otherwise."""
    u = face.u.abs() - 0.5
    v = face.v - 0.03
    power = 2.5 + 2 * face.free(0)
    # A superellipse, so that lenses are between round and square.
    radius = ((u.abs() + 1e-4) ** power + (v.abs() * 1.25 + 1e-4) ** power) ** (1 / power)
    rim = (radius - 0.38).abs() - 0.035
    bridge = torch.maximum((v + 0.06).abs() - 0.03, face.u.abs() - 0.15)
    temple = torch.maximum((v + 0.06).abs() - 0.03, (face.u.abs() - 1.05).abs() - 0.19)
    frame = torch.minimum(rim, torch.minimum(bridge, temple))
    dark = (face.free(1) > 0.5).float()
    # Lenses before the frame, which lies over their edge.
    lens = canvas.cover((radius - 0.38) * face.scale) * (0.1 + 0.75 * dark)
    canvas.paint(lens, flat(u, 0.06, 0.06, 0.08))
    # Clear lenses are too faint to be marked: the eyes behind them stay part of the face.
    canvas.mark(lens, 1)
    colour = hsv(face.free(2), 0.5, 0.15 + 0.4 * face.free(3))
    canvas.paint(canvas.cover(frame * face.scale), colour, 1)


def _mask(canvas: Canvas, face: _Frame) -> None:
    """A pleated cloth from the nose to below the chin, with loops to the ears."""
    u = face.u
    v = face.v
    top = 0.42 + 0.14 * u * u - 0.12 * face.free(0)
    narrow = u / (1.16 - 0.2 * (v - 0.4).clamp(0, 1.5))  # towards the chin
    cloth = ((narrow.abs() + 1e-4) ** 3 + (((v - 1.1) / 0.85).abs() + 1e-4) ** 3) ** (1 / 3) - 1
    cloth = torch.maximum(cloth, top - v)
    loop = torch.maximum((v - 0.66 + 0.5 * (u.abs() - 1)).abs() - 0.03, (u.abs() - 1.15).abs() - 0.2)
    # Loops before the cloth, which covers their inner ends.
    canvas.paint(canvas.cover(loop * face.scale), flat(u, 0.88, 0.88, 0.88), 1)
    shade = (0.94 + 0.06 * torch.sin(22 * (v - top))) * (1.03 - 0.25 * u * u)
    colour = hsv(face.free(1), 0.1 + 0.3 * face.free(2), 0.55 + 0.4 * face.free(3))
    canvas.paint(canvas.cover(cloth * face.scale), (colour * shade[:, None]).clamp(0, 1), 1)


def _hand(canvas: Canvas, face: _Frame) -> None:
    """A hand raised from below over a cheek and the mouth, in the skin's own colour."""
    side = torch.where(face.free(0) < 0.5, -1.0, 1.0)
    angle = side * (-0.2 - 0.35 * face.free(1))
    du = face.u - side * (0.25 + 0.3 * face.free(2))
    dv = face.v - 1.5
    x = angle.cos() * du + angle.sin() * dv
    y = angle.cos() * dv - angle.sin() * du
    zero = torch.zeros_like(angle)
    # The palm, then four fingers, then the thumb, in coordinates of the hand with the fingers upwards.
    parts = [capsule(x, y, (zero, zero + 0.1), (zero, zero + 3.0), 0.36)]
    for number, length in enumerate((0.8, 0.98, 1.05, 0.92)):
        base = side * (number - 1.5) * 0.2
        tip = side * (number - 1.5) * 0.24
        parts.append(capsule(x, y, (base, zero), (tip, zero - length), 0.1))
    parts.append(capsule(x, y, (-side * 0.3, zero + 0.2), (-side * 0.6, zero - 0.3), 0.11))
    distance = torch.stack(parts).amin(0)
    lit = 0.7 + 0.3 * (-distance / 0.1).clamp(0, 1)
    skin = face.skin * (0.85 + 0.2 * face.free(3))[:, None]
    canvas.paint(canvas.cover(distance * face.scale), (skin * lit[:, None]).clamp(0, 1), 1)


DRAWN: dict[str, Callable[[Canvas, _Frame], None]] = {"glasses": _glasses, "mask": _mask, "hand": _hand}
"""Function that draws an occluder onto photographs, by its kind."""


def photo_batches(
    photos: Sequence[Photo], size: int, detector: Detector, batch: int, left_out: list[str]
) -> Iterator[OccludedBatch]:
    """Photographs of aligned faces, bare and with every drawn occluder, placed by the detector's five points.

    Args:
        photos: The pictures; equal names of persons are one person.
        size: Side S in pixels at which they are read.
        detector: Finds the points.
        batch: Pictures in a batch.
        left_out: Gets a line for each picture that cannot be read, or in which the detector finds no face.
    """
    people = {}
    for index, name in enumerate(sorted({photo.identity or "" for photo in photos})):
        people[name] = index
    read = Reader(size)
    for start in range(0, len(photos), batch):
        rows = []
        # Counted over all photos, also those left out: keys and colours follow from this number.
        for number, photo in enumerate(photos[start : start + batch], start):
            try:
                (pixels, _), _ = read(photo)
            except UnreadableError as error:
                left_out.append(str(error))
                continue
            face = next(iter(detector.detect(pixels)), None)
            if face is None:
                left_out.append(f"{photo.name}: the detector finds no face")
                continue
            if photo.identity is None:
                label = -1
            else:
                label = people[photo.identity]
            rows.append((torch.tensor(pixels), torch.from_numpy(face.points).float(), label, number))
        if rows:
            yield _photo_batch(rows, size)


def _photo_batch(rows: Sequence[tuple[Tensor, Tensor, int, int]], size: int) -> OccludedBatch:
    """Pixels `(S, S, 3)` uint8, points `(5, 2)` in pixels, person and number of each picture."""
    pixels, points, labels, numbers = zip(*rows, strict=True)
    image = torch.stack(pixels).permute(0, 3, 1, 2).float().div(127.5).sub(1)
    plain = FaceBatch(image, torch.tensor(labels), torch.full((len(rows),), -1))
    places = torch.stack(points) * 2 / size - 1
    worn = {}
    for kind in DRAWN:
        worn[kind] = draw(kind, image, places, numbers)
    return OccludedBatch(plain, worn, list(numbers))
