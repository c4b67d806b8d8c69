"""How restless the drawn faces are, against the original's own movement."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from faceanon.persona.cells import Array


@dataclass
class _Sum:
    """How much a track's face changed in all."""

    moved: float = 0.0
    flickered: float = 0.0


@dataclass(frozen=True)
class _Shown:
    """A track's last face."""

    frame: int
    original: Array
    drawn: Array


@dataclass
class FlickerMeter:
    """Mean absolute difference of a face and the same face one frame later, drawn over original.

    1 is as lively as the original; more is flicker, less is stiffness. Both are aligned crops, so that moving through
    the picture does not count. Pictures are kept of the last two frames alone, however many tracks there are.
    """

    _sums: dict[int, _Sum] = field(default_factory=dict)
    _last: dict[int, _Shown] = field(default_factory=dict)

    def add(self, track: int, frame: int, original: Array, drawn: Array) -> None:
        """Take in one face; frames come in order.

        Args:
            track: Number of the track.
            frame: Number of the frame.
            original: `(3, S, S)` in [-1, 1], what was there.
            drawn: `(3, S, S)` in [-1, 1], what took its place.
        """
        # Over a gap a face may change by any amount, and that is no flicker: older faces are compared with nothing.
        for other, shown in list(self._last.items()):
            if shown.frame < frame - 1:
                del self._last[other]
        known = self._sums.setdefault(track, _Sum())
        last = self._last.get(track)
        if last is not None:
            known.moved += float(np.abs(original - last.original).mean())
            known.flickered += float(np.abs(drawn - last.drawn).mean())
        self._last[track] = _Shown(frame, original, drawn)

    def of(self, track: int) -> float | None:
        """The figure of a track; None where the original never changed from one frame to the next."""
        known = self._sums.get(track)
        if known is None or known.moved == 0:
            return None
        return known.flickered / known.moved

    def overall(self) -> float | None:
        """The figure over all tracks, each frame counting alike."""
        moved = sum(item.moved for item in self._sums.values())
        if moved:
            return sum(item.flickered for item in self._sums.values()) / moved
        return None
