"""All figures on the look of the versions: whole picture, regions, landmarks, parsing, KID."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from faceanon.metrics.quality import ImageQuality, KernelDistance, MaskedPSNR, Mean
from faceanon.metrics.utility import LandmarkDistance, ParsingIoU
from faceanon.metrics.versions import Versions
from faceanon.types import FaceBatch

Network = Callable[..., Tensor]
COPY_DISTANCE = 2 / 255  # on [0, 1]: nearer than this on average, nothing was changed


@dataclass
class Parts:
    """The frozen networks and parsing classes that the figures need; None where a bundle has none."""

    image_size: int
    parser: Network | None = None
    landmarks: Network | None = None
    perceptual: Any = None
    face_classes: tuple[int, ...] = ()
    head_classes: tuple[int, ...] = ()
    occluder_class: int | None = None


@dataclass
class AppearanceSuite:
    """Collect the figures on pictures, as opposed to persons.

    Args:
        parts: Networks of the bundle.
        seed: Of KID's subsets.
    """

    parts: Parts
    seed: int = 0
    metrics: dict[str, Metric] = field(default_factory=dict)

    def update(self, batch: FaceBatch, versions: Versions) -> None:
        """Add a batch and the versions made from it."""
        images = {"anonymized/file": versions.anonymized[0]}
        images |= {f"recovered/{level}": image for level, image in versions.recovered.items()}
        images |= {"reconstruction/file": versions.reconstruction} if versions.reconstruction is not None else {}
        images |= {"wrong/file": versions.wrong} if versions.wrong is not None else {}
        for what, image in images.items():
            self._quality(what, image, batch.image)
        self._regions(batch, images)
        for what in ("anonymized", "recovered"):
            if f"{what}/file" in images:
                self._utility(what, images[f"{what}/file"], batch.image)
        self._features(batch.image, versions.anonymized[0])
        if "file" in versions.recovered:
            self._copies(versions)

    def _metric(self, name: str, make: Callable[[], Metric], device: torch.device) -> Any:  # noqa: ANN401 - any metric
        if name not in self.metrics:
            self.metrics[name] = make().to(device)
        return self.metrics[name]

    def _quality(self, what: str, image: Tensor, original: Tensor) -> None:
        distance = self.parts.perceptual(image, original) if self.parts.perceptual is not None else None
        self._metric(f"quality/{what}", ImageQuality, image.device).update(image, original, distance)

    def _regions(self, batch: FaceBatch, images: dict[str, Tensor]) -> None:
        labels = self._labels(batch)
        if labels is None:
            return
        for region, mask in self._masks(labels, batch.parsing is not None).items():
            for what, image in images.items():
                metric = self._metric(f"psnr_{region}/{what}", MaskedPSNR, image.device)
                metric.update(image, batch.image, mask)

    def _labels(self, batch: FaceBatch) -> Tensor | None:
        """Ground truth where the data has it, else the parser's opinion of the original."""
        if batch.parsing is not None:
            return batch.parsing
        return self.parts.parser(batch.image).argmax(1) if self.parts.parser is not None else None

    def _masks(self, labels: Tensor, truth: bool) -> dict[str, Tensor]:
        found = {}
        if self.parts.face_classes:
            found["face"] = torch.isin(labels, torch.tensor(self.parts.face_classes, device=labels.device))
            found["outside_face"] = ~found["face"]
        if self.parts.head_classes:
            found["background"] = ~torch.isin(labels, torch.tensor(self.parts.head_classes, device=labels.device))
        if truth and self.parts.occluder_class is not None:
            found["occluder"] = labels == self.parts.occluder_class
        return found

    def _utility(self, what: str, image: Tensor, original: Tensor) -> None:
        size, device = self.parts.image_size, image.device
        if self.parts.landmarks is not None:
            metric = self._metric(f"landmark_distance/{what}", lambda: LandmarkDistance(size), device)
            metric.update(self.parts.landmarks(image), self.parts.landmarks(original))
        if self.parts.parser is not None:
            logits, reference = self.parts.parser(image), self.parts.parser(original)
            metric = self._metric(f"parsing_iou/{what}", lambda: ParsingIoU(reference.shape[1]), device)
            metric.update(logits.argmax(1), reference.argmax(1))

    def _features(self, original: Tensor, anonymized: Tensor) -> None:
        features = getattr(self.parts.perceptual, "features", None)
        if features is not None:
            metric = self._metric("kid", lambda: KernelDistance(seed=self.seed), original.device)
            metric.update(features(original), features(anonymized))

    def _copies(self, versions: Versions) -> None:
        change = (versions.recovered["file"] - versions.anonymized[0]).abs().mean((1, 2, 3)) / 2
        self._metric("recovery_copy_rate", Mean, change.device).update((change < COPY_DISTANCE).float())

    def compute(self) -> dict[str, float]:
        """Value by metric name."""
        figures: dict[str, float] = {}
        for name, metric in self.metrics.items():
            value = metric.compute()
            if name.startswith("quality/"):
                figures |= {f"{key}/{name.removeprefix('quality/')}": float(v) for key, v in value.items()}
            elif name == "kid":
                figures |= {"kid": float(value["mean"]), "kid_std": float(value["std"])}
            else:
                figures[name.replace("psnr_occluder", "occluder_psnr")] = float(value)
        return {name: value for name, value in figures.items() if not empty_region(name, value)}


def empty_region(name: str, value: float) -> bool:
    """Whether a region's figure is NaN because no picture has that region."""
    return value != value and name.startswith(("psnr_", "occluder_psnr/"))
