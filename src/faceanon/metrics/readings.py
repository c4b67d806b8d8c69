"""Recognition rates by a fixed threshold, in every reading that a printed threshold allows.

A paper that prints "FaceNet, threshold 1.1" leaves open what the threshold bounds. On embeddings of unit length all
readings are thresholds of the cosine: L2 < 1.1 is cos > .395, squared L2 < 1.1 is cos > .45.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_finite

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


class RecognitionRate(Metric):
    """Share of pairs whose distance is below a threshold, as the papers count recognition.

    Args:
        distance: See `to_cosine`.
        threshold: See `to_cosine`.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.readings import RecognitionRate
        >>> metric = RecognitionRate("l2", 1.1)
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1, -0.2]))
        >>> metric.compute()
        tensor(0.5000)
    """

    full_state_update = False
    accepted: list[Tensor]

    def __init__(self, distance: Distance, threshold: float) -> None:
        super().__init__()
        self.cosine = to_cosine(distance, threshold)
        self.add_state("accepted", default=[], dist_reduce_fx="cat")

    def update(self, cosine: Tensor) -> None:
        """Add `(B,)` cosines of pairs of unit embeddings.

        Raises:
            ValueError: Another shape, no pair, NaN, or a value that is no cosine.
        """
        if cosine.ndim != 1 or not len(cosine):
            raise ValueError(f"cosine must have the shape (B,) with at least one pair, got {tuple(cosine.shape)}")
        cosine = check_finite("cosine", cosine)
        if cosine.abs().max() > 1 + 1e-4:
            raise ValueError(f"cosine must lie in [-1, 1], got {cosine.abs().max():.3g}; normalise the embeddings")
        self.accepted.append((cosine > self.cosine).float())

    def rows(self) -> Tensor:
        """1 where a pair is accepted, else 0: `(N,)`."""
        return dim_zero_cat(self.accepted)

    def compute(self) -> Tensor:
        """Share of pairs that are accepted, in [0, 1], as a float32 scalar."""
        return self.rows().double().mean().to(torch.float32)
