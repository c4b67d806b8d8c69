"""Faces that were put on are redrawn, as far as they stay unlike the person.

A donor's face on somebody else's head (`landmarks.cast`) has light, shadows and eyes of another photograph. So its
latents are mixed with noise, and a flow (`networks.flow_painter`) that knows what surrounds the face, its light and its
lines leads them back to a face. What fits the photograph comes back, and what does not is drawn anew. The more noise,
the more natural the face, and the more it is like the person again, whose surroundings ask for such a face. Therefore
two mixtures are tried, the one with more noise first, and a face that is too alike after both stays as it was put on.

Arrays only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.landmarks.cast import Alike
from faceanon.landmarks.drawings import LEFT_EYE, NOSE_OUTLINE, OUTER_LIPS, RIGHT_EYE
from faceanon.landmarks.geometry import eye_distance, filled, wider
from faceanon.landmarks.swap import SwapTarget

Array = NDArray[np.float32]
Again = Callable[[list[int], list[float]], Array]
Look = Callable[[Array, list[int]], Again]
# `redraw` for photographs, `redraw_frames` for clips.
Redrawing = Callable[[Array, Look, Alike, Array], Array]

# Share of the put-on face's latents in the mixture with noise, and steps of the flow from there.
MIXTURES = ((0.7, 3), (0.85, 2))
# Each direction of the flow is moved by so much of its difference to the direction to the person's own face. With 2
# MobileFaceNet and dlib took 1.6 and 2.1 % of redrawn faces for the person, with 3 1.4 and 1.4 %, and of faces that are
# not redrawn 1.2 and 1.2 % (429 pictures).
AWAY = 3.0
# Cosine of embeddings below which a redrawn face is taken.
STILL_UNLIKE = 0.12
# In a clip a redrawn face is taken whole up to the first, and not at all from the second on.
UNLIKE_IN_CLIPS = (0.08, 0.16)
# Where who is to be hidden has to be guessed, a face is painted from noise: the share of a face in it, and steps.
GUESS = (0.0, 4)
SHAPE = (32, 16, 16)
# Features of large faces get from redrawing what is wider than so many pixels of the small picture, which is light.
# What is finer, lids, pupils and nostrils, would lie beside the donor's, and both would show.
LIGHT = 4.0
# How far each of them reaches beyond its outline, both sides together, in distances between the eyes.
FEATURES = ((LEFT_EYE, 0.28), (RIGHT_EYE, 0.28), (NOSE_OUTLINE, 0.16), (OUTER_LIPS, 0.24))
SOFT = 3.0  # how softly that area ends, in pixels


@cache
def noise() -> Array:
    """The noise of every redrawing, `(32, 16, 16)` standard normal. Who is drawn is decided by the donor, not by it."""
    count = int(np.prod(SHAPE))
    words = hashlib.shake_256(b"faceanon/redrawing").digest(16 * (count // 2))
    # Box-Muller, as in `key.Secret.normal`: no random generator's next version changes it.
    pairs = np.frombuffer(words, "<u8").reshape(-1, 2)
    unit = ((pairs >> 11) + 0.5) * 2.0**-53
    radius = np.sqrt(-2 * np.log(unit[:, 0]))
    angle = 2 * np.pi * unit[:, 1]
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return both.reshape(SHAPE).astype(np.float32)


def times(start: float, steps: int) -> list[float]:
    """Times of a flow from `start` to 1 in equal steps.

    Examples:
        >>> from faceanon.landmarks.redrawing import times
        >>> times(0.5, 2)
        [0.5, 0.75, 1.0]
    """
    return [start + (1 - start) * step / steps for step in range(steps + 1)]


def led_back(mixed: Array, times: Sequence[float], directions: Callable[[Array, float], tuple[Array, Array]]) -> Array:
    """Mixtures of faces and noise `(B, 32, h, h)`, led back to faces and away from the persons, by Euler's method.

    Args:
        mixed: Where the flow begins.
        times: Its times, rising to 1.
        directions: Gives, from where the flow is and at which time, the directions to the faces that are wanted and to
            the persons' own.
    """
    here = mixed
    for start, end in pairwise(times):
        toward, back = directions(here, start)
        # Python's numbers widen no array (NEP 50), which numpy's types do not say.
        here = here + (end - start) * (toward + AWAY * (toward - back))  # type: ignore[assignment]
    return here


def own_pixels(targets: Sequence[SwapTarget]) -> Array:
    """How much of each pixel stays the person's own within the faces that are put on, `(B, S, S)` in [0, 1]."""
    return np.stack([target.own * target.area for target in targets]).astype(np.float32)


