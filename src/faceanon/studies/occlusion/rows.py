"""One value a picture on what lies inside an occluder's mask and what lies outside; and what the values give away."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from faceanon.metrics.checks import check_same_shape
from faceanon.metrics.quality import psnr

KEPT_IOU = 0.5
KEPT_PSNR = 15.0


class Rows(Metric):
    """Values `(N,)` in the order of the updates; NaN where a picture has none."""

    full_state_update = False
    values: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def update(self, values: Tensor) -> None:
        """Add `(B,)` values.

        Raises:
            ValueError: Another shape, or an infinite value.
        """
        if values.ndim != 1 or values.isinf().any():
            raise ValueError(f"values must be finite or NaN and (B,), got {tuple(values.shape)}")
        self.values.append(values.double())

    def compute(self) -> Tensor:
        """All values that were added, `(N,)` float64, NaN where a row has none."""
        return dim_zero_cat(self.values)


def masked_psnr(image: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """PSNR in dB inside masks `(B, S, S)` of `(B, 3, S, S)` in [-1, 1]: `(B,)`, at most 100, NaN where one is empty."""
    check_same_shape("image", image, "reference", reference)
    error = ((image - reference) / 2).double().square().mean(1)
    # An empty mask gives 0 / 0, which is NaN.
    return psnr((error * mask).sum((1, 2)) / mask.sum((1, 2)))


def label_iou(labels: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """IoU inside a mask of two label maps, all classes taken together, NaN where the mask is empty.

    A mean over classes would be decided by those of a few stray pixels. With a share a of equal labels this is
    a / (2 - a).

    Args:
        labels: `(B, S, S)` int64.
        reference: `(B, S, S)` int64.
        mask: `(B, S, S)` bool.

    Returns:
        `(B,)` in [0, 1].
    """
    check_same_shape("labels", labels, "reference", reference)
    both = ((labels == reference) & mask).sum((1, 2))
    return both / (2 * mask.sum((1, 2)) - both)


def mask_iou(found: Tensor, truth: Tensor) -> Tensor:
    """IoU of two `(B, S, S)` bool masks, `(B,)`; NaN where the truth is empty."""
    union = (found | truth).sum((1, 2))
    return ((found & truth).sum((1, 2)) / union).masked_fill(~truth.any(2).any(1), math.nan)


def visible(points: Tensor, mask: Tensor) -> Tensor:
    """Which landmarks `(B, K, 2)` in [-1, 1] lie in the picture and outside the mask `(B, S, S)`: `(B, K)` bool."""
    size = mask.shape[-1]
    # Pixel 0 reaches from -1 to -1 + 2 / S.
    pixel = ((points + 1) * size / 2).floor().long()
    inside = ((pixel >= 0) & (pixel < size)).all(-1)
    # Clamped so that each can be looked up; `inside` leaves out those beyond the border.
    column, row = pixel.clamp(0, size - 1).unbind(-1)
    return inside & ~mask[torch.arange(len(mask), device=mask.device)[:, None], row, column]


def occlusion_faults(
    figures: Mapping[str, float], ci: Mapping[str, tuple[float, float]], judge: str, kinds: Iterable[str]
) -> dict[str, str]:
    """One sentence for each way in which an occluder undoes a method, by the figure that gives it away.

    Args:
        figures: What `OcclusionTest.compute` found.
        ci: Its intervals; a rate counts as changed where its interval leaves out the bare faces' rate.
        judge: Name of the judging recogniser.
        kinds: Of occluders.
    """
    faults: dict[str, str] = {}
    for kind in ("none", *kinds):
        checks = _level(figures, judge, kind)
        checks += [] if kind == "none" else [*_change(figures, ci, judge, kind), *_preservation(figures, judge, kind)]
        # No comparison with NaN holds.
        for name, fails, text in checks:
            if fails:
                faults[name] = text
    return faults


Check = tuple[str, bool, str]


def _level(figures: Mapping[str, float], judge: str, kind: str) -> list[Check]:
    if kind == "none":
        where = "without an occluder"
    else:
        where = f"under {kind}"
    accepts = f"deid_rate/{judge}/{kind}"
    opens = f"wrong_key_rate/{judge}/{kind}"
    deid = figures.get(accepts, math.nan)
    wrong = figures.get(opens, math.nan)
    return [
        (accepts, deid > 0.5, f"nothing is anonymized {where}: {deid:.0%} are still accepted as the original"),
        (opens, wrong > 0.5, f"the lock is open {where}: {wrong:.0%} of the faces come back under a wrong key"),
    ]


def _change(figures: Mapping[str, float], ci: Mapping[str, tuple[float, float]], judge: str, kind: str) -> list[Check]:
    """What the occluder makes worse."""
    accepts = f"deid_rate/{judge}/{kind}"
    recovers = f"recovery_rate/{judge}/{kind}"
    deid = figures.get(accepts, math.nan)
    recovered = figures.get(recovers, math.nan)
    hidden = figures.get(f"deid_rate/{judge}/none", math.nan)
    back = figures.get(f"recovery_rate/{judge}/none", math.nan)
    low = ci.get(accepts, (math.nan, math.nan))[0]
    high = ci.get(recovers, (math.nan, math.nan))[1]
    return [
        (
            accepts,
            # Above one half the check of the level has said it already.
            deid - hidden > 0.1 and low > hidden and deid <= 0.5,
            f"{kind} undoes anonymity: {deid:.0%} are still accepted as the original, without it {hidden:.0%}",
        ),
        (
            recovers,
            back - recovered > 0.2 and high < back,
            f"recovery does not survive {kind}: {recovered:.0%}, without it {back:.0%}",
        ),
    ]


def _preservation(figures: Mapping[str, float], judge: str, kind: str) -> list[Check]:
    iou = f"occluder_parsing_iou/{kind}/anonymized"
    decibels = f"occluder_psnr/{kind}/anonymized"
    agreement = figures.get(iou, math.nan)
    fidelity = figures.get(decibels, math.nan)
    accepts = f"impostor_rate/{judge}/{kind}"
    accepted = figures.get(accepts, math.nan)
    return [
        (
            iou,
            agreement < KEPT_IOU,
            f"{kind}: painted over, where it lay the parser agrees with itself to an IoU of {agreement:.2f} only",
        ),
        (
            decibels,
            fidelity < KEPT_PSNR,
            f"{kind}: not kept, the pixels that it covers come back at {fidelity:.1f} dB only",
        ),
        (
            accepts,
            accepted > 0.1,
            f"{kind}: the judge accepts {accepted:.0%} of impostor pairs, both wearing it, so its rates say little",
        ),
    ]
