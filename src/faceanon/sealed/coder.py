"""Latents of some cells as few bytes, and back: turned, rounded, predicted, entropy-coded.

    latents --basis--> coefficients --/ step, round--> whole numbers --minus prediction--> residuals --ANS--> bytes

Everything after the rounding is in whole numbers, or in sums, products and quotients of float64 in a fixed order, which
IEEE 754 defines to the last bit. So a code that one machine wrote is read by every other. The entropy coder (asymmetric
numeral systems) is constriction's.
"""

from __future__ import annotations

import functools
import struct

import numpy as np
from constriction import stream
from numpy.typing import NDArray

from faceanon.errors import UserError
from faceanon.sealed.statistics import NEIGHBOURS, SPREAD_UNIT, WEIGHT_UNIT, Statistics, neighbours, shipped

VERSION = 1
HEAD = struct.Struct("<BBBBH")  # version, number of the statistics, rows, columns, step in 1/1024
STEP_UNIT = 1024
SMALLEST_STEP = 0.1
LARGEST_STEP = 4.0
CELL = 8  # pixels of the picture along one cell
MOST_SIDE = 64  # cells; a face of 512 px
MOST_BYTES = 64_000
LARGEST = 127  # of a rounded coefficient, either way; at the smallest step five standard deviations
WORD = np.dtype("<u4")

# Out of 256, the chance that a cell belongs to the mask when so many of its four neighbours do.
MASK_CHANCES = (4, 48, 128, 208, 252)

DAMAGED = "the code of a face is damaged, or of a version that this faceanon does not read"


def default_step(cells: int) -> float:
    """Rounding step for latents of so many cells a side, in standard deviations of the latents.

    A face of 128 px takes some 1.0 kB then, one of 256 px 3.0 kB; the codec itself loses more than the rounding.

    Examples:
        >>> from faceanon.sealed.coder import default_step
        >>> default_step(16), default_step(32)  # of faces of 128 and 256 px
        (0.35, 0.5)
    """
    if cells <= 16:
        return 0.35
    return 0.5


def encode_cells(latents: NDArray[np.float32], mask: NDArray[np.bool_], step: float | None = None) -> bytes:
    """Latents of the cells of a mask, rounded, with the mask itself.

    Args:
        latents: `(32, h, w)` normalised latents of one picture, at most 64 x 64 cells.
        mask: `(h, w)`, the cells to keep.
        step: Rounding step, 0.1 to 4, kept to 1/1024; `default_step` when None.

    Returns:
        The code, for `decode_cells`; some 13 bytes a cell at the default step of 16 x 16 cells.

    Raises:
        ValueError: If a shape does not fit, a latent is not finite, or the step lies outside its range.

    Examples:
        >>> import numpy as np
        >>> from faceanon.sealed.coder import decode_cells, encode_cells
        >>> latents = np.random.default_rng(0).standard_normal((32, 16, 16)).astype(np.float32)
        >>> mask = np.zeros((16, 16), dtype=bool)
        >>> mask[4:12, 4:12] = True
        >>> found, cells = decode_cells(encode_cells(latents, mask, step=0.5))
        >>> bool((cells == mask).all())
        True
        >>> bool((found - latents)[:, mask].std() < 0.15)  # a step over the root of 12
        True
    """
    number = _set_for(latents.shape[-1])
    statistics = shipped()[number]
    channels, rows, columns = latents.shape
    if channels != len(statistics.spread) or mask.shape != (rows, columns) or not 1 <= max(rows, columns) <= MOST_SIDE:
        raise ValueError(f"no code for latents {latents.shape} with a mask {mask.shape}")
    # Casting NaN to an integer is undefined, and the code could not be told from a damaged one.
    if not np.isfinite(latents).all():
        raise ValueError("latents that are not finite have no code")
    if step is None:
        step = default_step(max(rows, columns))
    if not SMALLEST_STEP <= step <= LARGEST_STEP:
        raise ValueError(f"the step must lie from {SMALLEST_STEP} to {LARGEST_STEP}, not {step}")
    # The step as the head of the code has it: encoder and decoder have to round alike.
    units = round(step * STEP_UNIT)
    coefficients = np.einsum("kc,chw->khw", statistics.basis, latents)
    rounded = np.rint(coefficients * (STEP_UNIT / units)).clip(-LARGEST, LARGEST).astype(np.int32)
    # Cells outside of the mask are not stored, so predictions must not use them.
    rounded = np.where(mask, rounded, 0)
    residuals = (rounded - _prediction(neighbours(rounded), statistics))[:, mask]
    coder = stream.stack.AnsCoder()
    # What is pushed last is read first: the mask, then one direction after the other.
    models = _models(number, units)
    for channel in reversed(range(channels)):
        # The models count symbols from 0, and residuals begin at -2 LARGEST.
        coder.encode_reverse(residuals[channel] + 2 * LARGEST, models[channel])
    _push_mask(coder, mask)
    words: NDArray[np.uint32] = coder.get_compressed()
    return HEAD.pack(VERSION, number, rows, columns, units) + words.astype(WORD).tobytes()


