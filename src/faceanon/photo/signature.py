"""A coarse signature of an anonymized picture, by which recovery sees what happened to the picture since.

    picture --> 8 x 8 colours, and of each face with its surroundings 4 x 4 colours and how sharp it is

It is computed from the anonymized pixels alone, so it tells nothing that the picture itself does not show. It is no
seal: whoever changes a picture on purpose can write a signature that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from faceanon.errors import UserError
from faceanon.manifest import CropGeometry, Manifest
from faceanon.photo.align import crop_window
from faceanon.photo.file import LoadedPhoto

Pixels = NDArray[np.uint8]
Layers = Sequence[Sequence[CropGeometry]]

PICTURE = 8  # cells across the picture
FACE = 4  # cells across a face
MOST_FACES = 64  # that have an entry; more tell nothing new, and a forged manifest may claim thousands
SAMPLES = 32  # pixels across a cell that are averaged, at most
CENTRE = 128  # px: how much of a face its sharpness is taken from
# 150 photographs at 100, 256 and 700 px, with a face that fills half of them and one of 20 px. Saved as JPEG of quality
# 75 with halved colour, none differs by more than 2.8 in the picture and 4.3 in a face (quality 30: 4.2 and 6.6); their
# mirror images differ by 7.8 and 5.6 in 99 of 100, by 43 and 34 mostly, other photographs by 36 and 25 in 99. A tenth
# more light is 6 and more in 99 of 100, and 3 % cut off at each side 10 mostly.
MOST_PICTURE = 5.0
MOST_FACE = 8.0
# The next best turn has to fit so much better: mirror images come no nearer than 7 over all cells.
CLEARLY = 2.0
# JPEG of quality 75 leaves at least 0.95 of a large face's sharpness, 0.67 of one of 20 px; a blur by 2 px leaves
# 0.67 of a face in a photograph of 256 px, and of a soft one more.
LEAST_SHARP = 0.6
FLAT = 16  # sixteenths of a level: of faces that are flatter nothing can be blurred


@dataclass(frozen=True)
class Turn:
    """What may have happened to a picture without a loss: it was turned, and then mirrored.

    Args:
        quarters: Quarter turns with the clock, 0 to 3.
        mirrored: Whether left and right were exchanged.
    """

    quarters: int
    mirrored: bool

    def undo(self, pixels: Pixels) -> Pixels:
        """The pixels `(H, W)` or `(H, W, 3)` as they were before; a view."""
        if self.mirrored:
            pixels = pixels[:, ::-1]
        return np.rot90(pixels, self.quarters)

    def __str__(self) -> str:
        words = []
        if self.quarters:
            words.append(f"turned by {90 * self.quarters} degrees")
        if self.mirrored:
            words.append("mirrored")
        return " and ".join(words) or "left as it was"


AS_IT_WAS = Turn(0, mirrored=False)
TURNS = tuple(Turn(quarters, mirrored) for mirrored in (False, True) for quarters in range(4))


@dataclass(frozen=True)
class Difference:
    """How far a picture is from a signature.

    Args:
        picture: Root mean square of the differences of the picture's cells, in levels of 0 to 255.
        face: The same of the cells of the face that differs most.
        sharpness: Of the face that lost most: what it has now over what it had.
        total: Root mean square over the cells of picture and faces together.
    """

    picture: float
    face: float
    sharpness: float
    total: float

    @property
    def fits(self) -> bool:
        """Whether a new PNG or JPEG explains it."""
        return self.picture <= MOST_PICTURE and self.face <= MOST_FACE and self.sharpness >= LEAST_SHARP


def fitted(photo: LoadedPhoto, manifest: Manifest, force: bool = False) -> LoadedPhoto:
    """The photo as it was when its manifest was written: one that was turned or mirrored since is turned back.

    Args:
        photo: The picture as it is now.
        manifest: Of the picture. Without a signature in it, only the size is compared.
        force: Let also a picture pass that looks otherwise than it did.

    Raises:
        UserError: If the picture was scaled or cut, or, unless `force`, changed in another way or exchanged.
    """
    turns = _possible(photo, manifest)
    if not manifest.signature:
        return photo
    differences = {}
    for turn in turns:
        pixels = turn.undo(photo.pixels)
        differences[turn] = _difference(signature_of(pixels, manifest.layers), manifest, photo.name)
    turn = min(turns, key=lambda one: differences[one].total)
    as_it_was = differences.get(AS_IT_WAS)
    # Of a picture that is nearly its own mirror image the noise of a new JPEG must not decide.
    if as_it_was is not None and as_it_was.total < differences[turn].total + CLEARLY:
        turn = AS_IT_WAS
    if not differences[turn].fits and not force:
        cause = _cause(differences[turn], signature_of(turn.undo(photo.pixels), manifest.layers), manifest.signature)
        raise UserError(
            f"{photo.name} is not as it was anonymized: {cause}; give the file as `faceanon anonymize` wrote it, or "
            "--force to recover it all the same"
        )
    if turn == AS_IT_WAS:
        return photo
    return _turned_back(photo, turn)


def _possible(photo: LoadedPhoto, manifest: Manifest) -> list[Turn]:
    """The turns after which the picture has its size again.

    Raises:
        UserError: If there is none.
    """
    height, width = photo.pixels.shape[:2]
    known = TURNS if manifest.signature else (AS_IT_WAS,)
    turns = []
    for turn in known:
        size = (height, width) if turn.quarters % 2 else (width, height)
        if size == (manifest.width, manifest.height):
            turns.append(turn)
    if not turns:
        was = f"{manifest.width}x{manifest.height}"
        what = _resized((width, height), (manifest.width, manifest.height))
        raise UserError(f"{photo.name} is {width}x{height} px but was anonymized at {was}: {what}")
    return turns


def _resized(now: tuple[int, int], before: tuple[int, int]) -> str:
    """What happened to a picture that had another width and height."""
    for width, height in (now, now[::-1]):
        # Sides are whole pixels, so the shorter one may be half a pixel off.
        if abs(width * before[1] - height * before[0]) <= max(*now, *before):
            return "it was scaled; give the unscaled file"
    return "it was cropped or stretched; give the whole file"


def _turned_back(photo: LoadedPhoto, turn: Turn) -> LoadedPhoto:
    alpha = photo.alpha
    if alpha is not None:
        alpha = np.ascontiguousarray(turn.undo(alpha))
    notes = (*photo.notes, f"the picture was {turn}: turned back")
    return replace(photo, pixels=np.ascontiguousarray(turn.undo(photo.pixels)), alpha=alpha, notes=notes)


def _difference(now: bytes, manifest: Manifest, name: str) -> Difference:
    """How far `now` is from the manifest's signature.

    Raises:
        UserError: If that is not of as many faces.
    """
    if len(now) != len(manifest.signature):
        raise UserError(f"{name}: the signature in its faceanon data is damaged")
    picture, faces, sharpness = _parts(now)
    picture_before, faces_before, sharpness_before = _parts(manifest.signature)
    faces = faces - faces_before
    picture = picture - picture_before
    ratios = (sharpness + FLAT) / (sharpness_before + FLAT)
    every = np.concatenate([picture.ravel(), faces.ravel()])
    face = 0.0
    if len(faces):
        face = float(np.sqrt((faces**2).mean(-1)).max())
    return Difference(_rms(picture), face, float(ratios.min(initial=1.0)), _rms(every))


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt((values**2).mean()))


def _parts(signature: bytes) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Colours of the picture `(64, 3)`, of the faces `(N, 48)`, and sharpness of the faces `(N,)`."""
    values = np.frombuffer(signature, np.uint8).astype(np.float64)
    start = 3 * PICTURE**2
    faces = values[start:].reshape(-1, 3 * FACE**2 + 1)
    return values[:start].reshape(-1, 3), faces[:, :-1], faces[:, -1]


