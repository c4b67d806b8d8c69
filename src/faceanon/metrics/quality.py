"""How near one picture is to another: PSNR, MSE, SSIM, perceptual distance, KID. Pixels are taken in [0, 1]."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.image import structural_similarity_index_measure
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_finite, check_image, check_same_shape

PSNR_CEILING = 100.0
WINDOW = 11


def psnr(mse: Tensor) -> Tensor:
    """Decibels of mean squared errors on [0, 1], at most 100: equal pictures must not make a mean infinite."""
    return -10 * torch.log10(mse.clamp_min(10 ** (-PSNR_CEILING / 10)))


def ssim(image: Tensor, reference: Tensor) -> Tensor:
    """SSIM `(B,)` of pairs `(B, 3, S, S)` in [0, 1]: gaussian window of 11 pixels, sigma 1.5, where it fits whole.

    Raises:
        ValueError: A side is smaller than the window.
    """
    if min(image.shape[-2:]) < WINDOW:
        raise ValueError(f"SSIM's window needs sides of at least {WINDOW} pixels, got {tuple(image.shape[-2:])}")
    _, maps = structural_similarity_index_measure(
        image, reference, data_range=1.0, reduction="none", return_full_image=True
    )
    edge = WINDOW // 2  # torchmetrics also averages over a reflected border, which Wang et al. and others leave out
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
            ValueError: NaN or infinite values.
        """
        self.total += check_finite("value", value).double().sum()
        self.count += value.numel()

    def compute(self) -> Tensor:
        """The mean; NaN over nothing."""
        return self.total / self.count


class ImageQuality(Metric):
    """Mean over pictures of MSE, PSNR, SSIM and a perceptual distance.

    MSE is on pixels in [0, 1]: a quarter of what papers print that compute it on [-1, 1]. Means are over pictures, not
    over pixels of all pictures, and PSNR ends at 100 dB.
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
        found = {"mse": mse, "psnr": decibels, "ssim": similarity}
        return {**found, "lpips": self.distances / self.measured} if self.measured > 0 else found


class MaskedPSNR(Mean):
    """Mean over pictures of the PSNR inside a mask; pictures with an empty mask do not count."""

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
        super().update(psnr(mse))


class KernelDistance(Metric):
    """KID: unbiased squared MMD with the kernel (x.y / F + 1)^3 between two sets of features, over random subsets.

    Binkowski et al., "Demystifying MMD GANs", ICLR 2018. The features are the bundle's own, so values compare between
    methods on one bundle, never with published KIDs on Inception features.

    Args:
        subsets: Number of random subsets.
        subset_size: Pictures in each; all of them where there are fewer.
        seed: Of the draw.
    """

    full_state_update = False
    real: list[Tensor]
    fake: list[Tensor]

    def __init__(self, subsets: int = 100, subset_size: int = 200, seed: int = 0) -> None:
        super().__init__()
        self.subsets, self.subset_size, self.seed = subsets, subset_size, seed
        self.add_state("real", default=[], dist_reduce_fx="cat")
        self.add_state("fake", default=[], dist_reduce_fx="cat")

    def update(self, real: Tensor, fake: Tensor) -> None:
        """Add `(B, F)` features of both sets.

        Raises:
            ValueError: Wrong shape, or NaN.
        """
        if real.ndim != 2 or fake.ndim != 2 or real.shape[1] != fake.shape[1]:
            raise ValueError(f"features must be (B, F) with one F, got {tuple(real.shape)} and {tuple(fake.shape)}")
        self.real.append(check_finite("real", real))
        self.fake.append(check_finite("fake", fake))

    def compute(self) -> dict[str, Tensor]:
        """`mean` and `std` over the subsets; NaN with fewer than two pictures."""
        real, fake = dim_zero_cat(self.real).double(), dim_zero_cat(self.fake).double()
        size = min(self.subset_size, len(real), len(fake))
        if size < 2:
            nothing = real.new_tensor(math.nan)
            return {"mean": nothing, "std": nothing}
        generator = torch.Generator().manual_seed(self.seed)
        values = []
        for _ in range(self.subsets):
            own, other = (torch.randperm(len(f), generator=generator)[:size].to(f.device) for f in (real, fake))
            values.append(polynomial_mmd(real[own], fake[other]))
        found = torch.stack(values)
        return {"mean": found.mean(), "std": found.std(correction=0)}


def polynomial_mmd(real: Tensor, fake: Tensor) -> Tensor:
    """Unbiased squared MMD between `(m, F)` and `(m, F)` features, kernel (x.y / F + 1)^3."""
    count, width = real.shape
    own, other, cross = ((a @ b.T / width + 1) ** 3 for a, b in ((real, real), (fake, fake), (real, fake)))
    within = own.sum() - own.trace() + other.sum() - other.trace()
    return within / (count * (count - 1)) - 2 * cross.mean()