def rows_of_code(code: bytes) -> int:
    """Cells along the height of the picture that a code belongs to.

    Raises:
        UserError: If it is no code.

    Examples:
        >>> import numpy as np
        >>> from faceanon.sealed.coder import encode_cells, rows_of_code
        >>> code = encode_cells(np.zeros((32, 16, 16), np.float32), mask=np.ones((16, 16), dtype=bool))
        >>> rows_of_code(code)
        16
    """
    if len(code) < HEAD.size:
        raise UserError(DAMAGED)
    rows: int = HEAD.unpack_from(code)[2]
    if not 1 <= rows <= MOST_SIDE:
        raise UserError(DAMAGED)
    return rows


def decode_cells(code: bytes) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """What `encode_cells` kept.

    Args:
        code: Of any origin.

    Returns:
        Latents `(32, h, w)` float32, zero outside the mask, and the mask `(h, w)`.

    Raises:
        UserError: If it is no code, of another version, cut short, or has too many bytes.
    """
    if not HEAD.size <= len(code) <= MOST_BYTES or (len(code) - HEAD.size) % WORD.itemsize:
        raise UserError(DAMAGED)
    version, number, rows, columns, units = HEAD.unpack_from(code)
    sizes_fit = 1 <= rows <= MOST_SIDE and 1 <= columns <= MOST_SIDE
    # The smallest step is 102.4 units, which the encoder rounds to 102: so one unit less is allowed.
    step_fits = SMALLEST_STEP * STEP_UNIT - 1 <= units <= LARGEST_STEP * STEP_UNIT
    if version != VERSION or number >= len(shipped()) or not sizes_fit or not step_fits:
        raise UserError(DAMAGED)
    statistics = shipped()[number]
    words = np.frombuffer(code, WORD, offset=HEAD.size).astype(np.uint32)
    try:
        coder = stream.stack.AnsCoder(words)
    except ValueError as error:  # the last word of a code is never zero
        raise UserError(DAMAGED) from error
    mask = _pop_mask(coder, rows, columns)
    models = _models(number, units)
    count = int(mask.sum())
    residuals = np.stack([coder.decode(model, count) for model in models]) - 2 * LARGEST
    # A code that holds more than its cells was changed or joined with another.
    if not coder.is_empty():
        raise UserError(DAMAGED)
    rounded = _with_prediction(residuals, mask, statistics)
    coefficients = rounded.astype(np.float32) * np.float32(units / STEP_UNIT)
    return np.einsum("kc,khw->chw", statistics.basis, coefficients), mask


def _set_for(columns: int) -> int:
    """Number of the shipped statistics for pictures of so many cells across."""
    # The two sets were measured at 16 and at 32 cells; a size in between takes the nearer one.
    if columns <= 23:
        return 0
    return 1


