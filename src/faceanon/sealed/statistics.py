"""What the coder knows of latents before it sees any: directions, predictions from neighbours, spreads.

The coder's tables follow from the whole numbers here alone, so that a code reads the same on every machine. The basis
is the one part in floating point: it turns latents before they are rounded and after they are read, where its last bit
does no harm.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

NEIGHBOURS = ((0, -1), (-1, 0), (-1, -1), (-1, 1))
"""Row and column of the cells that a cell is predicted from, all of them before it in reading order."""

WEIGHT_UNIT = 64
SPREAD_UNIT = 1024
SHIPPED = Path(__file__).with_name("latent_statistics.safetensors")


@dataclass(frozen=True)
class Statistics:
    """Statistics of the latents of one codec at about one resolution.

    Args:
        basis: `(C, C)` float32 orthonormal rows, the directions along which latents are coded.
        weights: `(C, 4)` int32 in 1/64: how a coefficient follows from those of the cells in `NEIGHBOURS`.
        spread: `(C,)` int32 in 1/1024: standard deviation of what the prediction leaves, in the latents' own unit.
    """

    basis: NDArray[np.float32]
    weights: NDArray[np.int32]
    spread: NDArray[np.int32]


@functools.cache
def shipped() -> tuple[Statistics, ...]:
    """Statistics that every installation has, by the number that codes name: of 16 x 16 cells, and of 32 x 32."""
    tensors = load_file(SHIPPED)
    count = len(tensors) // 3
    statistics = []
    for number in range(count):
        parts = (tensors[f"basis.{number}"], tensors[f"weights.{number}"], tensors[f"spread.{number}"])
        statistics.append(Statistics(*parts))
    return tuple(statistics)


def save(path: Path, sets: Sequence[Statistics]) -> None:
    """Write statistics in the form that `shipped` reads."""
    tensors: dict[str, NDArray[Any]] = {}
    for number, statistics in enumerate(sets):
        tensors[f"basis.{number}"] = np.ascontiguousarray(statistics.basis)
        tensors[f"weights.{number}"] = statistics.weights
        tensors[f"spread.{number}"] = statistics.spread
    save_file(tensors, path)


def fit(latents: NDArray[np.float32], masks: NDArray[np.bool_]) -> Statistics:
    """Statistics of example faces.

    Args:
        latents: `(N, C, h, w)` normalised latents.
        masks: `(N, h, w)` cells that will be coded.

    Returns:
        Their principal directions, the least-squares prediction along each, and the spread of what it leaves.
    """
    channels = latents.shape[1]
    vectors = latents.transpose(0, 2, 3, 1)[masks].astype(np.float64)
    centred = vectors - vectors.mean(0)
    # Not divided by the number of vectors: only the directions count here.
    _, directions = np.linalg.eigh(centred.T @ centred)
    basis = directions.T
    turned = np.einsum("kc,nchw->nkhw", basis, latents.astype(np.float64))
    # The decoder has nothing outside the mask and predicts from zeros there, so the fit has to do the same.
    turned = np.where(masks[:, None], turned, 0)
    around = neighbours(turned)
    weights = np.zeros((channels, len(NEIGHBOURS)), np.int32)
    spread = np.zeros(channels, np.int32)
    for channel in range(channels):
        wanted = turned[:, channel][masks]
        known = around[:, :, channel][:, masks].T
        solution = np.linalg.lstsq(known, wanted, rcond=None)[0]
        weights[channel] = np.rint(solution * WEIGHT_UNIT)
        # With the rounded weights, as the coder predicts.
        left = wanted - known @ (weights[channel] / WEIGHT_UNIT)
        spread[channel] = max(1, round(float(left.std()) * SPREAD_UNIT))
    return Statistics(basis.astype(np.float32), weights, spread)


def neighbours(values: NDArray[Any]) -> NDArray[Any]:
    """For each of `NEIGHBOURS` the values `(..., h, w)` moved so that a cell holds its neighbour's: `(4, ..., h, w)`.

    Outside the picture lie zeros.

    Examples:
        >>> import numpy as np
        >>> from faceanon.sealed.statistics import NEIGHBOURS, neighbours
        >>> cells = np.array([[1, 2], [3, 4]])
        >>> for place, values in zip(NEIGHBOURS, neighbours(cells), strict=True):
        ...     print(place, values.tolist())
        (0, -1) [[0, 1], [0, 3]]
        (-1, 0) [[0, 0], [1, 2]]
        (-1, -1) [[0, 0], [0, 1]]
        (-1, 1) [[0, 0], [2, 0]]
    """
    height, width = values.shape[-2:]
    padded = np.pad(values, [(0, 0)] * (values.ndim - 2) + [(1, 0), (1, 1)])
    moved = []
    for row, column in NEIGHBOURS:
        moved.append(padded[..., 1 + row : 1 + row + height, 1 + column : 1 + column + width])
    return np.stack(moved)
