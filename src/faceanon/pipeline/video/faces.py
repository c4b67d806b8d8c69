"""The faces of a few frames at a time through the backbone, each track with one identity code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from faceanon.key import Secret
from faceanon.manifest import CropGeometry
from faceanon.persona.cells import Array
from faceanon.photo.align import arrange_layers
from faceanon.photo.crop_paste import changed_region, crop, paste
from faceanon.pipeline.photo import Pipeline

Places = Sequence[tuple[int, CropGeometry]]
Replaced = tuple[int, int, Array, Array, bytes | None]
"""Frame, track, the face `(3, S, S)` before and after, and the code of the original or None."""
BLURRED = 0.06  # deviation of the blur, in sides of the square, where a method gives no picture
EVERY = 6  # faces of a track from one on which its stranger is checked to the next


@dataclass(frozen=True)
class Change:
    """One direction of a method under one key.

    Args:
        pipeline: The model.
        secret: The key.
        inverse: Recover instead of anonymize.
        codes: For a method whose way back is a sealed code: the opened codes by frame and track.
        strangers: By track, how many strangers of the key are passed over; 0 where it is not named.
    """

    pipeline: Pipeline
    secret: Secret
    inverse: bool = False
    codes: Mapping[tuple[int, int], bytes] = field(default_factory=dict)
    strangers: Mapping[int, int] = field(default_factory=dict)

    def secret_of(self, track: int) -> Secret:
        """What chooses the stranger of a track."""
        return self.secret.after(self.strangers.get(track, 0))

    def __call__(
        self, faces: Array, tracks: Sequence[int], frames: Sequence[int], means: Mapping[int, Array]
    ) -> tuple[Array, list[bytes]]:
        """Change faces of these tracks and frames.

        Args:
            faces: `(B, 3, S, S)` in [-1, 1].
            tracks: Of each face.
            frames: Likewise.
            means: The tracks' mean identity codes, of every track or of none.

        Returns:
            `(B, 3, S, S)` in [-1, 1], and the codes of the originals, not yet sealed; none of recovery and of methods
            without codes.
        """
        method = self.pipeline.method
        if self.inverse and method.sealed:
            carried = []
            for position in zip(frames, tracks, strict=True):
                carried.append(self.codes[position])
            return self.pipeline.from_codes(faces, carried).clip(-1, 1), []
        keys = self.pipeline.keys([self.secret_of(track) for track in tracks])
        codes: list[bytes] = []
        # `means` holds every track, or none where the method has no codes to average.
        if all(track in means for track in tracks):
            identity = np.stack([means[track] for track in tracks])
            if self.inverse:
                drawn = method.recover_as(faces, identity, keys)
            else:
                drawn, codes = method.anonymize_as(faces, identity, keys)
        elif self.inverse:
            drawn = method.recover(faces, keys)
        else:
            drawn, codes = method.anonymize_with_codes(faces, keys)
        return _hidden_anyway(drawn.clip(-1, 1), faces), codes


def _hidden_anyway(drawn: Array, faces: Array) -> Array:
    """Faces `(B, 3, S, S)`, blurred where the method gave no picture: the original must not show in any frame."""
    result = drawn.copy()
    sigma = BLURRED * faces.shape[-1]
    for row in np.flatnonzero(~np.isfinite(drawn).all((1, 2, 3))):
        planes = [cv2.GaussianBlur(plane, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE) for plane in faces[row]]
        result[row] = np.stack(planes)
    return result


@dataclass
class IdentityMeans:
    """Mean identity code of each track, from as many of its faces as are added.

    Only for a method whose codes keep the attributes apart: where the identity code holds pose and expression as well
    (RiDDLE, FIT), a mean would freeze them, and each frame keeps its own.

    Args:
        change: The direction.
    """

    change: Change
    _sums: dict[int, tuple[Array, int]] = field(default_factory=dict)
    _faces: dict[int, list[Array]] = field(default_factory=dict)
    _averages: dict[int, Array] = field(default_factory=dict)

    def add(self, faces: Array, tracks: Sequence[int]) -> None:
        """Take in faces `(B, 3, S, S)` of these tracks."""
        identities = self.change.pipeline.method.identities(faces, self.change.inverse)
        if identities is None:
            return
        for face, track, identity in zip(faces, tracks, identities, strict=True):
            total, count = self._sums.get(track, (np.zeros_like(identity), 0))
            self._sums[track] = total + identity, count + 1
            if count % EVERY == 0:
                self._faces.setdefault(track, []).append(face)

    def finish(self, track: int) -> None:
        """Say that no more faces of this track come; nothing is kept of them but their code."""
        # A method without such codes has added nothing.
        if track not in self._sums:
            return
        pipeline = self.change.pipeline
        total, count = self._sums.pop(track)
        faces = self._faces.pop(track)
        mean = total / count
        # Recovery turns back the stranger's own code; from another one it would draw somebody else.
        if not self.change.inverse:
            mean = pipeline.method.unlike(np.stack(faces), mean, pipeline.method.key(self.change.secret_of(track)))
        self._averages[track] = mean

    def result(self) -> dict[int, Array]:
        """The codes by track, without a batch dimension; those whose stranger would look like the person are others."""
        for track in list(self._sums):
            self.finish(track)
        return dict(self._averages)


def replace_faces(
    change: Change,
    frames: Sequence[NDArray[np.uint8]],
    places: Sequence[Places],
    means: Mapping[int, Array],
    first: int = 0,
) -> list[Replaced]:
    """Change every face of a few frames, in place; faces of all frames share the batches.

    Args:
        change: What to do.
        frames: RGB `(H, W, 3)` uint8 each.
        places: Track and square of every face, for each frame.
        means: Mean identity code by track; may be empty.
        first: Number of the first of these frames.

    Returns:
        What was replaced, frame after frame.
    """
    orders = []
    for row in places:
        # `arrange_layers` knows squares alone; by this their tracks are found again.
        tracks = {}
        for track, square in row:
            tracks[square] = track
        layers = arrange_layers([square for _, square in row])
        arranged = []
        for layer in layers:
            faces = []
            for square in layer:
                faces.append((tracks[square], square))
            arranged.append(faces)
        # Faces that overlap come off in the order opposite to the one in which they were pasted.
        if change.inverse:
            orders.append(arranged[::-1])
        else:
            orders.append(arranged)
    replaced: list[Replaced] = []
    # Depth by depth: a face that lies over another is cut out once that one is pasted.
    for depth in range(max(map(len, orders), default=0)):
        flat = []
        for number, layers_of_frame in enumerate(orders):
            if depth < len(layers_of_frame):
                for track, square in layers_of_frame[depth]:
                    flat.append((number, track, square))
        for start in range(0, len(flat), change.pipeline.batch):
            replaced += _replace_batch(change, frames, flat[start : start + change.pipeline.batch], means, first)
    # Depth by depth is not frame by frame.
    return sorted(replaced, key=lambda face: face[:2])


def _replace_batch(
    change: Change,
    frames: Sequence[NDArray[np.uint8]],
    batch: Sequence[tuple[int, int, CropGeometry]],
    means: Mapping[int, Array],
    first: int,
) -> list[Replaced]:
    size = change.pipeline.method.face_sizes[0]
    crops = []
    tracks = []
    numbers = []
    for row, track, square in batch:
        crops.append(crop(frames[row], square, size))
        tracks.append(track)
        numbers.append(first + row)
    faces = np.stack(crops)
    drawn, codes = change(faces, tracks, numbers, means)
    for before, after, (row, _, square) in zip(faces, drawn, batch, strict=True):
        region = None
        if change.pipeline.method.sealed:
            region = changed_region(before, after)
        paste(frames[row], after, square, region=region)
    replaced: list[Replaced] = []
    for index, (row, track, _) in enumerate(batch):
        code = codes[index] if codes else None
        replaced.append((first + row, track, faces[index], drawn[index], code))
    return replaced
