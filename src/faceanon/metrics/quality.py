"""How near one picture is to another: PSNR, MSE, SSIM, perceptual distance. Pixels are taken in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.image import structural_similarity_index_measure

from faceanon.metrics.checks import check_finite, check_image, check_not_empty, check_same_shape

PSNR_CEILING = 100.0
WINDOW = 11


def psnr(mse: Tensor, ceiling: float = PSNR_CEILING) -> Tensor:
    """Decibels of mean squared errors on [0, 1], of the same shape.

    Args:
        mse: Mean squared errors; of pictures in [-1, 1] a quarter of theirs.
        ceiling: Decibels of equal pictures, which must not make a mean infinite; `math.inf` keeps the ratio as it is.

    Examples:
        >>> import math
        >>> import torch
        >>> from faceanon.metrics.quality import psnr
        >>> psnr(torch.tensor([0.01, 0.0]))
        tensor([ 20., 100.])
        >>> psnr(torch.tensor([0.01, 0.0]), ceiling=math.inf)
        tensor([20., inf])
    """
    return -10 * torch.log10(mse.clamp_min(10 ** (-ceiling / 10)))


def ssim(image: Tensor, reference: Tensor) -> Tensor:
    """SSIM `(B,)` of pairs `(B, 3, S, S)` in [0, 1]: gaussian window of 11 pixels, sigma 1.5, where it fits whole.

    Raises:
        ValueError: A side is smaller than the window.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.quality import ssim
        >>> picture = torch.rand(1, 3, 32, 32)
        >>> bool(ssim(picture, picture) > 0.999), bool(ssim(picture, 1 - picture) < 0)
        (True, True)
    """
    if min(image.shape[-2:]) < WINDOW:
        raise ValueError(f"SSIM's window needs sides of at least {WINDOW} pixels, got {tuple(image.shape[-2:])}")
    _, maps = structural_similarity_index_measure(
        image, reference, data_range=1.0, reduction="none", return_full_image=True
    )
    # Torchmetrics also averages over a reflected border, which Wang et al. and others leave out.
    edge = WINDOW // 2
    inner: Tensor = maps[..., edge:-edge, edge:-edge].mean((1, 2, 3))
    return inner


class Mean(Metric):
    """Mean over rows, whatever the batches were; base of the metrics that have one value a picture."""

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, value: Tensor) -> None:
        """Add `(B,)` values.

        Raises:
            ValueError: No value, NaN or infinite values.
        """
        self.add(check_not_empty("value", value))

    def add(self, value: Tensor) -> None:
        """Add `(B,)` values, of which there may be none.

        Raises:
            ValueError: NaN or infinite values.
        """
        self.total += check_finite("value", value).double().sum()
        self.count += value.numel()

    def compute(self) -> Tensor:
        """The mean over everything added; NaN if nothing was."""
        return self.total / self.count


class ImageQuality(Metric):
    """Mean over pictures of MSE, PSNR, SSIM and a perceptual distance.

    MSE is on pixels in [0, 1]: a quarter of what papers print that compute it on [-1, 1]. Means are over pictures, not
    over pixels of all pictures, and PSNR ends at 100 dB.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.quality import ImageQuality
        >>> metric = ImageQuality()
        >>> grey = torch.zeros(1, 3, 32, 32)
        >>> metric.update(grey + 0.2, grey)
        >>> found = metric.compute()
        >>> round(found["mse"].item(), 4), round(found["psnr"].item(), 1)
        (0.01, 20.0)
    """

    full_state_update = False
    totals: Tensor
    count: Tensor
    distances: Tensor
    measured: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("totals", default=torch.zeros(3, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("distances", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("measured", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, image: Tensor, reference: Tensor, distance: Tensor | None = None) -> None:
        """Add pairs of `(B, 3, S, S)` in [-1, 1] and, where known, their perceptual distance `(B,)`.

        Raises:
            ValueError: Wrong shape or range, or NaN.
        """
        check_same_shape("image", image, "reference", reference)
        image = (check_image("image", image) + 1) / 2
        reference = (check_image("reference", reference) + 1) / 2
        mse = (image - reference).double().square().mean((1, 2, 3))
        self.totals += torch.stack([mse.sum(), psnr(mse).sum(), ssim(image, reference).double().sum()])
        self.count += len(image)
        if distance is not None:
            self.distances += check_finite("distance", distance).double().sum()
            self.measured += len(distance)

    def compute(self) -> dict[str, Tensor]:
        """`mse`, `psnr`, `ssim`, and `lpips` where distances were given."""
        mse, decibels, similarity = self.totals / self.count
        figures = {"mse": mse, "psnr": decibels, "ssim": similarity}
        if self.measured > 0:
            return {**figures, "lpips": self.distances / self.measured}
        return figures


class MaskedPSNR(Mean):
    """Mean over pictures of the PSNR inside a mask; pictures with an empty mask do not count.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.quality import MaskedPSNR
        >>> original = torch.zeros(1, 3, 8, 8)
        >>> drawn = original.clone()
        >>> drawn[..., :4] = 1.0  # the left half is another face
        >>> background = torch.zeros(1, 8, 8, dtype=torch.bool)
        >>> background[..., 4:] = True
        >>> metric = MaskedPSNR()
        >>> metric.update(drawn, original, background)
        >>> metric.compute().item()
        100.0
    """

    def update(self, image: Tensor, reference: Tensor, mask: Tensor) -> None:  # type: ignore[override]
        """Add pairs of `(B, 3, S, S)` in [-1, 1] with `(B, S, S)` bool masks.

        Raises:
            ValueError: Wrong shape or range, or NaN.
        """
        check_same_shape("image", image, "reference", reference)
        shape = (len(image), *image.shape[2:])
        if mask.shape != shape or mask.dtype != torch.bool:
            raise ValueError(f"mask must be bool {shape}, got {mask.dtype} {tuple(mask.shape)}")
        error = (check_image("image", image) - check_image("reference", reference)).double() / 2
        pixels = mask.sum((1, 2))
        some = pixels > 0
        mse = (error.square().mean(1) * mask).sum((1, 2))[some] / pixels[some]
        self.add(psnr(mse))