def feature_pixels(targets: Sequence[SwapTarget]) -> Array:
    """How much of each pixel belongs to eyes, nose or lips and what is beside them, `(B, S, S)` in [0, 1]."""
    sheets = []
    for target in targets:
        side = len(target.picture)
        measure = eye_distance(target.mesh) / side
        near = np.zeros((side, side), bool)
        for outline, beside in FEATURES:
            near |= wider(filled(target.mesh[list(outline), :2], side), beside * measure)
        sheets.append(cv2.GaussianBlur(near.astype(np.float32), (0, 0), SOFT))
    return np.stack(sheets)


def redraw(drawn: Array, look: Look, alike: Alike, own: Array) -> Array:
    """Redraw faces as far as they stay unlike the persons.

    Args:
        drawn: `(B, 3, S, S)` in [-1, 1] with faces put on; NaN where none could be.
        look: Reads what is to be known of pictures `(R, 3, S, S)` of R rows, once for all mixtures. Gives what redraws
            some of these R at given times; the first time is the share of the put-on face.
        alike: Gives the cosines `(R,)` between what a recogniser sees in pictures and the persons of R rows.
        own: Of `own_pixels`: an open mouth that is the person's own is not redrawn.

    Returns:
        `(B, 3, S, S)`.
    """
    result = drawn.copy()
    shown = np.flatnonzero(np.isfinite(drawn).all((1, 2, 3)))
    if not len(shown):
        return result
    again = look(drawn[shown], shown.tolist())
    before = np.full(len(drawn), np.nan, np.float32)
    left = np.arange(len(shown))
    for start, steps in MIXTURES:
        if not len(left):
            break
        rows = shown[left]
        redrawn = _between(again(left.tolist(), times(start, steps)), drawn[rows], own[rows, None])
        off = alike(redrawn, rows.tolist())
        doubted = rows[off >= STILL_UNLIKE]
        unknown = doubted[np.isnan(before[doubted])]
        if len(unknown):
            before[unknown] = alike(drawn[unknown], unknown.tolist())
        # A face that was like the person as it was put on need not become less so.
        taken = (off < STILL_UNLIKE) | (off < before[rows])
        result[rows[taken]] = redrawn[taken]
        left = left[~taken]
    return result


def redraw_frames(drawn: Array, look: Look, alike: Alike, own: Array) -> Array:
    """Redraw faces of a clip's frames as far as they stay unlike the persons, without a jump from frame to frame.

    One mixture serves all frames. The more a redrawn face is like the person, the less of it is taken, and the more of
    the face as it was put on, whose features lie at the same places.

    Args:
        drawn: As for `redraw`, like the others.
        look: Likewise.
        alike: Likewise.
        own: Likewise.

    Returns:
        `(B, 3, S, S)`.
    """
    result = drawn.copy()
    rows = np.flatnonzero(np.isfinite(drawn).all((1, 2, 3)))
    if not len(rows):
        return result
    start, steps = MIXTURES[0]
    again = look(drawn[rows], rows.tolist())
    every = list(range(len(rows)))
    redrawn = _between(again(every, times(start, steps)), drawn[rows], own[rows, None])
    least, most = UNLIKE_IN_CLIPS
    left = ((alike(redrawn, rows.tolist()) - least) / (most - least)).clip(0, 1)
    result[rows] = _between(redrawn, drawn[rows], left[:, None, None, None])
    return result


def _between(first: Array, second: Array, share: Array) -> Array:
    """Mixtures of pictures, with such a share of the second one in each pixel."""
    mixed: Array = first * (1 - share) + second * share
    return mixed


def carried_over(large: Array, before: Array, after: Array, mask: Array, features: Array) -> Array:
    """Large pictures with what redrawing changed in small ones: its light and colours.

    Redrawn are faces of one size. Details of a large face stay those of the donor's photograph, and so do its eyes,
    nose and lips but for their light.

    Args:
        large: `(B, 3, 2 S, 2 S)` in [-1, 1] with faces put on.
        before: `(B, 3, S, S)`, the same faces put on small.
        after: The same redrawn.
        mask: `(B, 1, h, h)` of 0 and 1, the cells that may change.
        features: `(B, S, S)`, of `feature_pixels`.
    """
    result = large.copy()
    side = large.shape[-1]
    # The interpolation reaches a pixel or two beyond, where nothing may change.
    allowed = mask.repeat(side // mask.shape[-1], -2).repeat(side // mask.shape[-1], -1)
    for row, change in enumerate(np.ascontiguousarray((after - before).transpose(0, 2, 3, 1))):
        if not change.any():
            continue
        light = cv2.GaussianBlur(change, (0, 0), LIGHT)
        change = _between(change, light, features[row, :, :, None])
        wide = cv2.resize(change, (side, side), interpolation=cv2.INTER_CUBIC)
        result[row] += wide.transpose(2, 0, 1) * allowed[row]
    return result
