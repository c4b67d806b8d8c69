"""What an anonymized picture is still good for: where the face's parts lie, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torchmetrics import Metric

from faceanon.metrics.checks import check_finite, check_not_empty, check_same_shape
from faceanon.metrics.quality import Mean


class LandmarkDistance(Mean):
    """Mean Euclidean distance of landmarks, in pixels.

    Args:
        image_size: Side S of the pictures in pixels.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.utility import LandmarkDistance
        >>> metric = LandmarkDistance(image_size=64)
        >>> metric.update(torch.zeros(1, 5, 2), torch.tensor([0.0, 0.0625]).expand(1, 5, 2))
        >>> metric.compute().item()  # a sixteenth of half a side of 64 px
        2.0
    """

    def __init__(self, image_size: int) -> None:
        super().__init__()
        if image_size < 1:
            raise ValueError(f"image_size must be a positive number of pixels, got {image_size}")
        self.image_size = image_size

    def update(self, points: Tensor, reference: Tensor) -> None:  # type: ignore[override]
        """Add pairs of `(B, K, 2)` in [-1, 1], whose unit is half a side.

        Raises:
            ValueError: Wrong shape, or NaN.
        """
        check_same_shape("points", points, "reference", reference)
        if points.ndim != 3 or points.shape[-1] != 2:
            raise ValueError(f"points must have the shape (B, K, 2), got {tuple(points.shape)}")
        offset = check_finite("points", points) - check_finite("reference", reference)
        super().update(offset.norm(dim=-1).mean(1) * self.image_size / 2)


class ParsingIoU(Metric):
    """Intersection over union of two label maps, per class over all pixels, then the mean of the classes that occur.

    Args:
        classes: Number of classes.
        without: Classes left out of the mean, such as the parts of the face, which a new person changes.

    Raises:
        ValueError: `without` leaves nothing, or names a class that there is not.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.utility import ParsingIoU
        >>> original = torch.tensor([[[0, 0], [1, 1]]])
        >>> metric = ParsingIoU(classes=2)
        >>> metric.update(torch.tensor([[[0, 1], [1, 1]]]), original)
        >>> round(metric.compute().item(), 3)  # the mean of 1/2 and 2/3
        0.583
    """

    full_state_update = False
    intersection: Tensor
    union: Tensor

    def __init__(self, classes: int, without: Iterable[int] = ()) -> None:
        super().__init__()
        self.classes = classes
        self.counted = sorted(set(range(classes)) - set(without))
        # A class outside the range takes nothing from `counted`, so the two numbers add up to too much.
        if not self.counted or len(self.counted) + len(set(without)) != classes:
            raise ValueError(f"without must leave some of the classes 0 to {classes - 1}, got {sorted(set(without))}")
        for name in ("intersection", "union"):
            self.add_state(name, default=torch.zeros(classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, labels: Tensor, reference: Tensor) -> None:
        """Add pairs of `(B, S, S)` int64 label maps.

        Raises:
            ValueError: Different shapes, no pixel, or a label outside [0, classes).
        """
        check_same_shape("labels", check_not_empty("labels", labels), "reference", reference)
        for name, item in (("labels", labels), ("reference", reference)):
            if item.is_floating_point() or (item.numel() and (item.min() < 0 or item.max() >= self.classes)):
                raise ValueError(f"{name} must be whole numbers from 0 to {self.classes - 1}")
        both = torch.bincount(labels[labels == reference].flatten(), minlength=self.classes)
        counts = []
        for item in (labels, reference):
            counts.append(torch.bincount(item.flatten(), minlength=self.classes))
        self.intersection += both
        self.union += counts[0] + counts[1] - both

    def compute(self) -> Tensor:
        """Mean over the classes that occur in either map; NaN over nothing."""
        intersection = self.intersection[self.counted]
        union = self.union[self.counted]
        return (intersection[union > 0] / union[union > 0]).mean()
