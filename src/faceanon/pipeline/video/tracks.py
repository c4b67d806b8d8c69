"""Which face is whose from frame to frame, by where it is alone: no recogniser looks at anybody.

Detections of one frame are matched to the tracks by distance-IoU (Zheng et al. 2020, eq. 6) of the boxes, each track's
moved on by its own speed, in one optimal assignment (Jonker and Volgenant 1987). Gaps are filled by straight lines, and
the squares smoothed over time by a Savitzky-Golay filter of order 2, which follows steady acceleration without lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import lap
import numpy as np
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.manifest import CropGeometry
from faceanon.photo.detect import Detection

UNIT = 16  # squares are kept in sixteenths of a pixel, so that what the file says is exactly what was done
LEAST_OVERLAP = 0.0  # distance-IoU of a match; two equal boxes that touch at an edge have about -0.2
# On every frame the detector took half of the time.
KEY_FRAMES = 8.0  # a second, in which faces are looked for where nobody says how often
STEADY = 0.25  # of its box's side: how far a face may move, and its side change, from one key frame to the next
CUT = 30.0  # mean difference of two frames' thumbnails, of 255, from which they count as different scenes
THUMBNAIL = 32
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TrackOptions:
    """How faces are followed; times in seconds.

    Args:
        every: Detect on every Nth frame and on the first one after a cut. None: on `KEY_FRAMES` frames a second, and
            on all frames between two of these where the faces came, went or moved far.
        max_gap: Longest time without a sighting that is filled in.
        memory: Longest time after which a face at the same place still belongs to its track.
        hold: How long a face is covered before its first and after its last sighting.
        smooth: Window of the smoothing; 0 for none.

    Raises:
        UserError: If a number is out of range.
    """

    every: int | None = None
    max_gap: float = 1.0
    memory: float = 3.0
    hold: float = 0.2
    smooth: float = 0.3

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise UserError(f"faces can be looked for on every 1st, 2nd, 3rd ... frame, not on every {self.every}th")
        for name in ("max_gap", "memory", "hold", "smooth"):
            if not 0 <= getattr(self, name) <= 3600:
                raise UserError(f"{name} must be between 0 and 3600 seconds, not {getattr(self, name)}")


@dataclass(frozen=True)
class Segment:
    """One track's squares over neighbouring frames.

    Args:
        track: Number of the track.
        start: First frame.
        places: `(n, 4)` int32: center_x, center_y, axis_x, axis_y of `CropGeometry`, in units of 1 / `UNIT` pixels.
    """

    track: int
    start: int
    places: NDArray[np.int32]

    @property
    def stop(self) -> int:
        """Number of the first frame after the end of the track."""
        return self.start + len(self.places)

    def at(self, frame: int) -> CropGeometry:
        """The square in `frame`, which lies in the segment."""
        return CropGeometry(*(self.places[frame - self.start] / UNIT).tolist())


@dataclass(frozen=True)
class Track:
    """A face followed through the video.

    Args:
        number: Counts from 0.
        segments: Where it is covered.
        seen: Frames in which it was detected.
        missing: Frames `[start, stop)` between two sightings, too far apart to be filled: the face is not covered.
        found: What was detected in the frames of `seen`.
        given: The number that a file of boxes has for it; None where it was followed.
        stranger: How many strangers of the key are passed over for it.
    """

    number: int
    segments: tuple[Segment, ...]
    seen: tuple[int, ...]
    missing: tuple[tuple[int, int], ...]
    found: tuple[Detection, ...] = field(default=(), repr=False)
    given: int | None = None
    stranger: int = 0

    @property
    def covered(self) -> int:
        """Number of frames in which the face is covered."""
        return sum(len(segment.places) for segment in self.segments)


@dataclass
class _Sightings:
    """A track while it is built: the sightings so far."""

    scene: tuple[int, int | None]
    frames: list[int] = field(default_factory=list)
    boxes: list[Floats] = field(default_factory=list)
    places: list[Floats] = field(default_factory=list)
    found: list[Detection] = field(default_factory=list)
    given: int | None = None

    def add(self, frame: int, face: Detection, square: CropGeometry) -> None:
        """Put one more sighting to it."""
        self.frames.append(frame)
        self.boxes.append(np.array(face.box, dtype=np.float64))
        self.places.append(np.array([square.center_x, square.center_y, square.axis_x, square.axis_y]))
        self.found.append(face)

    def predicted(self, frame: int, reach: float) -> Floats:
        """The box in a later frame: moved on by the last speed, for `reach` frames at most."""
        # A single sighting has no speed.
        if len(self.frames) < 2:
            return self.boxes[-1]
        speed = (self.boxes[-1] - self.boxes[-2]) / (self.frames[-1] - self.frames[-2])
        # Only the middle of the box moves on; its size stays.
        moved: Floats = (speed[:2] + speed[2:]) / 2 * min(frame - self.frames[-1], reach)
        return self.boxes[-1] + np.tile(moved, 2)


class Tracker:
    """Collect detections frame by frame, then give the tracks.

    Args:
        rate: Frames a second.
        options: How to follow.
    """

    def __init__(self, rate: float, options: TrackOptions) -> None:
        self.rate = rate
        self.options = options
        self.every = options.every or max(1, round(rate / KEY_FRAMES))
        self._last = 0
        self._scene = 0
        self._tracks: list[_Sightings] = []
        self._thumbnail: NDArray[np.int16] | None = None

    def wants(self, frame: int, pixels: NDArray[np.uint8]) -> bool:
        """Whether faces should be looked for in this frame; to be asked for every frame in turn.

        Args:
            frame: Its number.
            pixels: `(H, W, 3)` uint8.
        """
        # Every n-th pixel is enough to notice a cut, and costs nothing beside decoding.
        step_y, step_x = (max(1, side // THUMBNAIL) for side in pixels.shape[:2])
        # Signed, since differences of unsigned bytes would wrap around.
        thumbnail = pixels[::step_y, ::step_x].astype(np.int16)
        last = self._thumbnail
        self._thumbnail = thumbnail
        if last is not None and np.abs(thumbnail - last).mean() > CUT:
            self._end_scene(frame)
        return (frame - self._scene) % self.every == 0

    def add(self, frame: int, found: Sequence[Detection], squares: Sequence[CropGeometry]) -> None:
        """Put the detections of one frame, each with its square, to their tracks; frames come in order."""
        self._last = frame
        boxes = []
        for face in found:
            boxes.append(np.array(face.box, dtype=np.float64))
        open_ = []
        for candidate in self._tracks:
            if self._remembers(candidate, frame):
                open_.append(candidate)
        predicted = []
        for candidate in open_:
            predicted.append(candidate.predicted(frame, 0.3 * self.rate))
        matched = dict(_match(predicted, boxes))
        for index, (face, square) in enumerate(zip(found, squares, strict=True)):
            if index in matched:
                track = open_[matched[index]]
            else:
                track = self._begun()
            track.add(frame, face, square)

    def add_given(self, frame: int, number: int, face: Detection, square: CropGeometry) -> None:
        """Put a face to the track that a file of boxes says; frames come in order."""
        for track in self._tracks:
            if track.given == number and track.scene == (self._scene, None):
                track.add(frame, face, square)
                return
        self._begun(number).add(frame, face, square)

    def _begun(self, given: int | None = None) -> _Sightings:
        track = _Sightings((self._scene, None), given=given)
        self._tracks.append(track)
        return track

    def steady(self, frame: int, found: Sequence[Detection]) -> bool:
        """Whether straight lines will do from the last frame that was looked at to this one.

        They will where the scene, the number of faces and, roughly, places and sizes are the same. To be asked after
        `wants` and before `add`.

        Args:
            frame: Its number.
            found: The detections in it.
        """
        if self._scene == frame:
            # What lies before a cut belongs to tracks that have ended, which `hold` covers to their end.
            return True
        last = []
        for track in self._tracks:
            if track.scene == (self._scene, None) and track.frames[-1] == self._last:
                last.append(track.boxes[-1])
        boxes = []
        for face in found:
            boxes.append(np.array(face.box, dtype=np.float64))
        matches = _match(last, boxes)
        if not len(last) == len(boxes) == len(matches):
            return False
        for index, other in matches:
            before = last[other]
            after = boxes[index]
            side = float(max(before[2:] - before[:2]))
            # Of a box every edge moves with the face, and one of them further where it grows or shrinks.
            if np.abs(after - before).max() > STEADY * side:
                return False
        return True

    def finish(self, frames: int, width: int, height: int) -> tuple[Track, ...]:
        """The tracks of a video with this many frames of this size."""
        self._end_scene(frames)
        return tuple(self._track(number, track, (width, height)) for number, track in enumerate(self._tracks))

    def _remembers(self, track: _Sightings, frame: int) -> bool:
        age = frame - track.frames[-1]
        return track.scene == (self._scene, None) and age <= max(self.options.memory * self.rate, self.every)

    def _end_scene(self, frame: int) -> None:
        for track in self._tracks:
            if track.scene[1] is None:
                # An ended scene closes its tracks: the face that the next scene shows at this place may be anybody.
                track.scene = track.scene[0], frame
        self._scene = frame

    def _track(self, number: int, track: _Sightings, size: tuple[int, int]) -> Track:
        # Where only every n-th frame is looked at, a face goes unseen for n - 1 frames without being gone.
        gap = max(round(self.options.max_gap * self.rate), self.every)
        hold = max(round(self.options.hold * self.rate), self.every - 1)
        window = round(self.options.smooth * self.rate)
        segments: list[Segment] = []
        missing: list[tuple[int, int]] = []
        frames = np.array(track.frames)
        runs = np.split(np.arange(len(frames)), np.nonzero(np.diff(frames) > gap)[0] + 1)
        stop = track.scene[0]
        for position, run in enumerate(runs):
            first = int(frames[run[0]])
            last = int(frames[run[-1]])
            start = max(first - hold, stop)
            if position > 0 and start > stop:
                missing.append((stop, start))
            ahead = track.scene[1]
            if position + 1 < len(runs):
                ahead = int(frames[runs[position + 1][0]])
            assert ahead is not None  # `finish` has closed every scene
            stop = min(last + 1 + hold, ahead)
            places = _fill(frames[run], np.array([track.places[index] for index in run]), window)
            held = np.concatenate([places[:1].repeat(first - start, 0), places, places[-1:].repeat(stop - last - 1, 0)])
            segments += _visible(number, start, np.rint(held * UNIT).astype(np.int32), size)
        return Track(number, tuple(segments), tuple(track.frames), tuple(missing), tuple(track.found), track.given)


def _fill(frames: NDArray[np.int64], places: Floats, window: int) -> Floats:
    """Squares of all frames from the first to the last, smoothed: `(n, 4)`."""
    every = np.arange(frames[0], frames[-1] + 1)
    filled = np.stack([np.interp(every, frames, column) for column in places.T], 1)
    # The filter takes odd windows; through three points a parabola passes exactly, so 5 is the least that smooths.
    odd = min(window, len(every)) - (min(window, len(every)) + 1) % 2
    if odd < 5:
        return filled
    return savitzky_golay(filled, odd)


def savitzky_golay(values: Floats, window: int) -> Floats:
    """Each row of `(n, k)` from the parabola through the `window` rows around it; `window` is odd, and n at least that.

    Of the first and the last rows it is the parabola of the first and the last window. A test holds it to scipy's
    `savgol_filter`; scipy itself would be a fifth of the installation.
    """
    half = window // 2
    powers = np.vander(np.arange(-half, half + 1), 3, increasing=True)
    fits = np.linalg.pinv(powers)
    middle = np.lib.stride_tricks.sliding_window_view(values, window, axis=0) @ fits[0]
    first = powers[:half] @ fits @ values[:window]
    last = powers[half + 1 :] @ fits @ values[-window:]
    smooth: Floats = np.concatenate([first, middle, last])
    return smooth


def _visible(number: int, start: int, places: NDArray[np.int32], size: tuple[int, int]) -> list[Segment]:
    """Leave out frames in which the square lies outside the picture: there is nothing to cover."""
    center = places[:, :2] / UNIT
    # Half the side of the upright box around the turned square, whose corners lie at the sums of both axes.
    reach = np.abs(places[:, 2:]).sum(1)[:, None] / UNIT
    inside = np.all((center + reach >= 2) & (center - reach <= np.array(size) - 2), axis=1)
    # Between two zeros every run of frames inside has a rise at its start and a fall at its stop.
    edges = np.nonzero(np.diff(np.concatenate([[0], inside.astype(int), [0]])))[0].reshape(-1, 2)
    return [Segment(number, start + int(a), places[a:b]) for a, b in edges]


def _match(tracks: Sequence[Floats], boxes: Sequence[Floats]) -> list[tuple[int, int]]:
    """Pairs (index of the box, index of the track) with the greatest sum of distance-IoU."""
    if not tracks or not boxes:
        return []
    likeness = _distance_iou(np.array(tracks), np.array(boxes))
    # A distance-IoU is at least -1, so a pair of -2 is taken only where no other is left, and then dropped.
    costs = -np.where(likeness > LEAST_OVERLAP, likeness, -2.0)
    _, columns, _ = lap.lapjv(costs, extend_cost=True)
    matches = []
    for r, c in enumerate(columns.tolist()):
        # -1: more tracks than boxes, and none is left for this one.
        if c >= 0 and likeness[r, c] > LEAST_OVERLAP:
            matches.append((c, r))
    return matches


def _distance_iou(one: Floats, other: Floats) -> Floats:
    """`(N, M)` in [-1, 1] for boxes `(N, 4)` and `(M, 4)`."""
    a = one[:, None]
    b = other[None]
    common = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - common
    hull = np.maximum(a[..., 2:], b[..., 2:]) - np.minimum(a[..., :2], b[..., :2])
    apart = (a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) / 2
    result: Floats = common / np.maximum(union, 1e-9) - (apart**2).sum(-1) / np.maximum((hull**2).sum(-1), 1e-9)
    return result
