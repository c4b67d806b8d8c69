"""Put the face of an invented person where another face is: shape, colours and edge.

    donor's picture --triangles of the mesh--> its face in the other's pose --log colours--> in the other's light
    --colours that meet at the edge--> in the other's picture, but for what stays the person's own (`own_parts`)

Nothing here needs torch. Pictures are RGB `(S, S, 3)` uint8 in FFHQ's frame, points are in
pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.landmarks.drawings import (
    INNER_LIPS,
    LEFT_BROW,
    LEFT_EYE,
    NOSE_TIP,
    OUTER_LIPS,
    OUTLINE,
    RIGHT_BROW,
    RIGHT_EYE,
    pupils,
)
from faceanon.landmarks.geometry import (
    BESIDE_HAIR,
    DARKEST,
    EYE_CORNERS,
    RIM,
    Array,
    Mask,
    Pixels,
    above_brows,
    around,
    eye_distance,
    filled,
    heights,
    odd_number,
    openness,
    tidy,
    turn,
    unlike_skin,
    upwards,
    wider,
)
from faceanon.landmarks.own_parts import fringe, own_mouth, own_share
from faceanon.sampling import colours_at

LIPS = tuple(
    {*OUTER_LIPS, *INNER_LIPS, 11, 12, 15, 16, 72, 73, 74, 76, 77, 85, 86, 89, 90, 179, 180, 183, 184}
    | {
        *(302, 303, 304, 306, 307, 315, 316, 319, 320, 325, 403, 404, 407, 408, 62, 96, 41, 38, 42, 268, 271, 272, 292),
    }
)
MOVING = (LEFT_EYE, RIGHT_EYE, LEFT_BROW, RIGHT_BROW, LIPS)  # parts that an expression moves
# More of it hides a person better, but at .028 meshes were off by 4.2 % of the distance between the eyes.
SHIFT = 0.024  # how far points move towards the donor's shape on average, in distances between the eyes
UPRIGHT = 0.1  # share of that along the face: more of it would read as another pitch of the head
# Also of the lips, where they are the person's own.
NEAR_EDGE = 0.25  # points nearer to the outline than this do not move freely, in distances between the eyes
SMOOTH = 0.12  # reach of the smoothing of these moves, in distances between the eyes
MOST_LIGHT = 0.8  # natural logarithm of how much brighter or darker a face may become
MOST_TINT = 0.25  # ... and one colour of it beside the others
MOST_HAIR = 0.15  # share of a face that a donor's hair may take; more of it is something else
WITHIN = 0.97  # of the outline, around its middle: what lies beyond may be hair, neck or background
# More of the person's own face is seen in a wider edge: recognisers that are trained on results find it there.
EDGE = 1 / 153  # width of the soft edge (sigma of a Gaussian), in sides of the picture
# The mesh ends in the middle of the forehead, where a narrow edge shows as an arc. Foreheads tell recognisers little.
FOREHEAD_EDGE = 4 * EDGE  # ... above the brows
REACH = 1 / 14  # how far from the edge colours change so that they meet there (sigma of a Gaussian), in sides
RING = 1 / 24  # width of the ring of pixels that they have to meet, in sides
FADE = 0.1  # the larger, the less they change far from the ring
MOST_GAP = 1.2  # natural logarithm of brightness between the edge's two sides, from which they show different things
MOST_MET = 0.5  # ... how much of it is made up for
MOST_TINT_MET = 0.12  # ... and of one colour beside the others
COARSE = 4  # pixels in a step of these changes, which are smooth
INSET = 0.06  # share by which a donor's points at the outline move inwards: just beyond them are hair and background
# The rim of a face in profile is wide, and who is seen from the front has hair there.
TURNED_INSET = 0.14  # ... and so much more where a donor seen from the front is put on a profile
HALF = 0.5  # share of a pixel from which it counts as the person's own
LEAST_CHANGED = 0.35  # share of the pixels that may change, from which a face counts as hidden
LEAST_SKIN = 50  # pixels from which light can be told
FARTHEST_LOOK = 0.2  # by how much pupils move at most, in widths of the eye; beyond, irises are cut off by the lids
AS_LARGE = 1.2  # pixels of a donor that fall into one of the picture, up to which single places are taken
SMALLER = 1.6  # ... and from which the mean is
FINER = 3  # single places in a pixel and a direction that such a mean is taken of
LEAST_AREA = 0.02  # square pixels; triangles that are seen from their edge are left out


@dataclass(frozen=True)
class Donor:
    """An invented person's photograph whose face is put on.

    Args:
        picture: RGB `(H, W, 3)` uint8, cut out around the face.
        points: `(468, 3)` in pixels of `picture`, depth growing away from the viewer.
        pupils: `(2, 2)` in pixels of `picture`.
        tone: `(3,)` of the skin, as `skin_tone`.
    """

    picture: Pixels
    points: Array
    pupils: Array
    tone: Array

    def resized(self, factor: float) -> Donor:
        """The same at another size."""
        if factor == 1:
            return self
        height, width = self.picture.shape[:2]
        size = (max(round(width * factor), 1), max(round(height * factor), 1))
        small = cv2.resize(self.picture, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
        # Sides were rounded, so points are scaled by what the picture's sides really changed.
        scale = np.array([size[0] / width, size[1] / height, factor], np.float32)
        return replace(self, picture=small, points=self.points * scale, pupils=self.pupils * scale[:2])


@dataclass(frozen=True)
class Appearance:
    """How a face looks in a picture, as far as a donor has to look like it.

    Args:
        tone: `(3,)` of its skin, as `skin_tone`.
        brows: How dark its brows are, as `brow_shade`.
        gap: How far its mouth is open, as `openness`.
        turn: How far it is turned, as `turn`.
    """

    tone: Array
    brows: float
    gap: float
    turn: float


@dataclass(frozen=True)
class SwapTarget:
    """A face on which others can be put, and all that does not depend on who they are.

    Args:
        picture: `(S, S, 3)`.
        mesh: `(468, 3)` points of its face.
        looks: `(2, 2)` pupils.
        appearance: What a donor has to fit.
        area: `(S, S)` bool, the pixels that may change.
        own: `(S, S)` in [0, 1], how much of each pixel stays the person's own within `area`.
        edge: `(S, S, 1)` in [0, 1], how much of each pixel the new face takes.
        ring: `(S, S)` bool, the pixels just beyond what becomes new, without lips.
        skin: `(S, S)` bool, pixels of `area` that show skin, in the light that most of it is in.
        free: `(468, 1)` in [0, 1], how freely a point moves towards another shape.
        blur: `(468, 468)` matrix that smooths moves of points.
        hidden: Whether so much of the face changes that it is hidden.
    """

    picture: Pixels
    mesh: Array
    looks: Array
    appearance: Appearance
    area: Mask
    own: Array
    edge: Array
    ring: Mask
    skin: Mask
    free: Array
    blur: Array
    hidden: bool


def target_of(picture: Pixels, mesh: Array, cells: Mask) -> SwapTarget:
    """What is to be known of a face before others are put on it.

    Args:
        picture: `(S, S, 3)`.
        mesh: `(468, 3)` points of its face.
        cells: `(h, h)`, those that may change; S is a multiple of h.
    """
    side = len(picture)
    allowed = cells.repeat(side // len(cells), 0).repeat(side // len(cells), 1)
    appearance = appearance_of(picture, mesh)
    odd = unlike_skin(picture, appearance.tone)
    area = _face_of(mesh[:, :2], odd) & allowed & ~fringe(odd, mesh[:, :2])
    own = own_share(mesh[:, :2], side)
    new = area & (own < HALF)
    free, blur = _elasticity(mesh)
    return SwapTarget(
        picture=picture,
        mesh=mesh,
        looks=pupils(picture, mesh[:, :2]),
        appearance=appearance,
        area=area,
        own=own,
        edge=_soft(area, own, mesh[:, :2])[..., None],
        # Lips are of another colour than the skin beside them.
        ring=_ring(new) & ~filled(mesh[list(OUTER_LIPS), :2], side),
        skin=_skin(mesh[:, :2], side) & new & ~odd,
        free=free,
        blur=blur,
        hidden=bool((1 - own)[area].sum() >= LEAST_CHANGED * max(int(allowed.sum()), 1)),
    )


def put_on(target: SwapTarget, donor: Donor, triangles: NDArray[np.int32], move: Array | None = None) -> Pixels:
    """A picture with another person's face, `(S, S, 3)`.

    Args:
        target: The face that is hidden; beyond its `area` nothing changes.
        donor: Whose face it becomes, at the picture's scale.
        triangles: `(T, 3)` numbers of points.
        move: `(468, 2)` in sides of the picture, by how much its points move beyond the donor's shape; None for not at
            all.
    """
    if not target.area.any():
        return target.picture.copy()
    shape = fitted_shape(target, donor.points)
    if move is not None:
        shape = shape + move * np.float32(len(target.picture))
    warped = _warped(donor, shape, target, triangles)
    met = _meeting(_in_light_of(warped, target), target)
    area = target.area
    edge = target.edge
    # Where it is left out the photograph's own pixels stay, a few of forehead or temple.
    hair = _stray_hair(warped, donor.tone, shape, area)
    if hair.any():
        area = area & ~hair
        edge = _soft(area, target.own, target.mesh[:, :2])[..., None]
    blended = target.picture * (1 - edge) + met * edge
    # The blurred edge reaches a little beyond the area, where nothing may change.
    result: Pixels = np.where(area[..., None], blended.round(), target.picture).astype(np.uint8)
    return result


def skin_tone(picture: Pixels, mesh: Array) -> Array:
    """Median logarithm of the colours in the middle of a face, `(3,)`."""
    middle = filled(around(mesh[list(OUTLINE), :2], 0.6), *picture.shape[:2])
    if not middle.any():
        # Nothing of the face's middle lies in the picture: a middle grey stands for its skin.
        return np.full(3, np.log(128 + DARKEST), np.float32)
    tone: Array = np.median(np.log(picture[middle] + np.float32(DARKEST)), 0).astype(np.float32)
    return tone


def appearance_of(picture: Pixels, mesh: Array) -> Appearance:
    """What a donor has to fit of a face with points `(468, 2 or 3)` in a picture `(H, W, 3)`."""
    tone = skin_tone(picture, mesh)
    return Appearance(tone, brow_shade(picture, mesh, tone), openness(mesh), turn(mesh))


def brow_shade(picture: Pixels, mesh: Array, tone: Array) -> float:
    """Natural logarithm of how much brighter the brows of a face are than its skin; below 0 where they are darker.

    Args:
        picture: `(H, W, 3)`.
        mesh: `(468, 2 or 3)` points of its face.
        tone: `(3,)` of its skin, as `skin_tone`.
    """
    shades = []
    for brow in (LEFT_BROW, RIGHT_BROW):
        part = filled(mesh[list(brow), :2], *picture.shape[:2])
        # A brow that lies out of the picture is taken to be as bright as the skin.
        colours = picture[part] if part.any() else np.exp(tone) - DARKEST
        shades.append(float(np.log(colours + np.float32(DARKEST)).mean() - tone.mean()))
    return sum(shades) / len(shades)


def fitted_shape(target: SwapTarget, donor: Array) -> Array:
    """Where the points of a face lie once it has some of a donor's shape, in its own pose and expression, `(468, 2)`.

    Outline and expression stay, and a mouth that is the person's own; eyes, brows and other mouths move as wholes.

    Args:
        target: The face.
        donor: `(468, 3)` at any size and pose.
    """
    mesh = target.mesh
    # How the head is held is read off the points that an expression does not move.
    steady = np.ones(len(mesh), bool)
    for part in MOVING:
        steady[list(part)] = False
    posed = aligned(donor, mesh, steady)
    move = (posed - mesh)[:, :2]
    for part in MOVING:
        move[list(part)] = move[list(part)].mean(0)
    across = mesh[EYE_CORNERS[1], :2] - mesh[EYE_CORNERS[0], :2]
    across = across / max(float(np.linalg.norm(across)), 1e-3)
    along = (move @ across)[:, None] * across
    move = along + UPRIGHT * (move - along)
    # Held back twice: smoothing carries moves of inner points to the outline, which has to stay.
    move = target.blur @ (move * target.free) * target.free
    average = float(np.linalg.norm(move, axis=1).mean()) / eye_distance(mesh)
    # Points move by SHIFT on average, however much or little the two shapes differ.
    moved: Array = (mesh[:, :2] + move * (SHIFT / max(average, 1e-3))).astype(np.float32)
    return moved


def _elasticity(mesh: Array) -> tuple[Array, Array]:
    """How freely points `(468, 3)` move, `(468, 1)`, and the matrix `(468, 468)` that smooths their moves."""
    distance = eye_distance(mesh)
    places = mesh[:, :2].astype(np.float32)
    squares = _squares(places, places)
    from_outline, from_lips = (
        (np.sqrt(squares[:, list(part)].min(1)) / (NEAR_EDGE * distance)).clip(0, 1) for part in (OUTLINE, LIPS)
    )
    # A mouth that stays the person's own stays where it is.
    of_mouth = 1 - np.float32(own_mouth(mesh)) * (1 - from_lips)
    free = np.minimum(from_outline, of_mouth)[:, None].astype(np.float32)
    near = np.exp(-squares / np.float32(2 * (SMOOTH * distance) ** 2))
    return free, near / near.sum(1, keepdims=True)


def _squares(some: Array, others: Array) -> Array:
    """Squares of the distances of points `(N, 2)` to others `(M, 2)`, `(N, M)`."""
    across = some[:, None, 0] - others[None, :, 0]
    down = some[:, None, 1] - others[None, :, 1]
    squares: Array = across * across + down * down
    return squares


def aligned(points: Array, target: Array, rows: Mask) -> Array:
    """Points `(N, 3)` turned, shifted and scaled to lie best on `target` in some rows (Umeyama's method)."""
    centre = points[rows].mean(0)
    middle = target[rows].mean(0)
    some = points[rows] - centre
    wanted = target[rows] - middle
    left, strength, right = np.linalg.svd(some.T @ wanted)
    # A mirror image is no turn of a head.
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    scale = (strength * signs).sum() / np.square(some).sum()
    posed: Array = (scale * (points - centre) @ (left * signs) @ right + middle).astype(np.float32)
    return posed


def _warped(donor: Donor, shape: Array, target: SwapTarget, triangles: NDArray[np.int32]) -> Pixels:
    """The donor's picture with its points moved to `shape` and its pupils to the target's, `(S, S, 3)`."""
    side = len(target.picture)
    corners = shape[triangles]
    first = corners[:, 1] - corners[:, 0]
    second = corners[:, 2] - corners[:, 0]
    area = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    # Far ones first: the nose's side covers the cheek behind it.
    order = np.argsort(-target.mesh[triangles, 2].mean(1), kind="stable")
    order = order[area[order] > LEAST_AREA]
    numbers = np.full((side, side), -1, np.int32)
    # cv2 counts from the middle of the first pixel, the mesh from its edge.
    eighths = np.round((corners - 0.5) * 8).astype(np.int32)
    for number in order:
        cv2.fillConvexPoly(numbers, eighths[number], int(number), lineType=cv2.LINE_8, shift=3)
    rows, columns = np.nonzero(numbers >= 0)
    if len(rows) == 0:
        # No point lies in the picture: nothing of the donor can be seen in it.
        return np.zeros_like(target.picture)
    chosen = numbers[rows, columns]
    ones = np.ones((len(triangles), 3, 1))
    frames = np.concatenate([corners, ones], 2)
    # A triangle without area has no inverse. It is not drawn, so any map serves.
    frames[area <= LEAST_AREA] = np.eye(3)
    # A row vector (x, y, 1) of the picture times this is the place in the donor's.
    further = abs(turn(shape)) - abs(turn(donor.points))
    inset = _inset(donor.points[:, :2], INSET + TURNED_INSET * max(further, 0))
    maps = np.linalg.solve(frames, inset[triangles].astype(np.float64))
    places = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))], 1)
    source = np.einsum("ni,nij->nj", places, maps[chosen])
    field = np.full((side, side, 2), -1, np.float32)
    field[rows, columns] = source
    # Triangles that are seen from their edge leave gaps, which their neighbours fill.
    gaps = (numbers < 0).astype(np.uint8)
    _, nearest = cv2.distanceTransformWithLabels(gaps, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    # A label is the number of the nearest drawn pixel, counted row by row from 1.
    field = field[gaps == 0][nearest - 1]
    _look_like(field, shape, target.looks, donor.pupils)
    return _sampled(donor.picture, field - np.float32(0.5))


def _sampled(picture: Pixels, field: Array) -> Pixels:
    """A picture's colours, `(S, S, 3)`, at the places of a field `(S, S, 2)`, (0, 0) the middle of its first pixel.

    Where it becomes smaller, as an open eye does that is shut, the mean over each pixel is taken. Single places would
    be lashes and gaps by turns, and leave a row of dots.
    """
    sampled: Pixels = colours_at(picture, field, cv2.INTER_CUBIC, cv2.BORDER_REFLECT)
    # By how much the place changes from a pixel to the next one, down and across, (S, S, 2) each.
    down: Array = np.gradient(field, axis=0)
    across: Array = np.gradient(field, axis=1)
    smaller: Array = np.maximum(np.abs(down), np.abs(across)).max(-1)
    few = smaller > AS_LARGE
    if not few.any():
        return sampled
    half = 0.5 - 0.5 / FINER
    parts = np.linspace(-half, half, FINER, dtype=np.float32)[:, None, None]
    # Places within each of these N pixels, (FINER * FINER, N, 2).
    places: Array = (field[few] + parts[:, None] * down[few] + parts * across[few]).reshape(FINER * FINER, -1, 2)
    means = colours_at(picture, places, cv2.INTER_CUBIC, cv2.BORDER_REFLECT).mean(0)
    share = np.interp(smaller[few], (AS_LARGE, SMALLER), (0, 1))[:, None]
    sampled[few] = (sampled[few] * (1 - share) + means * share).round().astype(np.uint8)
    return sampled


def _inset(points: Array, most: float) -> Array:
    """A donor's points `(468, 2)`, those near the outline moved towards the middle, by a share of `most`."""
    outline = points[list(OUTLINE)]
    gaps = np.sqrt(_squares(points, outline)).min(1)
    share = 1 - (gaps / (NEAR_EDGE * eye_distance(points))).clip(0, 1)[:, None]
    inset: Array = points + np.float32(most) * share * (outline.mean(0) - points)
    return inset


def _look_like(field: Array, shape: Array, looks: Array, donor: Array) -> None:
    """Change where pixels come from, in place, so that the eyes look where `looks` says, or nearly so.

    Both move alike, since what is read of one pupil is often off, and only as far as lids and white of the eye allow.
    """
    side = len(field)
    eyes = (LEFT_EYE, RIGHT_EYE)
    columns, rows = np.clip(looks.astype(int), 0, side - 1).T
    # With all of it, at the target's pupils the field would point to the donor's.
    move = (donor - field[rows, columns]).mean(0)
    width = np.mean([np.ptp(shape[list(eye), 0]) for eye in eyes])
    move = move * min(FARTHEST_LOOK * width / max(float(np.linalg.norm(move)), 1e-3), 1)
    for eye in eyes:
        inside = filled(shape[list(eye)], side).astype(np.float32)
        # Lids stay where they are: the move fades out towards them.
        weight = np.minimum(cv2.distanceTransform(inside.astype(np.uint8), cv2.DIST_L2, 3) / (side / 85), 1)
        field += weight[..., None] * move.astype(np.float32)


def _in_light_of(warped: Pixels, target: SwapTarget) -> Array:
    """Colours of the warped face as if the light and the skin were the picture's, `(S, S, 3)` in [0, 255].

    A plane over the face, in the logarithm of the colours, is what the two differ by.
    """
    rows, columns = np.nonzero(target.skin)
    if len(rows) < LEAST_SKIN:
        return warped.astype(np.float32)
    side = len(warped)
    places = np.stack([np.ones(len(rows)), columns / side, rows / side], 1)
    ours = np.log(target.picture[rows, columns] + DARKEST)
    theirs = np.log(warped[rows, columns] + DARKEST)
    plane = np.linalg.lstsq(places, ours - theirs, rcond=None)[0]
    plane = plane.astype(np.float32)
    steps = (np.arange(side, dtype=np.float32) / side)[:, None]
    # The plane at every pixel, (S, S, 3): x runs along the second axis, y along the first.
    change = (plane[0] + steps * plane[1])[None] + (steps * plane[2])[:, None]
    # Brightness and tint have bounds of their own: light may differ much, colours only little.
    brightness = change.mean(-1, keepdims=True)
    tint = (change - brightness).clip(-MOST_TINT, MOST_TINT)
    lit = (warped + np.float32(DARKEST)) * np.exp(brightness.clip(-MOST_LIGHT, MOST_LIGHT) + tint) - DARKEST
    clipped: Array = lit.clip(0, 255).astype(np.float32)
    return clipped


def _meeting(face: Array, target: SwapTarget) -> Array:
    """A face `(S, S, 3)` whose colours come near to the picture's towards the edge, `(S, S, 3)` in [0, 255].

    It takes over colours beyond the edge, which stay seen anyway, and nothing of the person's face within. So the edge
    can be narrow without a seam.
    """
    rows, columns = np.nonzero(target.ring)
    side = len(face)
    ours = np.log(target.picture[rows, columns] + np.float32(DARKEST))
    theirs = np.log(face[rows, columns] + np.float32(DARKEST))
    gap = ours - theirs
    brightness = gap.mean(-1, keepdims=True)
    tint = (gap - brightness).clip(-MOST_TINT_MET, MOST_TINT_MET)
    change = brightness.clip(-MOST_MET, MOST_MET) + tint
    # Black hair beside a light face is no light: there the edge may be seen.
    known = (np.abs(brightness) < MOST_GAP).astype(np.float32)
    # Colours and, fourth, how much is known, spread over the face.
    sheet = np.zeros((side, side, 4), np.float32)
    sheet[rows, columns] = np.concatenate([change, np.ones_like(brightness)], 1) * known
    steps = max(side // COARSE, 1)
    coarse = cv2.resize(sheet, (steps, steps), interpolation=cv2.INTER_AREA)
    spread = cv2.GaussianBlur(coarse, (0, 0), steps * REACH)
    smooth = spread[..., :3] / (spread[..., 3:] + np.float32(FADE))
    factor = np.exp(cv2.resize(smooth, (side, side), interpolation=cv2.INTER_LINEAR))
    met: Array = ((face + np.float32(DARKEST)) * factor - np.float32(DARKEST)).clip(0, 255).astype(np.float32)
    return met


def _skin(mesh: Array, side: int) -> Mask:
    """Pixels of a face `(468, 2)` well away from outline, eyes, brows and lips."""
    step = odd_number(side / 28)
    skin = cv2.erode(filled(around(mesh[list(OUTLINE)], WITHIN), side).astype(np.uint8), np.ones((step, step)))
    others = np.zeros((side, side), np.uint8)
    for part in (LEFT_EYE, RIGHT_EYE, LEFT_BROW, RIGHT_BROW, OUTER_LIPS):
        others[filled(mesh[list(part)], side)] = 1
    # A donor's eyes and lips lie a little elsewhere.
    wide: Mask = (skin > 0) & (cv2.dilate(others, np.ones((step + 2, step + 2))) == 0)
    return wide


def _face_of(mesh: Array, odd: Mask) -> Mask:
    """Pixels of a face `(468, 2)`: all within its outline, and skin a little beyond it, `(S, S)`.

    Args:
        mesh: Its points.
        odd: `(S, S)`, the pixels whose colour is far from the skin's.
    """
    side = len(odd)
    outline = mesh[list(OUTLINE)]
    # Single dark pixels are no hair.
    rim = filled(around(outline, RIM), side) & ~wider(tidy(odd))
    face = filled(around(outline, WITHIN), side) | rim
    step = odd_number(BESIDE_HAIR * side)
    # Without threads of skin between hairs.
    whole: Mask = cv2.morphologyEx(face.astype(np.uint8), cv2.MORPH_OPEN, np.ones((step, step))) > 0
    return whole


def _stray_hair(warped: Pixels, tone: Array, shape: Array, area: Mask) -> Mask:
    """Pixels of `area` with a donor's hair that comes in from beyond it, `(S, S)`.

    It would end where the area does, in the middle of a temple or a forehead. Beards below the tip of the nose do not
    count.

    Args:
        warped: `(S, S, 3)`, the donor's picture.
        tone: `(3,)` of the donor's skin.
        shape: `(468, 2)`, the donor's points in `warped`.
        area: The pixels that may change.
    """
    side = len(warped)
    upper = heights(shape, side) > upwards(shape) @ shape[NOSE_TIP]
    odd = unlike_skin(warped, tone) & area & upper
    for part in (LEFT_BROW, RIGHT_BROW, LEFT_EYE, RIGHT_EYE):
        odd[filled(around(shape[list(part)], 1.15), side)] = False
    # Single dark pixels are no hair.
    count, parts = cv2.connectedComponents(tidy(odd).astype(np.uint8), connectivity=4)
    outermost = area & (cv2.erode(area.astype(np.uint8), np.ones((5, 5))) == 0)
    from_beyond = np.zeros(count, bool)
    from_beyond[parts[outermost]] = True
    # Part 0 is all that is not odd.
    from_beyond[0] = False
    hair = area & wider(from_beyond[parts])
    if hair.sum() > MOST_HAIR * area.sum():
        # So much is a shadow or a beard; left out, it would show the person's own face.
        return np.zeros_like(area)
    return hair


def _soft(area: Mask, own: Array, mesh: Array) -> Array:
    """How much of each pixel is the new face, `(S, S)`: 0 beyond `area`, 1 well within it where nothing stays.

    Args:
        area: `(S, S)`, the pixels that may change.
        own: `(S, S)`, how much of each stays the person's own.
        mesh: `(468, 2)`, the face's points.
    """
    side = len(area)
    # 0 up to the brows, 1 well above them.
    above = (above_brows(mesh, side) / (FOREHEAD_EDGE * side)).clip(0, 1)
    soft = (1 - above) * _faded(area, EDGE) + above * _faded(area, FOREHEAD_EDGE)
    # Smoothed as the edge is, but outwards: what is the person's own already tells nothing more.
    stays = cv2.GaussianBlur(own, (0, 0), EDGE * side)
    return (soft * (1 - stays)).astype(np.float32)


def _faded(area: Mask, width: float) -> Array:
    """An area `(S, S)` that fades out within itself over a Gaussian whose sigma is `width` sides."""
    side = len(area)
    step = odd_number(3 * width * side)
    # What lies beyond the picture counts as the face: one that reaches out of it has no edge there.
    within = cv2.erode(area.astype(np.float32), np.ones((step, step)), borderType=cv2.BORDER_REPLICATE)
    faded = cv2.GaussianBlur(within, (0, 0), width * side, borderType=cv2.BORDER_REPLICATE)
    return faded.astype(np.float32)


def _ring(area: Mask) -> Mask:
    """Pixels just beyond the edge of `area`."""
    return wider(area, RING) & ~area
