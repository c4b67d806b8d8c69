"""How good a prior is: reconstructions through W+, and samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from faceanon.metrics.features import KernelDistance
from faceanon.metrics.quality import ImageQuality
from faceanon.metrics.recognition import PairSimilarity, Verification, match_rate
from faceanon.networks.stylegan2 import Generator
from faceanon.types import FaceBatch

if TYPE_CHECKING:
    from faceanon.weights.bundle import Bundle


class TrainedPrior(Protocol):
    """A generator and the encoder that belongs to it."""

    generator: Generator

    def __call__(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, 3, S, S)` -> its reconstruction and its codes `(B, L, D)`."""


class PriorExam:
    """Self-verification by the judge, PSNR, SSIM, perceptual distance and KID, on held-out faces.

    Args:
        bundle: Judge and perceptual net.
        prior: What is examined.
        far: False accept rate that sets the judge's threshold.
        seed: Of the samples.
    """

    def __init__(self, bundle: Bundle, prior: TrainedPrior, far: float = 1e-2, seed: int = 0) -> None:
        self.bundle = bundle
        self.prior = prior
        self.generator = torch.Generator().manual_seed(seed)
        self.verification = Verification(far)
        self.similarity = PairSimilarity()
        self.quality = ImageQuality()
        self.kid = KernelDistance()
        self.kid_samples = KernelDistance()
        self.samples: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, batch: FaceBatch) -> None:
        """Add held-out faces, and draw as many samples."""
        image = batch.image
        perceptual = self.bundle.perceptual
        # Beyond [-1, 1] no file could hold what is measured.
        output = self.prior(image)[0].clamp(-1, 1)
        # Drawn on the CPU from the seed, so that the samples are the same on every device.
        z = torch.randn(len(image), self.prior.generator.style_dim, generator=self.generator).to(image)
        drawn = self.prior.generator(z).clamp(-1, 1)
        embedding = self.bundle.judge(image)
        self.verification.update(embedding, batch.identity)
        self.similarity.update(self.bundle.judge(output), embedding)
        self.quality.update(output, image, perceptual(output, image))
        real = perceptual.features(image)
        self.kid.update(real, perceptual.features(output))
        self.kid_samples.update(real, perceptual.features(drawn))
        if not self.samples:
            self.samples = {"original": image[:8], "reconstruction": output[:8], "sample of the mapping": drawn[:8]}

    def compute(self) -> dict[str, float]:
        """Figures over everything added, by metric name: identity, quality, and KID of reconstructions and samples."""
        name = self.bundle.judge_name
        threshold = float(self.verification.compute()["threshold"])
        rate = float(match_rate(self.similarity.compute(), threshold).mean())
        figures = {f"self_verification/{name}": rate, f"threshold/{name}": threshold}
        for key, value in self.quality.compute().items():
            figures[f"{key}/reconstruction/image"] = float(value)
        for label, metric in (("reconstruction", self.kid), ("samples", self.kid_samples)):
            for key, distance in metric.compute().items():
                figures[f"kid_{key}/{label}"] = float(distance)
        return figures
