"""From readings to figures, each with its 95 % interval over persons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faceanon.landmarks.expression import expression
from faceanon.landmarks.mesh import LEFT_EYE, RIGHT_EYE
from faceanon.metrics.interval import mean_interval, statistic_interval
from faceanon.metrics.recognition import Lookup, compare_rows
from faceanon.studies.photographs.judges import Judge
from faceanon.studies.photographs.pictures import ORIGINAL, ROUND_TRIP
from faceanon.studies.photographs.readings import Measured

Array = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass
class Figures:
    """Figures by name.

    Args:
        values: The figures.
        intervals: 95 % interval by name, over persons; not every figure has one.
    """

    values: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)

    def add_mean(self, name: str, rows: Tensor, person: Tensor, rate: bool = True) -> None:
        """Add the mean of `(N,)`, with its interval; NaN rows do not count, and nothing is added where all are.

        `rate` says that rows are shares in [0, 1].
        """
        known = rows[~rows.isnan()]
        if not len(known):
            return
        self.values[name] = float(known.mean())
        self.intervals[name] = mean_interval(rows.double().numpy(), person.numpy(), rate)


def judge_figures(judge: Judge, measured: Measured, figures: Figures) -> None:
    """Add everything that one judge says."""
    person = measured.person
    originals = judge.prepared(measured.originals[judge.name])
    versions = {kind: judge.prepared(stack) for kind, stack in measured.versions[judge.name].items()}
    name = judge.name
    # From the originals alone, so that every method is judged at the same threshold.
    threshold = judge.threshold(originals, person)
    figures.values[f"threshold/{name}"] = threshold
    alike = Lookup(originals, originals, person, judge.similarity).accepted(threshold)
    figures.add_mean(f"originals_alike/{name}", alike, person)
    lookups = [Lookup(version, originals, person, judge.similarity) for version in versions["anonymized"]]
    _anonymized_figures(name, lookups, threshold, figures)

    for kind in ("recovered", "wrong", "deniable"):
        if kind in versions:
            scores = compare_rows(versions[kind], originals, judge.similarity)
            # What could not be made is NaN, which passes no threshold: neither recovered nor opened.
            figures.add_mean(f"{kind}/{name}", (scores > threshold).float().mean(0), person)

    between = []
    for position, one in enumerate(versions["anonymized"]):
        for other in versions["anonymized"][position + 1 :]:
            between.append(compare_rows(one, other, judge.similarity))
    figures.add_mean(f"two_keys_alike/{name}", (torch.stack(between) > threshold).float().mean(0), person)

    pseudonyms = [Lookup(version, version, person, judge.similarity) for version in versions["anonymized"]]
    kept = torch.stack([lookup.accepted(threshold) for lookup in pseudonyms]).mean(0)
    figures.add_mean(f"one_pseudonym/{name}", kept, person)
    shared = torch.stack([lookup.strangers(threshold) for lookup in pseudonyms]).mean(0)
    figures.add_mean(f"pseudonyms_shared/{name}", shared, person)
    # Beside the originals' own rate: a judge that misses a person in other photos misses the stranger too.
    rows = torch.stack([kept, alike], 1).double().numpy()
    add_statistic(figures, f"pseudonym_ratio/{name}", rows, person, _ratio)


def _anonymized_figures(name: str, lookups: Sequence[Lookup], threshold: float, figures: Figures) -> None:
    """Add how far the anonymized pictures, one lookup a password, still lead to their people."""
    parts: dict[str, list[Tensor]] = {"same": [], "other": [], "strangers": [], "rank1": []}
    for lookup in lookups:
        own = compare_rows(lookup.probe, lookup.gallery, lookup.similarity)
        parts["same"].append((own > threshold).float())
        parts["other"].append(lookup.accepted(threshold))
        parts["strangers"].append(lookup.strangers(threshold))
        parts["rank1"].append(lookup.hits())
    for part, rows in parts.items():
        # First over the passwords: a row of the bootstrap is a picture.
        figures.add_mean(f"{part}/{name}", torch.stack(rows).mean(0), lookups[0].identity)
    # Passwords differ: one may draw a stranger who resembles many. The mean alone would hide that.
    for number, accepted in enumerate(parts["same"], 1):
        figures.values[f"same/{name}/password {number}"] = float(accepted.mean())


def _ratio(rows: Array) -> float:
    ours = float(rows[:, 0].mean())
    theirs = float(rows[:, 1].mean())
    if theirs > 0:
        return ours / theirs
    return math.nan


def add_statistic(
    figures: Figures, name: str, rows: Array, person: Tensor, statistic: Callable[[Array], float], seed: int = 0
) -> None:
    """Add any statistic of rows, with its interval by the bootstrap over persons.

    Args:
        figures: Where to.
        name: Of the figure.
        rows: `(N, ...)`, one a picture.
        person: `(N,)` labels.
        statistic: Of rows; NaN where they do not offer it.
        seed: Of the bootstrap.
    """
    value = statistic(rows)
    if math.isnan(value):
        return
    figures.values[name] = value
    interval = statistic_interval(lambda chosen: statistic(rows[chosen]), person.numpy(), seed=seed)
    if interval is not None:
        figures.intervals[name] = interval


def mesh_figures(measured: Measured, figures: Figures) -> None:
    """Add how far the points of anonymized pictures and of round trips moved, and whether the expression stayed."""
    original = measured.mesh[ORIGINAL][0]
    for kind, suffix in (("anonymized", ""), (ROUND_TRIP, "/round_trip")):
        if kind in measured.mesh:
            add_mesh(figures, original, measured.mesh[kind], measured.person, suffix)


def add_mesh(figures: Figures, original: Tensor, versions: Tensor, person: Tensor, suffix: str) -> None:
    """Add how far points moved, in shares of the eye distance, and how well mouth, yaw and pitch stayed.

    Args:
        figures: Where to.
        original: Points `(N, 468, 2)` of the originals, in any unit.
        versions: Points `(K, N, 468, 2)` of K versions of each, in the same.
        person: `(N,)` labels.
        suffix: Of the figures' names.
    """
    # Of the original: one unit of length for all versions of a face.
    eyes = (original[:, LEFT_EYE].mean(1) - original[:, RIGHT_EYE].mean(1)).norm(dim=1)
    moved = (versions - original).norm(dim=-1).mean(-1) / eyes
    figures.add_mean(f"mesh_distance{suffix}", moved.mean(0), person, rate=False)
    before = expression(original)
    after = list(map(expression, versions))
    for name, values in before.items():
        pairs = []
        # `(N, 2)` before and after, for each version.
        for one in after:
            pairs.append(torch.stack([values, one[name]], 1))
        rows = torch.stack(pairs, 1).double().numpy()
        add_statistic(figures, f"correlation/{name}{suffix}", rows, person, _correlation)


def _correlation(pairs: Array) -> float:
    """Pearson's correlation of pairs `(N, K, 2)`; NaN where one side does not vary."""
    flat = pairs.reshape(-1, 2)
    if flat.std(0).min() == 0:
        return math.nan
    return float(np.corrcoef(flat[:, 0], flat[:, 1])[0, 1])


def file_and_detector_figures(measured: Measured, figures: Figures) -> None:
    """Add what recovery costs and keeps, and whether a detector still finds a face."""
    person = measured.person
    psnr = measured.files["psnr"]
    known = psnr[~psnr.isnan()]
    if len(known):
        figures.add_mean("psnr", psnr.nanmean(0), person, rate=False)
        figures.values["psnr/least"] = float(known.min())
    carried = measured.files["carried"]
    figures.add_mean("carried_bytes", carried.mean(0), person, rate=False)
    figures.values["carried_bytes/most"] = float(carried.max())
    figures.add_mean("hidden_otherwise", measured.files["hidden"].mean(0), person)
    for kind, rates in measured.found.items():
        figures.add_mean("face_found" if kind == "anonymized" else "face_found/originals", rates.mean(0), person)
