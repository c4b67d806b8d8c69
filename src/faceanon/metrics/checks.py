"""Checks at the edge of every metric: a wrong range or a NaN must not become a figure."""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = 1e-3


def check_not_empty(name: str, tensor: Tensor) -> Tensor:
    """Return `tensor`.

    Raises:
        ValueError: It holds nothing.
    """
    if not tensor.numel():
        raise ValueError(f"{name} is empty, shape {tuple(tensor.shape)}; give at least one row")
    return tensor


def check_finite(name: str, tensor: Tensor) -> Tensor:
    """Return `tensor` in float32.

    Raises:
        ValueError: It holds a NaN or an infinity.
    """
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name} holds NaN or infinite values; a figure made from it would mean nothing")
    return tensor.float()


def check_image(name: str, image: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Return `(B, 3, S, S)` in float32.

    Raises:
        ValueError: Another shape, no row, NaN or infinite values, or values outside [low, high].

    Examples:
        >>> import torch
        >>> from faceanon.metrics.checks import check_image
        >>> check_image("image", torch.full((1, 3, 8, 8), 255.0))
        Traceback (most recent call last):
        ValueError: image must lie in [-1, 1], got [255, 255]; scale or clamp it first
    """
    if image.ndim != 4 or image.shape[1] != 3:
        raise ValueError(f"{name} must have the shape (B, 3, H, W), got {tuple(image.shape)}")
    image = check_finite(name, check_not_empty(name, image))
    if image.min() < low - TOLERANCE or image.max() > high + TOLERANCE:
        extent = f"[{image.min():.3g}, {image.max():.3g}]"
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {extent}; scale or clamp it first")
    # What lies beyond by the tolerance is rounding, and PSNR or SSIM should not see it.
    return image.clamp(low, high)


def check_embedding(name: str, embedding: Tensor, ndim: int = 2) -> Tensor:
    """Return embeddings `(B, ..., E)` in float32, of unit length.

    Raises:
        ValueError: Another number of axes, no row, NaN or infinite values, or a vector of length zero.
    """
    if embedding.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, the last one the embedding; got {tuple(embedding.shape)}")
    embedding = check_finite(name, check_not_empty(name, embedding))
    length = embedding.norm(dim=-1, keepdim=True)
    if (length < 1e-12).any():
        raise ValueError(f"{name} holds an embedding of length zero; it has no direction to compare")
    unit: Tensor = embedding / length
    return unit


def check_same_shape(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse a pair of tensors of different shapes.

    Raises:
        ValueError: The shapes differ.
    """
    if tensor.shape != other.shape:
        raise ValueError(f"{name} {tuple(tensor.shape)} and {other_name} {tuple(other.shape)} must have the same shape")


def check_labels(name: str, labels: Tensor, count: int) -> Tensor:
    """Return `(B,)` int64 labels.

    Raises:
        ValueError: Not one whole-number label a row.
    """
    if labels.shape != (count,) or labels.is_floating_point():
        raise ValueError(f"{name} must be {count} whole numbers, one a row; got {labels.dtype} {tuple(labels.shape)}")
    return labels.long()
