"""The faces of a few frames at a time through the backbone, each track with one identity code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.key import Secret
from faceanon.manifest import CropGeometry
from faceanon.networks.blur import blurred
from faceanon.photo.align import arrange_layers, crop
from faceanon.photo.torch_pictures import changed_region, paste
from faceanon.pipeline.photo import Pipeline
from faceanon.types import Codes

Places = Sequence[tuple[int, CropGeometry]]
Replaced = tuple[int, int, Tensor, Tensor, bytes | None]
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
    """

    pipeline: Pipeline
    secret: Secret
    inverse: bool = False
    codes: Mapping[tuple[int, int], bytes] = field(default_factory=dict)

    def encode(self, faces: Tensor) -> Codes:
        """Codes of `(B, 3, S, S)`."""
        backbone = self.pipeline.backbone
        return (backbone.encode_anonymized if self.inverse else backbone.encode)(faces.to(self.pipeline.device))

    @torch.inference_mode()
    def __call__(
        self, faces: Tensor, tracks: Sequence[int], frames: Sequence[int], means: Mapping[int, Tensor]
    ) -> Tensor:
        """Change `(B, 3, S, S)` of these tracks and frames, with the tracks' mean identity codes where there are any.

        Returns:
            `(B, 3, S, S)` on the CPU, in [-1, 1].
        """
        return self.with_codes(faces, tracks, frames, means)[0]

    @torch.inference_mode()
    def with_codes(
        self, faces: Tensor, tracks: Sequence[int], frames: Sequence[int], means: Mapping[int, Tensor]
    ) -> tuple[Tensor, list[bytes]]:
        """As a call, with the codes of the originals, not yet sealed; none of recovery and of methods without codes."""
        backbone = self.pipeline.backbone
        device = self.pipeline.device
        if self.inverse and backbone.sealed:
            carried = []
            for position in zip(frames, tracks, strict=True):
                carried.append(self.codes[position])
            return self.pipeline.from_codes(faces, carried).clamp(-1, 1), []
        key = backbone.key_from_secret(self.secret, len(faces)).to(device)
        codes_made: list[bytes] = []
        # `means` holds every track, or none where the method has no codes to average.
        if all(track in means for track in tracks):
            codes_of_tracks = []
            for track in tracks:
                codes_of_tracks.append(means[track])
            identity = torch.stack(codes_of_tracks)
            if self.inverse:
                codes = self.encode(faces).with_identity(identity)
                drawn = backbone.decode(backbone.edit(codes, key, inverse=True))
            else:
                drawn, codes_made = backbone.anonymize_as_with_codes(faces.to(device), identity, key)
        elif self.inverse:
            drawn = backbone.recover(faces.to(device), key)
        else:
            drawn, codes_made = backbone.anonymize_with_codes(faces.to(device), key)
        return _hidden_anyway(drawn.detach().float().cpu().clamp(-1, 1), faces), codes_made


def _hidden_anyway(drawn: Tensor, faces: Tensor) -> Tensor:
    """Faces `(B, 3, S, S)`, blurred where the method gave no picture: the original must not show in any frame."""
    finite = drawn.flatten(1).isfinite().all(1)
    if finite.all():
        return drawn
    sigma = BLURRED * faces.shape[-1]
    return torch.where(finite[:, None, None, None], drawn, blurred(faces, sigma, math.ceil(3 * sigma)))


@dataclass
class IdentityMeans:
    """Mean identity code of each track, from as many of its faces as are added.

    Only for a method whose codes keep the attributes apart: where the identity code holds pose and expression as well
    (RiDDLE, FIT), a mean would freeze them, and each frame keeps its own.

    Args:
        change: The direction.
    """

    change: Change
    _sums: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    _faces: dict[int, list[Tensor]] = field(default_factory=dict)
    _averages: dict[int, Tensor] = field(default_factory=dict)

    @torch.inference_mode()
    def add(self, faces: Tensor, tracks: Sequence[int]) -> None:
        """Take in faces `(B, 3, S, S)` of these tracks."""
        codes = self.change.encode(faces)
        if codes.attributes is None:
            return
        for face, track, identity in zip(faces, tracks, codes.identity, strict=True):
            total, count = self._sums.get(track, (torch.zeros_like(identity), 0))
            self._sums[track] = total + identity, count + 1
            if count % EVERY == 0:
                self._faces.setdefault(track, []).append(face)

    @torch.inference_mode()
    def finish(self, track: int) -> None:
        """Say that no more faces of this track come; nothing is kept of them but their code."""
        # A method without such codes has added nothing.
        if track not in self._sums:
            return
        backbone = self.change.pipeline.backbone
        device = self.change.pipeline.device
        total, count = self._sums.pop(track)
        faces = self._faces.pop(track)
        mean = total / count
        # Recovery turns back the stranger's own code; from another one it would draw somebody else.
        if not self.change.inverse:
            key = backbone.key_from_secret(self.change.secret, 1).to(device)
            mean = backbone.unlike(torch.stack(faces).to(device), mean, key)
        self._averages[track] = mean

    def result(self) -> dict[int, Tensor]:
        """The codes by track, without a batch dimension; those whose stranger would look like the person are others."""
        for track in list(self._sums):
            self.finish(track)
        return dict(self._averages)


def replace_faces(
    change: Change,
    frames: Sequence[NDArray[np.uint8]],
    places: Sequence[Places],
    means: Mapping[int, Tensor],
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
    means: Mapping[int, Tensor],
    first: int,
) -> list[Replaced]:
    size = change.pipeline.backbone.face_sizes[0]
    crops = []
    tracks = []
    numbers = []
    for row, track, square in batch:
        crops.append(crop(frames[row], square, size))
        tracks.append(track)
        numbers.append(first + row)
    faces = torch.stack(crops)
    drawn, codes = change.with_codes(faces, tracks, numbers, means)
    for before, after, (row, _, square) in zip(faces, drawn, batch, strict=True):
        region = None
        if change.pipeline.backbone.sealed:
            region = changed_region(before, after)
        paste(frames[row], after, square, region=region)
    replaced: list[Replaced] = []
    for index, (row, track, _) in enumerate(batch):
        code = codes[index] if codes else None
        replaced.append((first + row, track, faces[index], drawn[index], code))
    return replaced
