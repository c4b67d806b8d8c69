"""Plots of the report, as inline SVG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

PAIRS = {
    "impostor": ("two different people", "#888888"),
    "genuine": ("two pictures of one person", "#2a7f3f"),
    "anonymized": ("original and anonymized", "#c0392b"),
    "recovered/file": ("original and recovered", "#2471a3"),
    "wrong": ("original and wrong key", "#d68910"),
}


def to_svg(figure: Figure, prefix: str) -> str:
    """An `<svg>` element without the XML head; ids get a prefix, since several plots stand in one page."""
    file = io.StringIO()
    # Without the date, and with ids that are no random numbers, so that the same figures give the same file.
    with rc_context({"svg.hashsalt": "faceanon"}):
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = file.getvalue()
    # Ids, links to them and references by url(#...) all get the prefix, or the references would break.
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text[text.index("<svg") :])


def similarity_plot(scores: Mapping[str, Tensor | Sequence[float]], threshold: float | None = None) -> str:
    """Histograms of cosines, one row a kind of pair, with the line right of which a pair is accepted.

    Args:
        scores: Cosines by kind of pair; the kinds of `PAIRS` are drawn.
        threshold: The recogniser's threshold; no line where None or not finite.

    Returns:
        SVG; empty where there is nothing to draw.
    """
    arrays = {}
    for kind in PAIRS:
        if kind in scores:
            array = np.asarray(scores[kind], dtype=float)
            array = array[np.isfinite(array)]
            if array.size:
                arrays[kind] = array
    if not arrays:
        return ""
    # Without pyplot, which keeps every figure in memory until it is closed.
    figure = Figure(figsize=(6, 1.05 * len(arrays) + 0.6), layout="constrained")
    axes = figure.subplots(len(arrays), 1, sharex=True, squeeze=False)[:, 0]
    lows = []
    for array in arrays.values():
        lows.append(float(array.min()))
    edges = np.linspace(min(-0.3, *lows), 1.0, 70)
    for axis, (kind, array) in zip(axes, arrays.items(), strict=True):
        _histogram(axis, kind, array, edges, threshold)
    axes[-1].set_xlabel("cosine; right of the dashed line the judge says: the same person")
    return to_svg(figure, "similarity")


def _histogram(axis: Axes, kind: str, array: np.ndarray, edges: np.ndarray, threshold: float | None) -> None:
    label, colour = PAIRS[kind]
    # Rounding puts cosines a hair above 1, which would fall out of the last bin.
    axis.hist(np.clip(array, edges[0], 1.0), bins=edges.tolist(), color=colour)
    if threshold is not None and math.isfinite(threshold):
        axis.axvline(threshold, color="black", linestyle="--", linewidth=1)
        label += f": {np.mean(array > threshold):.1%} accepted"
    axis.set_title(label, fontsize=9, loc="left", pad=2)
    axis.set_yticks([])
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def history_plot(history: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Curves of the training.

    Args:
        history: `(step, value)` pairs by name; points that are not finite are left out.

    Returns:
        SVG; empty where there is nothing to draw.
    """
    curves = {}
    for name, points in history.items():
        finite = []
        for point in points:
            if math.isfinite(point[1]):
                finite.append(point)
        if finite:
            curves[name] = finite
    if not curves:
        return ""
    figure = Figure(figsize=(6, 3))
    axis = figure.subplots()
    for name, finite in curves.items():
        axis.plot(*zip(*finite, strict=True), label=name, linewidth=1.2)
    axis.set_xlabel("step")
    axis.legend(fontsize=7, frameon=False)
    axis.grid(alpha=0.3)
    return to_svg(figure, "history")