def _cause(difference: Difference, now: bytes, before: bytes) -> str:
    """What most likely happened to a picture that does not fit."""
    if difference.picture <= MOST_PICTURE and difference.face <= MOST_FACE:
        return "it was blurred"
    if difference.picture <= MOST_PICTURE:
        return "a face in it was changed"
    if _recoloured(_parts(now)[0], _parts(before)[0]):
        return "its brightness or colours were changed"
    return "it was cropped or edited, or is another picture"


def _recoloured(now: NDArray[np.float64], before: NDArray[np.float64]) -> bool:
    """Whether one linear mapping of colours `(N, 3)` leads from one picture to the other."""
    known = np.column_stack([before, np.ones(len(before))])
    mapping = np.linalg.lstsq(known, now, rcond=None)[0]
    left = _rms(known @ mapping - now)
    spread = _rms(now - now.mean(0))
    # A black picture would be explained by anything.
    return left <= 0.3 * spread and spread >= 0.1 * _rms(before - before.mean(0))


def signature_of(pixels: Pixels, layers: Layers) -> bytes:
    """The signature of a picture `(H, W, 3)` uint8 whose anonymized faces lie in these layers.

    Raises:
        UserError: If a face lies outside the picture.
    """
    height, width = pixels.shape[:2]
    parts = [_colours(pixels, PICTURE)]
    for square in _signed(layers):
        left, top, right, bottom = crop_window(square, width, height)
        face = pixels[top:bottom, left:right]
        parts.append(_colours(face, FACE))
        parts.append(_sharpness(face))
    return b"".join(parts)


def _signed(layers: Layers) -> list[CropGeometry]:
    squares: list[CropGeometry] = []
    for layer in layers:
        squares += layer
    return squares[:MOST_FACES]


def _colours(pixels: Pixels, cells: int) -> bytes:
    """Mean colours of `cells` x `cells` equal parts, row after row."""
    height, width = pixels.shape[:2]
    # A mean of a thousand pixels is exact enough, however large the picture is.
    step = max(1, min(height, width) // (cells * SAMPLES))
    image = Image.fromarray(np.ascontiguousarray(pixels[::step, ::step]))
    return image.resize((cells, cells), Image.Resampling.BOX).tobytes()


def _sharpness(face: Pixels) -> bytes:
    """One byte: the mean difference of pixels two apart, in sixteenths of a level."""
    height, width = face.shape[:2]
    top = max(0, (height - CENTRE) // 2)
    left = max(0, (width - CENTRE) // 2)
    grey = face[top : top + CENTRE, left : left + CENTRE].mean(-1)
    across = np.abs(grey[:, 2:] - grey[:, :-2]).mean() if grey.shape[1] > 2 else 0.0
    down = np.abs(grey[2:] - grey[:-2]).mean() if grey.shape[0] > 2 else 0.0
    return bytes([min(255, round(8 * float(across + down)))])
