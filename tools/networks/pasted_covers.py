"""Covers for faces: what hides a part of a face in a photograph, drawn onto photographs that show whole faces.

Used by train_cover_finder.py. Everything works on a picture of 256 px in FFHQ's frame. A cover is a picture of colours
and a map of how much of each pixel it takes. Nothing here is a photograph of a real thing: hands are fans of capsules,
masks are polygons along the mesh; skin, hair and cloth are cut out of other pictures of the same folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.landmarks.drawings import LEFT_BROW, LEFT_EYE, OUTER_LIPS, OUTLINE, RIGHT_BROW, RIGHT_EYE

SIDE = 256
FINE = 2  # covers are drawn at so many times the size, and shrunk

# Points of the mesh: the jaw from the picture's right ear over the chin to the left one, and a line across the face.
JAW = (454, 323, 361, 288, 397, 365, 379, 378, 400, 377, 152, 148, 176, 149, 150, 136, 172, 58, 132, 93, 234)
LEFT_TOP = (234, 227, 117, 118, 100)
RIGHT_TOP = (329, 347, 346, 447, 454)
CHEEKS = (50, 280, 205, 425)
FOREHEAD = (103, 67, 109, 10, 338, 297, 332)

Picture = NDArray[np.float32]
Random = np.random.Generator


@dataclass(frozen=True)
class Face:
    """A photograph and where its face is.

    Args:
        pixels: RGB `(256, 256, 3)` float32 in [0, 1].
        mesh: `(468, 2)` points in pixels.
    """

    pixels: Picture
    mesh: Picture

    @property
    def middle(self) -> Picture:
        """The middle of the face, `(2,)`."""
        found: Picture = self.mesh[list(OUTLINE)].mean(0)
        return found

    @property
    def width(self) -> float:
        """Width of the face in pixels."""
        return float(np.linalg.norm(self.mesh[454] - self.mesh[234]))

    def skin(self, random: Random) -> Picture:
        """The colour of a cheek, `(3,)`."""
        place = self.mesh[random.choice(CHEEKS)].clip(6, SIDE - 7).astype(int)
        patch = self.pixels[place[1] - 5 : place[1] + 6, place[0] - 5 : place[0] + 6]
        colour: Picture = np.median(patch.reshape(-1, 3), 0)
        return colour


@dataclass(frozen=True)
class Cover:
    """Something in front of a face.

    Args:
        colour: `(256, 256, 3)` in [0, 1].
        alpha: `(256, 256)`, the share of a pixel that it takes.
    """

    colour: Picture
    alpha: Picture


# --- shapes


def blank() -> Picture:
    """A map of nothing, at the size in which covers are drawn."""
    return np.zeros((FINE * SIDE, FINE * SIDE), np.float32)


def shrunk(large: Picture) -> Picture:
    """A drawing at the picture's size."""
    small: Picture = cv2.resize(large, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    return small


def polygon(points: Picture) -> Picture:
    """A filled polygon through points `(N, 2)` in pixels."""
    sheet = blank()
    cv2.fillPoly(sheet, [np.round(points * FINE).astype(np.int32)], 1.0)
    return shrunk(sheet)


def smooth(points: Picture, times: int = 8) -> Picture:
    """More points along a closed curve through points `(N, 2)`, by Catmull and Rom."""
    found = []
    count = len(points)
    for number in range(count):
        before, first, second, after = (points[(number + step) % count] for step in (-1, 0, 1, 2))
        for share in np.linspace(0, 1, times, endpoint=False):
            cubic = -before + 3 * first - 3 * second + after
            square = 2 * before - 5 * first + 4 * second - after
            found.append(0.5 * (2 * first + (second - before) * share + square * share**2 + cubic * share**3))
    return np.array(found, np.float32)


def waves(random: Random, coarse: int, strength: float, channels: int = 1) -> Picture:
    """Soft random shading `(256, 256, channels)` around 1; `coarse` knots a side."""
    knots = random.normal(0, strength, (coarse, coarse, channels)).astype(np.float32)
    large = cv2.resize(knots, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC).reshape(SIDE, SIDE, channels)
    return 1 + large.astype(np.float32)


def relief(alpha: Picture, random: Random, depth: float) -> Picture:
    """Shading of a round body: darker towards its border and away from a light, `(256, 256, 1)`."""
    inside = cv2.distanceTransform((alpha > 0.5).astype(np.uint8), cv2.DIST_L2, 3)
    top = max(float(np.percentile(inside[inside > 0], 95)), 1.0) if (inside > 0).any() else 1.0
    height = np.sqrt((inside / top).clip(0, 1))
    height = cv2.GaussianBlur(height, (0, 0), 1.5)
    across = cv2.Sobel(height, cv2.CV_32F, 1, 0, ksize=3)
    down = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3)
    angle = random.uniform(0, 2 * np.pi)
    slope = across * np.cos(angle) + down * np.sin(angle)
    shade = 1 - depth * (1 - height) + 0.6 * depth * slope
    lit: Picture = shade.clip(0.3, 1.4)[..., None].astype(np.float32)
    return lit


