"""What compression costs recovery, measured on a few faces of the file that was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from faceanon.errors import UserError
from faceanon.manifest import CropGeometry
from faceanon.persona.cells import Array
from faceanon.photo.crop_paste import crop
from faceanon.pipeline.photo import Pipeline
from faceanon.pipeline.video.faces import Change, IdentityMeans
from faceanon.pipeline.video.frames import Frame, read_frames
from faceanon.pipeline.video.passes import spread
from faceanon.pipeline.video.record import VideoRecord

PROBES = 4  # faces of a track
MOST_PROBES = 64
LEAST_ERROR = 1e-10  # of squares on [0, 1], where faces come back as they were: 100 dB


@dataclass
class Probe:
    """A few faces, kept to see how much worse they come back from the file than from memory.

    Args:
        wanted: Track and square of the faces by frame.
        size: Side of a face in pixels.
        averaged: Whether each track recovers with the mean of its codes.
        originals: `(3, S, S)` by frame and track.
        unwritten: The same faces anonymized and pasted, before compression.
    """

    wanted: dict[int, list[tuple[int, CropGeometry]]]
    size: int
    averaged: bool
    originals: dict[tuple[int, int], Array] = field(default_factory=dict)
    unwritten: dict[tuple[int, int], Array] = field(default_factory=dict)

    @classmethod
    def of(cls, record: VideoRecord, pipeline: Pipeline) -> Self:
        """A probe of a few faces of every track."""
        pairs = []
        for frame, faces in sorted(spread(record, PROBES).items()):
            for face in faces:
                pairs.append((frame, face))
        chosen = np.unique(np.linspace(0, len(pairs) - 1, min(MOST_PROBES, len(pairs))).round().astype(int))
        wanted: dict[int, list[tuple[int, CropGeometry]]] = {}
        for index in chosen:
            wanted.setdefault(pairs[index][0], []).append(pairs[index][1])
        averaged = pipeline.method.works_through_codes and not pipeline.method.sealed
        return cls(wanted, pipeline.method.face_sizes[0], averaged)

    def before(self, frame: int, track: int, face: Array) -> None:
        """Take in an original face `(3, S, S)`, if it is wanted."""
        if any(track == other for other, _ in self.wanted.get(frame, ())):
            # A face is a view of its batch, which would stay as a whole.
            self.originals[frame, track] = face.copy()

    def pasted(self, frame: Frame) -> None:
        """Take in an anonymized frame that is about to be compressed."""
        self._cut(frame, self.unwritten)

    def measure(self, written: Path, change: Change) -> tuple[float, float]:
        """PSNR in dB of recovered against original faces, from before compression and from the written file.

        Raises:
            UserError: If a frame is missing in the written file.
        """
        written_faces: dict[tuple[int, int], Array] = {}
        last = max(self.wanted)
        for frame in read_frames(written, self.wanted):
            self._cut(frame, written_faces)
            if frame.index == last:
                break
        if written_faces.keys() != self.originals.keys():
            raise UserError("the written video has other frames than were given to the encoder; try --lossless")
        return self._psnr(self.unwritten, change), self._psnr(written_faces, change)

    def _cut(self, frame: Frame, into: dict[tuple[int, int], Array]) -> None:
        for track, square in self.wanted.get(frame.index, ()):
            into[frame.index, track] = crop(frame.pixels, square, self.size)

    def _psnr(self, faces: dict[tuple[int, int], Array], change: Change) -> float:
        places = sorted(faces)
        means = IdentityMeans(change)
        errors = []
        batches = []
        for at in range(0, len(places), change.pipeline.batch):
            batches.append(places[at : at + change.pipeline.batch])
        if self.averaged:
            for batch in batches:
                shown = np.stack([faces[position] for position in batch])
                means.add(shown, [track for _, track in batch])
        known = means.result()
        for batch in batches:
            frames = []
            tracks = []
            shown_faces = []
            originals = []
            for frame, track in batch:
                frames.append(frame)
                tracks.append(track)
                shown_faces.append(faces[frame, track])
                originals.append(self.originals[frame, track])
            back, _ = change(np.stack(shown_faces), tracks, frames, known)
            errors += np.square(back - np.stack(originals)).mean((1, 2, 3)).tolist()
        # Of pictures in [-1, 1]: on [0, 1] squares are a quarter.
        return float(-10 * np.log10(max(float(np.mean(errors)) / 4, LEAST_ERROR)))
