"""Recognition rates by a fixed threshold, in every reading that a printed threshold allows.

A paper that prints "FaceNet, threshold 1.1" leaves open what the threshold bounds. On embeddings of unit length all
readings are thresholds of the cosine: L2 < 1.1 is cos > .395, squared L2 < 1.1 is cos > .45.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Distance = Literal["l2", "squared_l2", "one_minus_cosine", "cosine"]


def to_cosine(distance: Distance, threshold: float) -> float:
    """The cosine above which `distance` is below `threshold`, for unit vectors.

    Args:
        distance: What the threshold bounds from above; `cosine` bounds the similarity from below.
        threshold: Its value.

    Raises:
        ValueError: An unknown distance, or a threshold that no pair, or every pair, meets.

    Examples:
        >>> from faceanon.metrics.readings import to_cosine
        >>> round(to_cosine("l2", 1.1), 3)  # |a - b| < 1.1 of unit vectors
        0.395
    """
    # Between unit vectors the squared distance is 2 - 2 cos.
    formulas = {
        "l2": 1 - threshold**2 / 2,
        "squared_l2": 1 - threshold / 2,
        "one_minus_cosine": 1 - threshold,
        "cosine": threshold,
    }
    if distance not in formulas:
        raise ValueError(f"distance must be one of {', '.join(get_args(Distance))}, got {distance!r}")
    cosine = formulas[distance]
    if not -1 < cosine < 1 or (distance != "cosine" and threshold < 0):
        raise ValueError(f"a threshold of {threshold} on {distance} accepts every pair or none")
    return cosine


@dataclass(frozen=True)
class ThresholdReading:
    """One way to read a printed threshold.

    Args:
        name: In figures, such as `l2_1.1`.
        recogniser: Name of the recogniser it belongs to.
        distance: What is compared with the threshold.
        threshold: The number that the source prints.
    """

    name: str
    recogniser: str
    distance: Distance
    threshold: float

    @property
    def cosine(self) -> float:
        """The same threshold as a cosine."""
        return to_cosine(self.distance, self.threshold)
