"""Confidence intervals of rates, with pictures of one person taken together."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

NORMAL_95 = 1.959963984540054
CHUNK = 100  # bootstrap samples at a time, so that memory stays small


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """Wilson's 95% interval of a rate; never of width zero, also at 0 and 1.

    Examples:
        >>> from faceanon.metrics.interval import wilson
        >>> low, high = wilson(successes=0, trials=10)  # nobody of ten
        >>> round(low, 3), round(high, 3)
        (0.0, 0.278)
    """
    rate = successes / trials
    square = NORMAL_95**2
    centre = (rate + square / (2 * trials)) / (1 + square / trials)
    half = NORMAL_95 * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials**2)) / (1 + square / trials)
    # At the ends the exact result is 0 or 1, which a rounded one may miss.
    low = 0.0
    if successes > 0:
        low = centre - half
    high = 1.0
    if successes < trials:
        high = centre + half
    return low, high


def rate_interval(
    values: NDArray[np.floating], people: NDArray[np.integer], draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """95% interval of the mean of values in [0, 1], by the bootstrap over people.

    Pictures of one person succeed and fail together, so people are drawn, not pictures. Where all values are 0 or all
    are 1 a bootstrap would claim certainty; Wilson's interval over the number of people stands in. The recogniser's
    threshold is taken as given.

    Args:
        values: `(N,)`; NaN rows do not count.
        people: `(N,)` labels; each row with a negative label is a person of its own.
        draws: Number of bootstrap samples.
        seed: Of the draw.

    Returns:
        Lower and upper end; both NaN over nothing.

    Examples:
        >>> import numpy as np
        >>> from faceanon.metrics.interval import rate_interval
        >>> recognised = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
        >>> low, high = rate_interval(recognised, people=np.array([0, 0, 1, 1, 2, 2]))
        >>> bool(low <= recognised.mean() <= high)
        True
    """
    known = np.isfinite(values)
    values = values[known].astype(float)
    people = people[known]
    if not len(values):
        return math.nan, math.nan
    # Who is not known counts as a person of his own.
    own = np.where(people < 0, -np.arange(1, len(people) + 1), people)
    _, group = np.unique(own, return_inverse=True)
    # One person alone cannot be drawn anew: take the pictures as independent.
    if group.max() == 0:
        group = np.arange(len(values))
    sums = np.bincount(group, values)
    counts = np.bincount(group)
    # Where all agree, every bootstrap sample agrees too, and the interval would have no width.
    if values.min() == values.max() and values[0] in (0.0, 1.0):
        return wilson(float(values[0]) * len(counts), len(counts))
    rng = np.random.default_rng(seed)
    means = np.empty(draws)
    for start in range(0, draws, CHUNK):
        # A person's pictures are alike, so whole people are drawn, not pictures.
        chosen = rng.integers(len(counts), size=(len(means[start : start + CHUNK]), len(counts)))
        means[start : start + CHUNK] = sums[chosen].sum(1) / counts[chosen].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def mean_interval(
    values: NDArray[np.floating], people: NDArray[np.integer], rate: bool, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """95% interval of the mean, as of `rate_interval`; `rate` says that values are shares in [0, 1].

    Of what is no share, equal values have an interval of width zero.
    """
    known = values[np.isfinite(values)]
    # `rate_interval` takes values that are all 0 or all 1 for a rate, and gives them Wilson's interval.
    if not rate and len(known) and known.min() == known.max():
        return float(known[0]), float(known[0])
    return rate_interval(values, people, draws, seed)


def statistic_interval(
    statistic: Callable[[NDArray[np.int64]], float], people: NDArray[np.integer], draws: int = 1000, seed: int = 0
) -> tuple[float, float] | None:
    """95% interval of any figure of many pictures, by the bootstrap over people.

    Args:
        statistic: Of the numbers of the pictures that were drawn, `(M,)`; NaN where those do not offer it.
        people: `(N,)` labels.
        draws: Number of bootstrap samples.
        seed: Of the draw.

    Returns:
        Lower and upper end; None where no draw offers the figure.

    Examples:
        >>> import numpy as np
        >>> from faceanon.metrics.interval import statistic_interval
        >>> values = np.array([1.0, 2.0, 3.0, 4.0])
        >>> low, high = statistic_interval(lambda rows: float(values[rows].mean()), people=np.array([0, 0, 1, 1]))
        >>> low, high
        (1.5, 3.5)
    """
    owned = []
    for label in np.unique(people):
        owned.append(np.flatnonzero(people == label))
    rng = np.random.default_rng(seed)
    known = []
    for _ in range(draws):
        chosen = rng.integers(len(owned), size=len(owned))
        value = statistic(np.concatenate([owned[number] for number in chosen]))
        # Some draws of persons offer no such figure, as a ratio to nothing.
        if math.isfinite(value):
            known.append(value)
    if not known:
        return None
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)