def any_colour(random: Random) -> Picture:
    """A colour; greys, black and white are more frequent than in a cube of colours."""
    value = random.random(3).astype(np.float32)
    kind = random.random()
    if kind < 0.2:
        value = np.full(3, random.uniform(0.01, 0.15), np.float32)
    elif kind < 0.4:
        value = np.full(3, random.uniform(0.75, 0.97), np.float32)
    elif kind < 0.55:
        value = np.full(3, random.uniform(0.2, 0.7), np.float32)
    return value


def texture(random: Random, other: Face) -> Picture:
    """A pattern `(256, 256, 3)`: plain, dots, stripes, checks, or what stands around the face in another picture."""
    first = any_colour(random)
    kind = random.random()
    if kind < 0.3:
        return np.broadcast_to(first, (SIDE, SIDE, 3)).astype(np.float32)
    if kind < 0.6:
        return surroundings(random, other)
    second = any_colour(random)
    period = random.uniform(6, 40)
    angle = random.uniform(0, np.pi)
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    along = columns * np.cos(angle) + rows * np.sin(angle)
    beside = rows * np.cos(angle) - columns * np.sin(angle)
    if kind < 0.75:
        pattern = (along % period) / period < random.uniform(0.2, 0.6)
    elif kind < 0.88:
        x = (along % period) / period - 0.5
        y = (beside % period) / period - 0.5
        pattern = x * x + y * y < random.uniform(0.03, 0.15)
    else:
        pattern = ((along // period) + (beside // period)) % 2 < 1
    share = cv2.GaussianBlur(pattern.astype(np.float32), (0, 0), 0.7)[..., None]
    mixed: Picture = first * (1 - share) + second * share
    return mixed


def surroundings(random: Random, other: Face) -> Picture:
    """A picture filled with a piece of what stands beside or below another face, turned and enlarged."""
    size = int(random.integers(40, 80))
    corner = None
    for _ in range(8):
        place = random.integers(0, SIDE - size, 2)
        away = np.abs(place + size / 2 - other.middle)
        if away[0] > other.width * 0.5 + size / 2 or away[1] > other.width * 0.65 + size / 2:
            corner = place
            break
    if corner is None:
        left = random.random() < 0.5
        corner = np.array([0 if left else SIDE - size, SIDE - size])
    piece = other.pixels[corner[1] : corner[1] + size, corner[0] : corner[0] + size]
    piece = np.rot90(piece, int(random.integers(0, 4)))
    large: Picture = cv2.resize(piece, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC).clip(0, 1).astype(np.float32)
    return large


def skin_patch(random: Random, other: Face) -> Picture:
    """A picture filled with another person's skin."""
    place = other.mesh[random.choice(CHEEKS)].clip(14, SIDE - 15).astype(int)
    piece = other.pixels[place[1] - 12 : place[1] + 12, place[0] - 12 : place[0] + 12]
    large = cv2.resize(piece, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC).astype(np.float32)
    detail = large - cv2.GaussianBlur(large, (0, 0), 40)
    filled: Picture = (other.skin(random) + 0.8 * detail).clip(0, 1)
    return filled


# --- covers


def medical_mask(random: Random, face: Face, other: Face) -> Cover:
    """A mask over mouth and chin, most often over the nose too: surgical, folded or of cloth."""
    mesh = face.mesh
    height = random.uniform(0.1, 0.75)
    if random.random() < 0.12:
        height = random.uniform(0.9, 1.1)
    nose = mesh[6] * (1 - height) + mesh[1] * height
    start = int(random.integers(0, 3))
    left = mesh[list(LEFT_TOP)]
    right = mesh[list(RIGHT_TOP)]
    # The upper edge runs from a point before the ear to the nose; the lower it sits there, the lower it runs.
    drop = (mesh[2] - mesh[6]) * max(0.0, height - 0.2) * random.uniform(0.5, 1.0)
    left = left[start:] + drop + random.normal(0, 2, (len(left) - start, 2))
    right = right[: len(right) - start] + drop + random.normal(0, 2, (len(right) - start, 2))
    jaw = mesh[list(JAW)][start + 1 : len(JAW) - start - 1]
    jaw = (jaw - face.middle) * random.uniform(0.98, 1.12) + face.middle
    points = np.concatenate([left, nose[None], right, jaw]).astype(np.float32)
    points = smooth(points + random.normal(0, 0.8, points.shape).astype(np.float32), 4)
    alpha = polygon(points)
    kind = random.random()
    if kind < 0.3:
        base = np.array([0.55, 0.75, 0.85]) + random.normal(0, 0.08, 3)
        colour = np.broadcast_to(base, (SIDE, SIDE, 3)).astype(np.float32)
    elif kind < 0.55:
        colour = np.full((SIDE, SIDE, 3), random.uniform(0.78, 0.97), np.float32)
    elif kind < 0.7:
        colour = np.full((SIDE, SIDE, 3), random.uniform(0.02, 0.18), np.float32)
    else:
        colour = texture(random, other)
    colour = colour * mask_folds(random, face)
    return Cover(colour * waves(random, 6, 0.05) * relief(alpha, random, random.uniform(0.1, 0.35)), alpha)


def mask_folds(random: Random, face: Face) -> Picture:
    """Shading of a mask's folds, `(256, 256, 1)`: pleats across, an edge along the middle, or none."""
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    down = face.mesh[152] - face.mesh[6]
    length = float(np.linalg.norm(down))
    down = down / length
    along = (columns - face.mesh[6][0]) * down[0] + (rows - face.mesh[6][1]) * down[1]
    beside = (columns - face.mesh[6][0]) * down[1] - (rows - face.mesh[6][1]) * down[0]
    shade = np.ones((SIDE, SIDE), np.float32)
    kind = random.random()
    if kind < 0.5:
        for place in np.sort(random.uniform(0.35, 0.85, int(random.integers(2, 5)))):
            bent = along - length * place - beside**2 / length * random.uniform(-0.4, 0.5)
            shade -= random.uniform(0.08, 0.3) * np.exp(-(bent**2) / random.uniform(1.0, 6.0))
            shade += random.uniform(0.0, 0.1) * np.exp(-((bent - 4) ** 2) / 8)
    elif kind < 0.75:
        shade += random.uniform(0.05, 0.2) * np.sign(beside) * np.exp(-np.abs(beside) / 30)
        shade -= random.uniform(0.0, 0.2) * np.exp(-(beside**2) / 3)
    return shade[..., None]


def capsule(sheet: Picture, start: Picture, end: Picture, radius: float) -> None:
    """Draw a line with round ends onto a sheet."""
    first = tuple(np.round(start * FINE).astype(int).tolist())
    second = tuple(np.round(end * FINE).astype(int).tolist())
    cv2.line(sheet, first, second, 1.0, max(1, round(2 * radius * FINE)))


def hand(random: Random, face: Face, other: Face) -> Cover:
    """A palm with fingers and an arm, in somebody's skin colour."""
    target = _spot(random, face)
    angle = random.uniform(0, 2 * np.pi)
    if random.random() < 0.7:
        # Most hands come from below.
        angle = random.normal(np.pi / 2, 0.6)
    away = np.array([np.cos(angle), np.sin(angle)], np.float32)
    size = face.width * random.uniform(0.09, 0.17)
    palm = target + away * size * random.uniform(0.3, 2.2)
    fingers = int(random.integers(0, 6))
    spread = random.uniform(0.08, 0.3)
    thickness = size * random.uniform(0.3, 0.5)
    parts = []
    arm = blank()
    capsule(arm, palm, palm + away * SIDE, size * random.uniform(0.7, 1.0))
    parts.append(shrunk(arm))
    middle = blank()
    axes = (round(size * FINE * random.uniform(0.9, 1.2)), round(size * FINE * random.uniform(0.8, 1.1)))
    place = tuple(np.round(palm * FINE).astype(int).tolist())
    cv2.ellipse(middle, place, axes, np.degrees(angle), 0, 360, 1.0, -1)
    parts.append(shrunk(middle))
    for number in range(fingers):
        turn = angle + np.pi + (number - (fingers - 1) / 2) * spread + random.normal(0, 0.06)
        way = np.array([np.cos(turn), np.sin(turn)], np.float32)
        side = np.array([-way[1], way[0]], np.float32) * (number - (fingers - 1) / 2) * thickness * 1.5
        root = palm + side * 0.9
        joint = root + way * size * random.uniform(0.9, 1.4)
        bend = turn + random.normal(0, 0.35)
        tip = joint + np.array([np.cos(bend), np.sin(bend)], np.float32) * size * random.uniform(0.4, 1.1)
        finger = blank()
        capsule(finger, root, joint, thickness)
        capsule(finger, joint, tip, thickness * 0.9)
        parts.append(shrunk(finger))
    owner = other if random.random() < 0.6 else face
    skin = skin_patch(random, owner) * random.uniform(0.75, 1.15)
    colour = np.zeros((SIDE, SIDE, 3), np.float32)
    alpha = np.zeros((SIDE, SIDE), np.float32)
    depth = random.uniform(0.25, 0.6)
    for part in parts:
        shade = relief(part, random, depth)
        # A finger throws a little shadow on what lies behind it.
        shadow = cv2.GaussianBlur(part, (0, 0), 3)[..., None]
        colour = colour * (1 - 0.45 * shadow * (1 - part[..., None]))
        colour = colour * (1 - part[..., None]) + skin * shade * part[..., None]
        alpha = np.maximum(alpha, part)
    return Cover(colour * waves(random, 5, 0.04, 3), alpha)


def microphone(random: Random, face: Face, other: Face) -> Cover:
    """A round head before the mouth, on a stick."""
    mouth = face.mesh[list(OUTER_LIPS)].mean(0)
    place = mouth + random.normal(0, face.width * 0.12, 2) + np.array([0, face.width * 0.08])
    radius = face.width * random.uniform(0.1, 0.22)
    angle = random.normal(np.pi / 2, 0.6)
    away = np.array([np.cos(angle), np.sin(angle)])
    head = blank()
    axes = (round(radius * FINE), round(radius * FINE * random.uniform(0.8, 1.3)))
    cv2.ellipse(head, tuple(np.round(place * FINE).astype(int).tolist()), axes, np.degrees(angle), 0, 360, 1.0, -1)
    stick = blank()
    capsule(stick, place, place + away * SIDE, radius * random.uniform(0.35, 0.7))
    ball = shrunk(head)
    bar = shrunk(stick)
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    net = 0.5 + 0.25 * (np.sin(rows * random.uniform(1, 2.5)) + np.sin(columns * random.uniform(1, 2.5)))
    dark = any_colour(random) if random.random() < 0.3 else np.full(3, random.uniform(0.03, 0.4), np.float32)
    front = dark * (0.7 + 0.6 * net[..., None]) * relief(ball, random, 0.5)
    handle = any_colour(random) * random.uniform(0.2, 0.8) * relief(bar, random, 0.4)
    colour = handle * (1 - ball[..., None]) + front * ball[..., None]
    return Cover(colour.astype(np.float32), np.maximum(ball, bar))


def cup(random: Random, face: Face, other: Face) -> Cover:
    """A cup or a glass that stands before the mouth."""
    mouth = face.mesh[list(OUTER_LIPS)].mean(0) + random.normal(0, face.width * 0.05, 2)
    half = face.width * random.uniform(0.13, 0.3)
    long = half * random.uniform(1.5, 3.0)
    narrow = half * random.uniform(0.6, 1.0)
    turn = random.normal(0, 0.35)
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    corners = np.array([[-half, 0], [half, 0], [narrow, long], [-narrow, long]]) @ matrix.T + mouth
    body = polygon(corners.astype(np.float32))
    rim = blank()
    axes = (round(half * FINE), round(half * FINE * random.uniform(0.1, 0.35)))
    cv2.ellipse(rim, tuple(np.round(mouth * FINE).astype(int).tolist()), axes, np.degrees(turn), 0, 360, 1.0, -1)
    edge = shrunk(rim)
    alpha = np.maximum(body, edge)
    colour = texture(random, other) * relief(body, random, 0.4)
    colour = colour * (1 - edge[..., None] * random.uniform(0.1, 0.5))
    if random.random() < 0.5:
        hold = hand(random, Face(face.pixels, face.mesh + np.array([0, long * 0.6], np.float32)), other)
        colour = colour * (1 - hold.alpha[..., None]) + hold.colour * hold.alpha[..., None]
        alpha = np.maximum(alpha, hold.alpha)
    return Cover(colour.astype(np.float32), alpha)


def bar(random: Random, face: Face, other: Face) -> Cover:
    """A bar, a telephone or a pole across the face."""
    middle = _spot(random, face)
    long = SIDE * random.uniform(0.15, 1.0)
    half = face.width * random.uniform(0.06, 0.2)
    turn = random.uniform(0, np.pi)
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    corners = np.array([[-long, -half], [long, -half], [long, half], [-long, half]]) @ matrix.T + middle
    alpha = polygon(corners.astype(np.float32))
    return Cover(texture(random, other) * relief(alpha, random, random.uniform(0, 0.4)), alpha)


def blob(random: Random, face: Face, other: Face) -> Cover:
    """A thing of any shape with an angular or round outline: cloth, leaves, food, somebody's shoulder."""
    middle = _spot(random, face)
    count = int(random.integers(4, 10))
    turns = np.sort(random.uniform(0, 2 * np.pi, count))
    radii = face.width * random.uniform(0.12, 0.4) * random.uniform(0.5, 1.5, count)
    points = (middle + np.stack([np.cos(turns), np.sin(turns)], 1) * radii[:, None]).astype(np.float32)
    if random.random() < 0.6:
        points = smooth(points)
    alpha = polygon(points)
    return Cover(texture(random, other) * relief(alpha, random, random.uniform(0, 0.5)), alpha)


def scarf(random: Random, face: Face, other: Face) -> Cover:
    """Cloth from below with a wavy upper edge."""
    mouth = face.mesh[list(OUTER_LIPS)].mean(0)
    height = mouth[1] + face.width * random.uniform(-0.35, 0.3)
    columns = np.linspace(-20, SIDE + 20, 9)
    bend = ((columns - face.middle[0]) / face.width) ** 2 * face.width * random.uniform(-0.5, 0.5)
    top = np.stack([columns, height - bend + random.normal(0, face.width * 0.03, 9)], 1)
    around = np.concatenate([top, [[SIDE + 60, SIDE + 60], [-60, SIDE + 60]]]).astype(np.float32)
    alpha = polygon(smooth(around))
    return Cover(texture(random, other) * waves(random, int(random.integers(4, 14)), 0.15), alpha)


def hat(random: Random, face: Face, other: Face) -> Cover:
    """A hat, a cap, a headscarf or a headband over the forehead."""
    brow = face.mesh[list(LEFT_BROW + RIGHT_BROW)].mean(0)
    top = face.mesh[10]
    share = random.uniform(0.15, 0.85)
    line = top[1] * (1 - share) + brow[1] * share
    columns = np.linspace(-20, SIDE + 20, 9)
    bend = ((columns - face.middle[0]) / face.width) ** 2 * face.width * random.uniform(-0.3, 0.7)
    edge = np.stack([columns, line + bend + random.normal(0, face.width * 0.01, 9)], 1)
    upper = [[SIDE + 60, -60], [-60, -60]]
    if random.random() < 0.2:
        upper = (edge[::-1] - np.array([0, face.width * random.uniform(0.12, 0.3)])).tolist()
    alpha = polygon(smooth(np.concatenate([edge, upper]).astype(np.float32)))
    colour = texture(random, other) * waves(random, int(random.integers(4, 14)), 0.12)
    # A brim is darker below.
    below = cv2.GaussianBlur(alpha, (0, 0), 4)[..., None]
    return Cover(colour * (0.6 + 0.4 * below), alpha)


def strands(random: Random, face: Face, other: Face) -> Cover:
    """Bundles of thin curved hairs that hang from the forehead."""
    top = face.mesh[list(FOREHEAD)]
    dark = np.array([0.12, 0.09, 0.07]) * random.uniform(0.2, 2.0)
    light = np.array([0.72, 0.58, 0.38]) * random.uniform(0.6, 1.2)
    tone = dark if random.random() < 0.6 else light * random.uniform(0.4, 1.0)
    if random.random() < 0.15:
        tone = np.full(3, random.uniform(0.5, 0.9))
    sheet = blank()
    tint = np.ones((FINE * SIDE, FINE * SIDE), np.float32)
    for _ in range(int(random.integers(1, 7))):
        root = top[int(random.integers(0, len(top)))] + random.normal(0, 6, 2) - np.array([0, 10])
        long = face.width * random.uniform(0.25, 1.0)
        turn = random.normal(np.pi / 2, 0.5)
        curve = random.normal(0, 0.8)
        wide = face.width * random.uniform(0.02, 0.09)
        for _ in range(int(random.integers(15, 60))):
            start = root + random.normal(0, wide, 2)
            way = turn + random.normal(0, 0.08)
            steps = np.linspace(0, 1, 12)
            bends = way + curve * steps
            moves = np.stack([np.cos(bends), np.sin(bends)], 1) * long / 12 * random.uniform(0.6, 1.1)
            line = np.round((start + np.cumsum(moves, 0)) * FINE).astype(np.int32)
            cv2.polylines(sheet, [line], False, 1.0, int(random.integers(1, 4)), cv2.LINE_AA)
            cv2.polylines(tint, [line], False, random.uniform(0.5, 1.6), int(random.integers(1, 3)), cv2.LINE_AA)
    colour = tone * shrunk(tint)[..., None]
    return Cover(colour.clip(0, 1).astype(np.float32), shrunk(sheet).clip(0, 1))


def fringe(random: Random, face: Face, other: Face) -> Cover:
    """Hair over the forehead, cut out of a picture: of its own person's, moved down, or of another's."""
    owner = face if random.random() < 0.4 else other
    top = owner.mesh[10]
    # What stands above the upper end of the mesh is hair in most pictures.
    upper = max(0, int(top[1] - owner.width * 0.3))
    lower = max(upper + 12, int(top[1] - owner.width * 0.02))
    left = int(max(0, top[0] - owner.width * 0.3))
    right = int(min(SIDE, top[0] + owner.width * 0.3))
    piece = owner.pixels[upper:lower, left:right]
    colour = cv2.resize(piece, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC).clip(0, 1).astype(np.float32)
    if random.random() < 0.3:
        # A lock at one side instead of a whole fringe.
        side = -1 if random.random() < 0.5 else 1
        place = face.middle + np.array([side * face.width * random.uniform(0.25, 0.5), -face.width * 0.2])
        size = face.width * np.array([random.uniform(0.08, 0.25), random.uniform(0.4, 1.0)])
        turns = np.linspace(0, 2 * np.pi, 12, endpoint=False)
        points = place + np.stack([np.cos(turns), np.sin(turns)], 1) * size
    else:
        share = random.uniform(0.1, 0.95)
        brow = face.mesh[list(LEFT_BROW + RIGHT_BROW)].mean(0)
        line = face.mesh[10][1] * (1 - share) + brow[1] * share
        columns = np.linspace(face.middle[0] - face.width * 0.65, face.middle[0] + face.width * 0.65, 13)
        bend = ((columns - face.middle[0] + random.normal(0, 20)) / face.width) ** 2 * face.width
        edge = line + bend * random.uniform(-0.3, 1.2) + random.normal(0, face.width * 0.03, 13)
        above = np.full(13, min(line, face.mesh[10][1]) - face.width * 0.2)
        points = np.concatenate([np.stack([columns, edge], 1), np.stack([columns, above], 1)[::-1]])
    alpha = polygon(smooth(points.astype(np.float32), 3))
    # Hair ends in tufts: the border is moved along a noise that changes quickly across and slowly down.
    noise = random.normal(0, face.width * 0.06, (4, 48)).astype(np.float32)
    moved = cv2.resize(noise, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    torn = cv2.remap(alpha, columns, (rows + moved).astype(np.float32), cv2.INTER_LINEAR)
    streaks = cv2.resize(random.normal(0, 0.12, (6, 128)).astype(np.float32), (SIDE, SIDE))
    return Cover((colour * (1 + streaks[..., None])).clip(0, 1).astype(np.float32), torn.astype(np.float32))


def like_skin(random: Random, cover: Cover, face: Face) -> bool:
    """Whether a cover has the colour of the face's own skin: then what was cut out was no hair."""
    inside = cover.alpha > 0.5
    if not inside.any():
        return True
    colour = np.median(cover.colour[inside], 0)
    return bool(np.abs(colour - face.skin(random)).max() < 0.15)


def lens_outline(random: Random, face: Face, eye: tuple[int, ...], brow: tuple[int, ...], grow: float) -> Picture:
    """Outline of a lens before an eye, `(N, 2)`."""
    middle = face.mesh[list(eye)].mean(0)
    above = np.linalg.norm(face.mesh[list(brow)].mean(0) - middle)
    half = np.array([face.width * 0.17, above * 0.75]) * grow
    turns = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    square = random.uniform(1.0, 3.5)
    x = np.sign(np.cos(turns)) * np.abs(np.cos(turns)) ** (2 / (1 + square))
    y = np.sign(np.sin(turns)) * np.abs(np.sin(turns)) ** (2 / (1 + square))
    tilt = face.mesh[263] - face.mesh[33]
    angle = np.arctan2(tilt[1], tilt[0])
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    outline: Picture = (np.stack([x, y], 1) * half) @ matrix.T + middle + np.array([0, half[1] * 0.15])
    return outline.astype(np.float32)


def sunglasses(random: Random, face: Face, other: Face) -> Cover:
    """Dark lenses before both eyes, with a frame."""
    grow = random.uniform(0.9, 1.6)
    state = random.integers(0, 2**31)
    lenses = []
    for eye, brow in ((LEFT_EYE, LEFT_BROW), (RIGHT_EYE, RIGHT_BROW)):
        lenses.append(lens_outline(np.random.default_rng(state), face, eye, brow, grow))
    frame = blank()
    thick = int(random.integers(1, 7))
    for lens in lenses:
        cv2.polylines(frame, [np.round(lens * FINE).astype(np.int32)], True, 1.0, thick, cv2.LINE_AA)
    capsule(frame, lenses[0][2], lenses[1][14], thick / 2 / FINE)
    capsule(frame, lenses[0][15], face.mesh[127], thick / 2 / FINE)
    capsule(frame, lenses[1][1], face.mesh[356], thick / 2 / FINE)
    glass = np.maximum(polygon(lenses[0]), polygon(lenses[1]))
    tone = any_colour(random) * 0.15 if random.random() < 0.4 else np.full(3, random.uniform(0.01, 0.12))
    rows = np.mgrid[:SIDE, :SIDE][0].astype(np.float32)
    ramp = (rows - face.mesh[33][1]) / face.width * random.uniform(-0.1, 0.4)
    colour = (tone + ramp[..., None].clip(0, 0.2)).astype(np.float32)
    if random.random() < 0.4:
        # What stands before the face is mirrored in the lenses.
        colour = colour + surroundings(random, other) * random.uniform(0.05, 0.5)
    edge = shrunk(frame)
    colour = colour * (1 - edge[..., None]) + any_colour(random) * random.uniform(0.1, 1) * edge[..., None]
    return Cover(colour.clip(0, 1).astype(np.float32), np.maximum(glass * random.uniform(0.88, 1.0), edge))


def sign(random: Random, face: Face, other: Face) -> Cover:
    """Letters on a board, or a flag of stripes."""
    colour = np.broadcast_to(any_colour(random), (SIDE, SIDE, 3)).astype(np.float32).copy()
    if random.random() < 0.5:
        stripes = int(random.integers(2, 6))
        for number in range(stripes):
            part = slice(number * SIDE // stripes, (number + 1) * SIDE // stripes)
            colour[:, part] = any_colour(random)
        if random.random() < 0.5:
            colour = np.ascontiguousarray(colour.transpose(1, 0, 2))
    else:
        letters = "".join(chr(int(code)) for code in random.integers(65, 91, 6))
        sheet = np.zeros((SIDE, SIDE), np.uint8)
        for line in range(6):
            place = (int(random.integers(-60, 20)), 40 * line + 30)
            cv2.putText(sheet, letters, place, int(random.integers(0, 5)), random.uniform(0.8, 2.5), 255, 3)
        written = sheet.astype(np.float32)[..., None] / 255
        colour = (colour * (1 - written) + any_colour(random) * written).astype(np.float32)
    middle = _spot(random, face)
    half = face.width * random.uniform(0.12, 0.4, 2)
    turn = random.normal(0, 0.4)
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * half @ matrix.T + middle
    return Cover(colour * waves(random, 5, 0.08), polygon(corners.astype(np.float32)))


Maker = Callable[[Random, Face, Face], Cover]
COVERS: dict[str, tuple[Maker, float]] = {
    "medical_mask": (medical_mask, 4.0),
    "hand": (hand, 4.0),
    "microphone": (microphone, 1.5),
    "cup": (cup, 1.0),
    "bar": (bar, 1.0),
    "blob": (blob, 1.5),
    "scarf": (scarf, 1.0),
    "hat": (hat, 1.2),
    "strands": (strands, 1.0),
    "fringe": (fringe, 2.5),
    "sunglasses": (sunglasses, 2.0),
    "sign": (sign, 0.7),
}


def _spot(random: Random, face: Face) -> Picture:
    """Any place of the face, `(2,)`; mouth and chin are more frequent."""
    place = face.mesh[int(random.integers(0, len(face.mesh)))]
    if random.random() < 0.4:
        place = face.mesh[list(OUTER_LIPS)].mean(0) + random.normal(0, face.width * 0.15, 2)
    spot: Picture = place.astype(np.float32)
    return spot


# --- what covers nothing


def hard_shadow(random: Random, face: Face) -> Picture:
    """A shadow or coloured light with an edge on the skin; no cover."""
    points = _spot(random, face) + random.normal(0, face.width * 0.5, (int(random.integers(3, 7)), 2))
    shape = cv2.GaussianBlur(polygon(points.astype(np.float32)), (0, 0), random.uniform(0.5, 6))
    strength = random.uniform(0.3, 0.75) + random.normal(0, 0.04, 3)
    lit: Picture = (face.pixels * (1 - shape[..., None] * strength)).clip(0, 1).astype(np.float32)
    return lit


def clear_glasses(random: Random, face: Face) -> Picture:
    """Ordinary glasses, through which the eyes are seen; no cover."""
    grow = random.uniform(0.8, 1.3)
    state = random.integers(0, 2**31)
    frame = blank()
    thick = int(random.integers(1, 8))
    glass = np.zeros((SIDE, SIDE), np.float32)
    ends = []
    for eye, brow in ((LEFT_EYE, LEFT_BROW), (RIGHT_EYE, RIGHT_BROW)):
        lens = lens_outline(np.random.default_rng(state), face, eye, brow, grow)
        cv2.polylines(frame, [np.round(lens * FINE).astype(np.int32)], True, 1.0, thick, cv2.LINE_AA)
        glass = np.maximum(glass, polygon(lens))
        ends.append(lens)
    capsule(frame, ends[0][2], ends[1][14], thick / 2 / FINE)
    capsule(frame, ends[0][15], face.mesh[127], thick / 2 / FINE)
    capsule(frame, ends[1][1], face.mesh[356], thick / 2 / FINE)
    edge = shrunk(frame)[..., None]
    # Glass tints and mirrors a little; the eyes stay to be seen.
    tint = any_colour(random)
    share = glass[..., None] * random.uniform(0, 0.35)
    pixels = face.pixels * (1 - share) + tint * share
    worn: Picture = pixels * (1 - edge) + any_colour(random) * random.uniform(0.1, 1) * edge
    return worn.astype(np.float32)


def beard(random: Random, face: Face) -> Picture:
    """Stubble or a beard along the jaw; no cover."""
    jaw = face.mesh[list(JAW)]
    inner = (jaw - face.middle) * random.uniform(0.55, 0.8) + face.middle
    around = polygon(np.concatenate([jaw, inner[::-1]]).astype(np.float32))
    mouth = polygon(face.mesh[list(OUTER_LIPS)].astype(np.float32))
    lip = face.mesh[list(OUTER_LIPS)]
    above = polygon(((lip - lip.mean(0)) * random.uniform(1.3, 1.7) + lip.mean(0)).astype(np.float32))
    shape = np.maximum(around, above) * (1 - mouth)
    soft = cv2.GaussianBlur(shape, (0, 0), random.uniform(2, 6))
    hairs = random.normal(0, 1, (SIDE, SIDE)).astype(np.float32)
    combed = cv2.GaussianBlur(hairs, (0, 0), sigmaX=random.uniform(0.6, 1.0), sigmaY=random.uniform(0.8, 2.5))
    strength = (combed / combed.std() * 0.25 + random.uniform(0.2, 0.8)).clip(0, 1) * soft
    tone = np.array([0.15, 0.11, 0.09]) * random.uniform(0.3, 3.0)
    grown = face.pixels * (1 - strength[..., None]) + tone * strength[..., None]
    pixels: Picture = grown.astype(np.float32)
    return pixels


def make_up(random: Random, face: Face) -> Picture:
    """Colour on lips, lids and cheeks; no cover."""
    pixels = face.pixels
    tint = random.random(3).astype(np.float32)
    for part in (OUTER_LIPS, LEFT_EYE, RIGHT_EYE):
        outline = face.mesh[list(part)]
        grown = (outline - outline.mean(0)) * random.uniform(1.0, 1.8) + outline.mean(0)
        share = cv2.GaussianBlur(polygon(grown.astype(np.float32)), (0, 0), random.uniform(0.5, 3))
        share = share[..., None] * random.uniform(0, 0.5)
        pixels = pixels * (1 - share) + tint * share
    return pixels.astype(np.float32)


HARMLESS = (hard_shadow, clear_glasses, beard, make_up)


# --- together


def covered(random: Random, face: Face, others: list[Face], kind: str | None = None) -> tuple[Picture, Picture, str]:
    """A picture with things in front of its face, or with none.

    Args:
        random: Decides everything.
        face: The picture.
        others: Pictures that skin, hair and cloth are cut out of.
        kind: A key of `COVERS`, "none", or None for any.

    Returns:
        The picture, the share of each pixel that covers take `(256, 256)`, and the kinds, joined by "+".
    """
    # Half of the pictures get something that is no cover, covered ones too.
    if random.random() < 0.5:
        change = HARMLESS[int(random.integers(0, len(HARMLESS)))]
        face = Face(change(random, face), face.mesh)
    wanted: list[str] = []
    if kind is None:
        count = int(random.choice([0, 1, 2], p=[0.3, 0.55, 0.15]))
        weights = np.array([weight for _, weight in COVERS.values()])
        wanted = random.choice(list(COVERS), count, replace=False, p=weights / weights.sum()).tolist()
    elif kind != "none":
        wanted = [kind]
    pixels = face.pixels
    taken = np.zeros((SIDE, SIDE), np.float32)
    worn = []
    for name in wanted:
        other = others[int(random.integers(0, len(others)))]
        cover = COVERS[name][0](random, face, other)
        if name == "fringe" and like_skin(random, cover, face):
            continue
        pixels = joined(random, pixels, cover, face)
        taken = np.maximum(taken, cover.alpha)
        worn.append(name)
    return pixels, taken, "+".join(worn) or "none"


def joined(random: Random, pixels: Picture, cover: Cover, face: Face) -> Picture:
    """A cover in a picture: in its light, with a shadow, as sharp as a photograph."""
    light = cv2.GaussianBlur(pixels.mean(2), (0, 0), 30)
    level = light / max(float(light.mean()), 0.05)
    share = random.uniform(0, 0.8)
    colour = cover.colour * (1 - share + share * level[..., None]) * random.uniform(0.7, 1.1)
    soft = cv2.GaussianBlur(cover.alpha, (0, 0), random.uniform(0.4, 1.3))
    move = np.array([[1, 0, random.normal(0, 4)], [0, 1, random.uniform(0, 6)]], np.float32)
    shadow = cv2.warpAffine(cv2.GaussianBlur(cover.alpha, (0, 0), random.uniform(2, 6)), move, (SIDE, SIDE))
    below = pixels * (1 - shadow[..., None] * random.uniform(0, 0.5))
    grain = random.normal(0, random.uniform(0, 0.015), pixels.shape)
    mixed: Picture = below * (1 - soft[..., None]) + (colour + grain) * soft[..., None]
    return mixed.clip(0, 1).astype(np.float32)
