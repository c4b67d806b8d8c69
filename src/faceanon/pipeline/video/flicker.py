"""How restless the drawn faces are, against the original's own movement."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class _Sum:
    frame: int
    original: Tensor
    drawn: Tensor
    moved: float = 0.0
    flickered: float = 0.0


@dataclass
class FlickerMeter:
    """Mean absolute difference of a face and the same face one frame later, drawn over original.

    1 is as lively as the original; more is flicker, less is stiffness. Both are aligned crops, so that moving through
    the picture does not count.
    """

    _tracks: dict[int, _Sum] = field(default_factory=dict)

    def add(self, track: int, frame: int, original: Tensor, drawn: Tensor) -> None:
        """Take in one face; frames of a track come in order.

        Args:
            track: Number of the track.
            frame: Number of the frame.
            original: `(3, S, S)` in [-1, 1], what was there.
            drawn: `(3, S, S)` in [-1, 1], what took its place.
        """
        last = self._tracks.get(track)
        now = _Sum(frame, original, drawn)
        if last is not None:
            now.moved = last.moved
            now.flickered = last.flickered
            # Over a gap a face may change by any amount, and that is no flicker.
            if frame == last.frame + 1:
                now.moved += float((original - last.original).abs().mean())
                now.flickered += float((drawn - last.drawn).abs().mean())
        self._tracks[track] = now

    def of(self, track: int) -> float | None:
        """The figure of a track; None where the original never changed from one frame to the next."""
        known = self._tracks.get(track)
        if known is None or known.moved == 0:
            return None
        return known.flickered / known.moved

    def overall(self) -> float | None:
        """The figure over all tracks, each frame counting alike."""
        moved = sum(item.moved for item in self._tracks.values())
        if moved:
            return sum(item.flickered for item in self._tracks.values()) / moved
        return None
