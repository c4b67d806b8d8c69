"""Where the methods of a leaderboard stand: how well they hide, what they keep, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH = 360
HEIGHT = 300
LEFT = 46
RIGHT = 350
TOP = 12
BOTTOM = 262
RADIUS = 8.0
# Nothing recovered, all recovered; told apart by all eyes.
LOW = (0xB3, 0x5C, 0x00)
HIGH = (0x1F, 0x5F, 0xBF)
LOG_FROM = 50.0  # a ratio of values above which the axis is logarithmic


@dataclass
class Point:
    """A method in the plot.

    Args:
        number: Its number in the table.
        name: Of the method.
        x: Share of faces hidden, in [0, 1].
        y: The figure of the axis.
        recovered: Share recovered, or None where there is no way back.
        text: What is shown when the point is touched.
        at: Where its circle is drawn.
        true: Where it belongs.
    """

    number: int
    name: str
    x: float
    y: float
    recovered: float | None
    text: str
    at: tuple[float, float] = (0.0, 0.0)
    true: tuple[float, float] = (0.0, 0.0)

    @property
    def colour(self) -> str:
        """From orange (nothing comes back) to blue (everything does)."""
        share = min(max(self.recovered or 0.0, 0.0), 1.0)
        parts = []
        for low, high in zip(LOW, HIGH, strict=True):
            parts.append(round(low + share * (high - low)))
        return f"rgb({parts[0]} {parts[1]} {parts[2]})"

    @property
    def moved(self) -> bool:
        """Whether the circle had to give way to others."""
        return math.dist(self.at, self.true) > 3


@dataclass
class Scatter:
    """A plot as the template draws it.

    Args:
        title: What stands on the y axis.
        lower: Whether less is better; the better end is always at the top.
        points: The methods, placed.
        ticks_x: Position and label of each.
        ticks_y: Position and label of each.
    """

    title: str
    lower: bool
    points: list[Point]
    ticks_x: list[tuple[float, str]] = field(default_factory=list)
    ticks_y: list[tuple[float, str]] = field(default_factory=list)
    width: int = WIDTH
    height: int = HEIGHT
    box: tuple[int, int, int, int] = (LEFT, TOP, RIGHT, BOTTOM)


def scatter(title: str, points: Sequence[Point], lower: bool) -> Scatter | None:
    """Place the points; None where fewer than two have finite values.

    Args:
        title: Of the y axis, with its unit.
        points: The methods; those without a finite value are left out.
        lower: Whether less is better.
    """
    kept = []
    for point in points:
        if math.isfinite(point.x) and math.isfinite(point.y):
            kept.append(point)
    if len(kept) < 2:
        return None
    values = [point.y for point in kept]
    log = min(values) > 0 and max(values) / min(values) > LOG_FROM
    ends = _ends([math.log10(value) for value in values] if log else values)
    # From the next lower step of 5 %, but never less than the last tenth: an axis must not blow up a hair's breadth.
    span = min(math.floor(20 * min(point.x for point in kept)) / 20, 0.9), 1.0
    for point in kept:
        height = (math.log10(point.y) if log else point.y, *ends)
        point.true = (_place(point.x, *span, LEFT, RIGHT), _height(*height, lower))
        point.at = point.true
    _spread(kept)
    plot = Scatter(f"{title}, logarithmic" if log else title, lower, kept)
    for tick in _ticks(*span, log=False):
        plot.ticks_x.append((_place(tick, *span, LEFT, RIGHT), f"{100 * tick:.3g} %"))
    for tick in _ticks(*ends, log):
        label = 10**tick if log else tick
        plot.ticks_y.append((_height(tick, *ends, lower), f"{label:.3g}"))
    return plot


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low = min(values)
    high = max(values)
    # Equal values need some room too, and so does zero.
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _place(value: float, low: float, high: float, start: float, end: float) -> float:
    # Circles at the ends stay whole.
    inner = RADIUS + 1
    return start + inner + (value - low) / (high - low) * (end - start - 2 * inner)


def _height(value: float, low: float, high: float, lower: bool) -> float:
    if lower:
        return _place(value, low, high, TOP, BOTTOM)
    return _place(value, low, high, BOTTOM, TOP)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    """Three to six round values between the ends."""
    # A narrow axis holds fewer than two whole powers of ten: its ticks are even steps of the logarithm.
    if log:
        ticks = list(map(float, range(math.ceil(low), math.floor(high) + 1)))
        if len(ticks) >= 2:
            return ticks
    step = 10 ** math.floor(math.log10((high - low) / 3))
    # The widest round step that leaves three ticks.
    step = next(step * factor for factor in (5, 2, 1) if (high - low) / (step * factor) >= 3)
    # A tick at the very end may miss it by rounding.
    return [step * n for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _spread(points: Sequence[Point], rounds: int = 80) -> None:
    """Push circles that hide each other apart, as far as the frame lets them."""
    # A circle that is pushed away may cover another one, so once is not enough.
    for _ in range(rounds):
        for i, one in enumerate(points):
            for other in points[:i]:
                _push(one, other)


def _push(one: Point, other: Point) -> None:
    dx = one.at[0] - other.at[0]
    dy = one.at[1] - other.at[1]
    distance = math.hypot(dx, dy)
    if distance >= 2 * RADIUS + 1:
        return
    # Equal methods go apart in a direction of their own.
    if distance < 1e-6:
        dx = math.cos(one.number)
        dy = math.sin(one.number)
        distance = 1.0
    # Each of the two moves by half of what they lack; the last division makes the direction a unit vector.
    step = (2 * RADIUS + 1 - math.hypot(one.at[0] - other.at[0], one.at[1] - other.at[1])) / 2 / distance
    one.at = _inside(one.at[0] + dx * step, one.at[1] + dy * step)
    other.at = _inside(other.at[0] - dx * step, other.at[1] - dy * step)


def _inside(x: float, y: float) -> tuple[float, float]:
    return min(max(x, LEFT + RADIUS), RIGHT - RADIUS), min(max(y, TOP + RADIUS), BOTTOM - RADIUS)