def _prediction(around: NDArray[np.int32], statistics: Statistics) -> NDArray[np.int32]:
    """Whole numbers `(C, ...)` that the neighbours' `(4, C, ...)` lead to expect."""
    weights = statistics.weights.T.reshape(len(NEIGHBOURS), -1, *[1] * (around.ndim - 2))
    # The shift rounds to the nearest whole number, the same way on every machine.
    expected = ((around * weights).sum(0) + WEIGHT_UNIT // 2) // WEIGHT_UNIT
    # Both the coefficient and its prediction stay within LARGEST, so residuals stay within the models' -254 to 254.
    return np.asarray(expected.clip(-LARGEST, LARGEST), np.int32)


def _with_prediction(
    residuals: NDArray[np.int32], mask: NDArray[np.bool_], statistics: Statistics
) -> NDArray[np.int32]:
    """Rounded coefficients `(C, h, w)` from residuals `(C, cells)`, in reading order."""
    rows, columns = mask.shape
    # A margin of zeros above and on both sides stands for what lies outside the picture.
    padded = np.zeros((len(residuals), rows + 1, columns + 2), np.int32)
    for number, (row, column) in enumerate(np.argwhere(mask)):
        shifted = []
        for down, right in NEIGHBOURS:
            shifted.append(padded[:, 1 + row + down, 1 + column + right])
        around = np.stack(shifted)
        padded[:, 1 + row, 1 + column] = residuals[:, number] + _prediction(around, statistics)
    return padded[:, 1:, 1:-1]


def _push_mask(coder: stream.stack.AnsCoder, mask: NDArray[np.bool_]) -> None:
    known = neighbours(mask.astype(np.int32)).sum(0).ravel()
    models = _mask_models()
    # From the last cell to the first: the coder is a stack, and the decoder has to know a cell's neighbours before it.
    for inside, count in zip(mask.ravel()[::-1].tolist(), known[::-1].tolist(), strict=True):
        coder.encode_reverse(int(inside), models[count])


def _pop_mask(coder: stream.stack.AnsCoder, rows: int, columns: int) -> NDArray[np.bool_]:
    models = _mask_models()
    padded = np.zeros((rows + 1, columns + 2), np.int32)
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            known = sum(int(padded[row + down, column + right]) for down, right in NEIGHBOURS)
            padded[row, column] = coder.decode(models[known])
    return padded[1:, 1:-1].astype(bool)


@functools.cache
def _mask_models() -> tuple[stream.model.Categorical, ...]:
    models = []
    for chance in MASK_CHANCES:
        models.append(stream.model.Categorical(np.array([256.0 - chance, chance]), perfect=False))
    return tuple(models)


@functools.lru_cache(maxsize=16)
def _models(number: int, units: int) -> tuple[stream.model.Categorical, ...]:
    """Models of the residuals of every direction, from -254 to 254, at a step of `units` / 1024."""
    spreads = shipped()[number].spread.tolist()
    models = []
    for spread in spreads:
        models.append(stream.model.Categorical(_frequencies(spread, units), perfect=False))
    return tuple(models)


def _frequencies(spread: int, units: int) -> NDArray[np.float64]:
    """Whole frequencies of the residuals -254 to 254: a normal distribution, rounded.

    It uses nothing but sums, products and quotients: a library's exponential may differ in its last bit between
    machines.
    """
    steps = spread * STEP_UNIT / (SPREAD_UNIT * units)
    # Rounding itself adds to the variance. Below 0.3 the rational stand-in for the exponential would no longer fit.
    variance = max(steps * steps + 0.1, 0.3)
    half = 1 / (2 * variance)
    # Pade's approximation of exp(-half). A chance falls as its (distance squared)-th power.
    ratio = (12 - 6 * half + half * half) / (12 + 6 * half + half * half)
    chances = [1.0]
    factor = ratio
    for _ in range(2 * LARGEST):
        chances.append(chances[-1] * factor)
        factor *= ratio * ratio
    both = chances[:0:-1] + chances
    # Plain sum in a fixed order; numpy's own order depends on the processor.
    total = 0.0
    for chance in both:
        total += chance
    counts = []
    for chance in both:
        # At least 1: a residual of frequency 0 could not be coded at all.
        counts.append(float(int(chance / total * (1 << 22)) + 1))
    return np.array(counts)
