"""What may happen to an anonymized file before it can no longer be opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms.functional import gaussian_blur

from faceanon.metrics.quality import psnr
from faceanon.metrics.saved import saved
from faceanon.studies.security.base import Finding, Outcome, SecurityRow, Verdict

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

SURVIVES = 0.9
NOISE = 5 / 127.5  # standard deviation, five of 255 levels


def resized(image: Tensor) -> Tensor:
    """The picture scaled to half its side, and back."""
    side = image.shape[-2:]
    small = F.interpolate(image, scale_factor=0.5, mode="bilinear", antialias=True)
    return F.interpolate(small, size=side, mode="bicubic").clamp(-1, 1)


def cropped(image: Tensor) -> Tensor:
    """A 32nd of the side cut off at every border, then brought back to size."""
    cut = max(1, image.shape[-1] // 32)
    return F.interpolate(image[..., cut:-cut, cut:-cut], size=image.shape[-2:], mode="bicubic").clamp(-1, 1)


def noisy(image: Tensor) -> Tensor:
    """Normal noise, the same for the same picture."""
    noise = torch.randn(image.shape[1:], generator=torch.Generator().manual_seed(0))
    return (image + NOISE * noise.to(image)).clamp(-1, 1)


def blurred(image: Tensor) -> Tensor:
    """Gaussian blur of a 64th of the side."""
    sigma = image.shape[-1] / 64
    # Three sigmas to either side; the side of the kernel must be odd.
    blurry: Tensor = gaussian_blur(image, 2 * int(3 * sigma) + 1, [sigma, sigma])
    return blurry


DISTURBANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "untouched": lambda image: image,
    "JPEG 95": lambda image: saved(image, 95),
    "JPEG 75": lambda image: saved(image, 75),
    "JPEG 50": lambda image: saved(image, 50),
    "half the size and back": resized,
    "border cut off": cropped,
    "noise": noisy,
    "blur": blurred,
}


@dataclass(frozen=True)
class Disturbed(Finding):
    """Recovery from disturbed files.

    Args:
        names: Of the disturbances; the first leaves the file as it is.
        rates: Share of recovered faces accepted as the original.
        cosines: Mean cosine with the original.
        psnr: Likeness of the pixels in dB.
        faces: Pictures tried.
    """

    names: tuple[str, ...]
    rates: tuple[float, ...]
    cosines: tuple[float, ...]
    psnr: tuple[float, ...]
    faces: int

    def verdicts(self) -> list[Verdict]:
        """A verdict that says which disturbances of the saved picture recovery survives."""
        each = dict(zip(self.names, self.rates, strict=True))
        untouched = each.pop(self.names[0])
        if untouched < SURVIVES:
            return [Verdict("fails", f"recovery fails even from the untouched file: {untouched:.0%} are recognised")]
        lives = []
        for name, rate in each.items():
            if rate >= SURVIVES:
                lives.append(f"{name} ({rate:.0%})")
        dies = []
        for name, rate in each.items():
            if rate < SURVIVES:
                dies.append(f"{name} ({rate:.0%})")
        text = f"recovery survives {', '.join(lives) or 'nothing'}; fails after {', '.join(dies) or 'nothing'}"
        outcome: Outcome
        if not dies:
            outcome = "holds"
        elif lives:
            outcome = "partly"
        else:
            outcome = "fails"
        return [Verdict(outcome, f"{text} (from {SURVIVES:.0%} recognised)")]

    def rows(self) -> list[SecurityRow]:
        """Rate and PSNR by disturbance."""
        rows = []
        for name, rate, decibels in zip(self.names, self.rates, self.psnr, strict=True):
            rows += [SecurityRow(f"{name}: recognised", rate, "%"), SecurityRow(f"{name}: PSNR", decibels, "dB")]
        return rows


def disturbance(target: Target) -> Disturbed:
    """Disturb anonymized files, then open them with the right key.

    Raises:
        DoesNotApplyError: The method has no way back.
    """
    target.need_way_back()
    count = target.budget.disturbed
    image = target.probes.image[:count]
    hidden = target.hidden[:count]
    key = target.right_keys[:count]
    rates = []
    cosines = []
    decibels = []
    for name, change in DISTURBANCES.items():
        # Saved once more, as by whoever changed the file.
        face = target.recover(saved(change(hidden)), key, title=name)
        cosine = (target.embed(face) * target.gallery[:count]).sum(1)
        rates.append(float((cosine > target.threshold).float().mean()))
        cosines.append(float(cosine.mean()))
        # Halved, since pictures lie in [-1, 1] and `psnr` takes a range of 1.
        error = ((face - image) / 2).square().mean((1, 2, 3))
        decibels.append(float(psnr(error).mean()))
    return Disturbed(tuple(DISTURBANCES), tuple(rates), tuple(cosines), tuple(decibels), len(image))
