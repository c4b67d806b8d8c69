"""Plots of the security page, as inline SVG; an attack without one of its own has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from faceanon.report.plots import to_svg
from faceanon.studies.security.base import Finding
from faceanon.studies.security.disturbance import Disturbed
from faceanon.studies.security.kdf_cost import ENOUGH, KdfCost
from faceanon.studies.security.known_pairs import FALLS, KnownPairs
from faceanon.studies.security.leak import Leak
from faceanon.studies.security.linkability import Linkability
from faceanon.studies.security.parrot import Parrot
from faceanon.studies.security.recognised import Recognised
from faceanon.studies.security.reidentify import Reidentified
from faceanon.studies.security.wrong_keys import WrongKeys

GOOD = "#2471a3"
BAD = "#c0392b"
QUIET = "#888888"


def plot(name: str, finding: Finding) -> str:
    """The plot of a finding; empty where it has none.

    Args:
        name: Of the attack; prefix of ids in the SVG.
        finding: What it found.
    """
    if isinstance(finding, WrongKeys):
        return to_svg(_keys(finding), name)
    if isinstance(finding, KnownPairs):
        return to_svg(_pairs(finding), name)
    if isinstance(finding, KdfCost):
        return to_svg(_cost(finding), name)
    bars = _bars(finding)
    if bars:
        return to_svg(_shares(*bars), name)
    return ""


def _keys(finding: WrongKeys) -> Figure:
    figure = Figure(figsize=(6, 2.2), layout="constrained")
    axis = figure.subplots()
    # Both histograms have the same bins, or their heights would not compare.
    edges = np.linspace(min(-0.3, *finding.right, *finding.wrong), 1.0, 60).tolist()
    axis.hist(finding.wrong, bins=edges, color=BAD, alpha=0.7, label="wrong key")
    axis.hist(finding.right, bins=edges, color=GOOD, alpha=0.7, label="right key")
    axis.axvline(finding.threshold, color="black", linestyle="--", linewidth=1)
    axis.set_xlabel("the judge's cosine with the original; right of the dashed line: the same person")
    axis.set_ylabel("faces")
    axis.legend(fontsize=8, frameon=False)
    return figure


def _pairs(finding: KnownPairs) -> Figure:
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axis = figure.subplots()
    axis.plot(finding.pairs, finding.linear, "o-", color=BAD, label="least squares", markersize=4)
    axis.plot(finding.mlp_pairs, finding.mlp, "s--", color=GOOD, label="network", markersize=4)
    axis.axhline(FALLS, color="black", linestyle="--", linewidth=1)
    axis.axvline(finding.length, color=QUIET, linestyle=":", linewidth=1, label="length of a code")
    axis.set_xscale("log")
    axis.set_xlabel("known pairs under one key")
    axis.set_ylabel("cosine with the true code")
    axis.legend(fontsize=8, frameon=False)
    return figure


def _cost(finding: KdfCost) -> Figure:
    figure = Figure(figsize=(6, 0.35 * len(finding.classes) + 0.8), layout="constrained")
    axis = figure.subplots()
    colours = []
    for cost in finding.cost:
        colours.append(GOOD if cost >= ENOUGH else BAD)
    axis.barh(finding.classes, finding.cost, color=colours)
    axis.axvline(ENOUGH, color="black", linestyle="--", linewidth=1)
    axis.set_xscale("log")
    # The first bar on top, as in the table.
    axis.invert_yaxis()
    axis.set_xlabel("expected cost of guessing, in the currency of the price")
    axis.tick_params(axis="y", labelsize=8)
    return figure


def _bars(finding: Finding) -> tuple[Mapping[str, float], Mapping[str, tuple[float, float]]] | None:
    """Shares by label, and the intervals of those that have one."""
    if isinstance(finding, Disturbed):
        return dict(zip(finding.names, finding.rates, strict=True)), {}
    if isinstance(finding, Linkability):
        shares = {
            "originals, one person": finding.originals_one,
            "one key, one person": finding.same_key_one,
            "one key, two people": finding.same_key_two,
            "two keys, one person": finding.other_key_one,
            "two keys, two people": finding.other_key_two,
        }
        return shares, {"two keys, one person": finding.other_key_one_interval}
    if isinstance(finding, Parrot):
        parts = {"anonymized": finding.before, "after the attack": finding.after}
        parts |= {"blurred": finding.control_before, "blur after the attack": finding.control_after}
        return _apart({name: (one.same, one.same_interval) for name, one in parts.items()})
    ranks = _ranks(finding)
    if not ranks:
        return None
    return _apart({name: (one.rank1, one.rank1_interval) for name, one in ranks.items()})


def _apart(
    bars: Mapping[str, tuple[float, tuple[float, float]]],
) -> tuple[Mapping[str, float], Mapping[str, tuple[float, float]]]:
    """Shares by label, and intervals by label, of both together."""
    shares = {}
    intervals = {}
    for name, (share, interval) in bars.items():
        shares[name] = share
        intervals[name] = interval
    return shares, intervals


def _ranks(finding: Finding) -> dict[str, Recognised] | None:
    if isinstance(finding, Reidentified):
        return {"originals": finding.originals, "not fine-tuned": finding.untrained, "fine-tuned": finding.trained}
    if isinstance(finding, Leak):
        probes = {}
        for source, probe in zip(finding.sources, finding.probes, strict=True):
            probes[f"probe on {source}"] = probe
        return probes
    return None


def _shares(shares: Mapping[str, float], intervals: Mapping[str, Sequence[float]]) -> Figure:
    figure = Figure(figsize=(6, 0.35 * len(shares) + 0.8), layout="constrained")
    axis = figure.subplots()
    axis.barh(list(shares), [100 * value for value in shares.values()], color=GOOD)
    for row, label in enumerate(shares):
        if label in intervals:
            low, high = intervals[label]
            axis.plot([100 * low, 100 * high], [row, row], color="black", linewidth=1.2)
    axis.set_xlim(0, 100)
    # The first bar on top, as in the table.
    axis.invert_yaxis()
    axis.set_xlabel("%")
    axis.tick_params(axis="y", labelsize=8)
    return figure
