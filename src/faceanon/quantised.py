"""Weights in few bits, as they lie in files: int8 with one scale for a channel, int4 with one for 64 neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

# Whoever reads a model without torch has no need of it here.
if TYPE_CHECKING:
    from torch import Tensor

# Before the names of tensors stored in int8 or int4, and of their scales.
INT8 = "int8::"
SCALE = "int8_scale::"
INT4 = "int4::"
SCALE4 = "int4_scale::"
PREFIXES = (INT8, SCALE, INT4, SCALE4)
MOST_STEPS = 127  # of int8 on each side of zero
INT8_LEAST = 4096  # numbers in a tensor from which on int8 pays
GROUP = 64  # neighbours that share a scale of int4


def to_int8(tensor: Tensor, most: int = MOST_STEPS) -> tuple[Tensor, Tensor]:
    """A finite weight in steps of int8 and their float32 scale.

    The scale is kept to 16 bits of precision. So 127 scales are a float32 without rounding, and a weight that was
    stored once is stored the same the next time.

    Args:
        tensor: Of two dimensions or more, of floating point.
        most: Steps run from `-most` to `most`, 1 to 127. Fewer of them are less exact, and a Huffman code of them
            (`packed`) is shorter.

    Returns:
        Steps of the tensor's shape, and the size of a step for each channel, shaped as `scale_shape` says. A weight
        differs from step times scale by 1 / (2 most) of its channel's largest value at most, up to the precision of
        the scale.

    Examples:
        >>> import torch
        >>> from faceanon.quantised import to_int8
        >>> weight = torch.tensor([[0.5, -1.0], [100.0, 25.0]])  # each row with a scale of its own
        >>> steps, scale = to_int8(weight)
        >>> steps
        tensor([[  64, -127],
                [ 127,   32]], dtype=torch.int8)
        >>> torch.allclose(steps * scale, weight, rtol=0.01)
        True
    """
    import torch

    value = tensor.float()
    shape = scale_shape(value.shape)
    others = []
    for dimension, length in enumerate(shape):
        if length == 1:
            others.append(dimension)
    scale = value.abs().amax(others, keepdim=True) / most
    bits = scale.contiguous().view(torch.int32)
    # Half of the last bit that stays is added first, so that the cut rounds to the nearest.
    scale = ((bits + 0x80) & ~0xFF).view(torch.float32).clamp(min=torch.finfo(torch.float32).tiny)
    # A channel of zeros has the smallest normal number as its scale, so there is no 0 / 0.
    steps = (value / scale).round().clamp(-most, most).to(torch.int8)
    return steps.contiguous(), scale.contiguous()


def scale_shape(shape: Sequence[int]) -> list[int]:
    """Shape of the scales of an int8 weight: one for each output channel, the first dimension longer than one."""
    channel = next((dimension for dimension, length in enumerate(shape) if length > 1), 0)
    shape_of_scales = []
    for dimension, length in enumerate(shape):
        shape_of_scales.append(length if dimension == channel else 1)
    return shape_of_scales


def to_int4(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """A finite weight in steps of int4, two to a byte, and their float16 scales.

    It errs by about a tenth of a weight's usual size: little for principal components of pictures, of which many are
    left out anyway, and for other layers something to measure. A weight that was stored once is stored the same the
    next time, unless a scale lies beyond float16.

    Args:
        tensor: `(R, ...)` of floating point; R is a multiple of `GROUP`. Neighbours share the places of all other
            dimensions, as the cells of one principal component do.

    Returns:
        `(R / 2, ...)` uint8, the even ones of R in the lower four bits, each 8 above its step from -7 to 7; and the
        size of a step `(R / GROUP, ...)` float16.

    Examples:
        >>> import torch
        >>> from faceanon.quantised import from_int4, to_int4
        >>> weight = torch.randn(128, 3)
        >>> packed, scale = to_int4(weight)
        >>> packed.shape, scale.shape
        (torch.Size([64, 3]), torch.Size([2, 3]))
        >>> again = torch.from_numpy(from_int4(packed.numpy(), scale.numpy()))
        >>> bool((again - weight).norm() < 0.15 * weight.norm())
        True
    """
    import torch

    groups = tensor.float().unflatten(0, (-1, GROUP))  # type: ignore[no-untyped-call]
    # Rounded before it divides, so that the steps are those of the scale that is stored.
    scale = (groups.abs().amax(1) / 7).half().clamp(min=torch.finfo(torch.float16).tiny)
    steps = (groups / scale.float().unsqueeze(1)).round().clamp(-7, 7).add(8).to(torch.uint8).flatten(0, 1)
    return (steps[::2] | (steps[1::2] << 4)).contiguous(), scale.contiguous()


def from_int4(packed: NDArray[np.uint8], scale: NDArray[np.float16]) -> NDArray[np.float32]:
    """The weight `(R, ...)` of `to_int4`."""
    half, *rest = packed.shape
    steps = np.empty((2 * half, *rest), np.float32)
    steps[::2] = packed & 15
    steps[1::2] = packed >> 4
    groups = steps.reshape(-1, GROUP, *rest) - 8
    return (groups * scale.astype(np.float32)[:, None]).reshape(steps.shape)


def plain_names(stored: Iterable[str]) -> list[str]:
    """Names of the tensors that lie in few bits in a file of these names, sorted."""
    names = set()
    for name in stored:
        for prefix in PREFIXES:
            if name.startswith(prefix):
                names.add(name.removeprefix(prefix))
    return sorted(names)


def widened_array(stored: Mapping[str, NDArray[np.generic]], name: str) -> NDArray[np.float32] | None:
    """The weight of a name that lies in a file in few bits, or None if what lies there does not fit together.

    Args:
        stored: Arrays of the file.
        name: One of `plain_names`.
    """
    parts = [stored.get(prefix + name) for prefix in PREFIXES]
    steps, scale, packed, scale4 = parts
    # One pair alone, steps and their scale: anything more would be the same weight a second time.
    if name in stored or sum(part is not None for part in parts) != 2:
        return None
    if steps is not None and scale is not None:
        fits = steps.dtype == np.int8 and scale.dtype == np.float32 and steps.ndim > 1
        if not fits or list(scale.shape) != scale_shape(steps.shape) or not _positive(scale):
            return None
        return steps.astype(np.float32) * scale.astype(np.float32)
    if packed is not None and scale4 is not None:
        fits = packed.dtype == np.uint8 and scale4.dtype == np.float16 and packed.ndim > 1
        if not fits or list(scale4.shape) != _scale4_shape(packed.shape) or not _positive(scale4):
            return None
        return from_int4(packed.astype(np.uint8), scale4.astype(np.float16))
    return None


def _scale4_shape(packed: Sequence[int]) -> list[int]:
    """Shape of the scales that belong to packed steps of int4."""
    half, *rest = packed
    return [2 * half // GROUP, *rest]


def _positive(scale: NDArray[np.generic]) -> bool:
    """Whether scales can be meant: others would blow the steps up, or turn them into NaN."""
    wide = scale.astype(np.float32)
    return bool(np.isfinite(wide).all() and (wide > 0).all())
