"""All figures on the look of the versions: whole picture, regions, landmarks, parsing, KID."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from faceanon.metrics.cache import CachedOriginals
from faceanon.metrics.features import FrechetDistance, KernelDistance, kid_interval
from faceanon.metrics.quality import ImageQuality, MaskedPSNR, Mean
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
    features: Network | None = None
    face_classes: tuple[int, ...] = ()
    head_classes: tuple[int, ...] = ()
    occluder_class: int | None = None


@dataclass
class AppearanceSuite:
    """Collect the figures on pictures, as opposed to persons.

    Args:
        parts: Networks of the bundle.
        seed: Of KID's subsets.
        kid_subsets: Their number.
        kid_subset_size: Pictures in each.
        ci: 95% intervals by metric name, after `compute`.
    """

    parts: Parts
    seed: int = 0
    kid_subsets: int = 100
    kid_subset_size: int = 200
    metrics: dict[str, Metric] = field(default_factory=dict)
    ci: dict[str, tuple[float, float]] = field(default_factory=dict)

    def update(self, batch: FaceBatch, versions: Versions, originals: CachedOriginals | None = None) -> None:
        """Add a batch, the versions made from it, and what networks make of its originals, each asked once."""
        originals = originals or CachedOriginals(batch.image)
        images = {"anonymized/file": versions.anonymized[0]}
        for level, image in versions.recovered.items():
            images[f"recovered/{level}"] = image
        if versions.reconstruction is not None:
            images |= {"reconstruction/file": versions.reconstruction}
        # Only methods with keys have a wrong one.
        if versions.wrong is not None:
            images |= {"wrong/file": versions.wrong}
        for what, image in images.items():
            self._quality(what, image, originals)
        self._regions(batch, images, originals)
        # Landmarks and parsing are measured on saved files alone, which users have.
        # Other versions get figures on pixels.
        for what in ("anonymized", "recovered"):
            if f"{what}/file" in images:
                self._utility(what, images[f"{what}/file"], originals)
        self._features(originals, versions)
        if versions.carried is not None:
            self._metric("carried_bytes", Mean, versions.carried.device).update(versions.carried)
        if versions.undrawn is not None:
            self._metric("undrawn_rate", Mean, versions.undrawn.device).update(versions.undrawn.float())
        if "file" in versions.recovered:
            self._copies(versions)

    def _metric(self, name: str, make: Callable[[], Metric], device: torch.device) -> Any:  # noqa: ANN401 - any metric
        if name not in self.metrics:
            self.metrics[name] = make().to(device)
        return self.metrics[name]

    def _quality(self, what: str, image: Tensor, originals: CachedOriginals) -> None:
        distance = None
        perceptual = self.parts.perceptual
        if perceptual is not None:
            # A network that can show its maps gets those of the originals: they are computed once for all versions.
            maps = getattr(perceptual, "maps", None)
            known = originals.image if maps is None else originals.tensors("perceptual", maps, "maps")
            distance = perceptual(image, known)
        self._metric(f"quality/{what}", ImageQuality, image.device).update(image, originals.image, distance)

    def _regions(self, batch: FaceBatch, images: dict[str, Tensor], originals: CachedOriginals) -> None:
        labels = batch.parsing
        if labels is None:
            labels = self._labels(originals)
        if labels is None:
            return
        for region, mask in self._masks(labels, batch.parsing is not None).items():
            for what, image in images.items():
                metric = self._metric(f"psnr_{region}/{what}", MaskedPSNR, image.device)
                metric.update(image, batch.image, mask)

    def _labels(self, originals: CachedOriginals) -> Tensor | None:
        """The parser's opinion of the originals, `(B, S, S)` int64."""
        parser = self.parts.parser
        if parser is None:
            return None
        # int16, so that a label map takes a quarter of the room in the cache; comparisons want int64 again.
        return originals.tensor("parser", lambda image: parser(image).argmax(1).short(), "labels").long()

    def _masks(self, labels: Tensor, truth: bool) -> dict[str, Tensor]:
        masks = {}
        if self.parts.face_classes:
            masks["face"] = torch.isin(labels, torch.tensor(self.parts.face_classes, device=labels.device))
            # What a method has to leave alone: hair, clothes and background.
            masks["outside_face"] = ~masks["face"]
        if self.parts.head_classes:
            masks["background"] = ~torch.isin(labels, torch.tensor(self.parts.head_classes, device=labels.device))
        # The parser was not trained on occluders, so only true labels tell where one is.
        if truth and self.parts.occluder_class is not None:
            masks["occluder"] = labels == self.parts.occluder_class
        return masks

    def _utility(self, what: str, image: Tensor, originals: CachedOriginals) -> None:
        size = self.parts.image_size
        device = image.device
        if self.parts.landmarks is not None:
            metric = self._metric(f"landmark_distance/{what}", lambda: LandmarkDistance(size), device)
            points = self.parts.landmarks(image)
            reference = originals.tensor("landmarks", self.parts.landmarks)
            metric.update(points, reference)
        labels = self._labels(originals)
        if self.parts.parser is not None and labels is not None:
            self._parsing(what, self.parts.parser(image), labels)

    def _parsing(self, what: str, logits: Tensor, reference: Tensor) -> None:
        """Agreement over all classes, and over those that are no part of the face."""
        count = logits.shape[1]
        face = self.parts.face_classes
        for name, without in (("parsing_iou", ()), ("parsing_iou_outside", face)):
            metric = self._metric(f"{name}/{what}", lambda w=without: ParsingIoU(count, w), logits.device)  # type: ignore[misc]
            metric.update(logits.argmax(1), reference)

    def _features(self, originals: CachedOriginals, versions: Versions) -> None:
        """FID and KID on the network that the bundle has for them, else on what its perceptual network sees."""
        if self.parts.features is not None:
            features: Network = self.parts.features
            real = originals.tensor("features", features)
        elif hasattr(self.parts.perceptual, "features"):
            features = self.parts.perceptual.features
            real = originals.tensor("perceptual", features, "features")
        else:
            return
        fake = features(versions.anonymized[0])
        self._metric("kid", self._kid, fake.device).update(real, fake)
        self._metric("fid", lambda: FrechetDistance(real.shape[1]), fake.device).update(real, fake)
        if "file" in versions.recovered:
            back = features(versions.recovered["file"])
            self._metric("fid/recovered", lambda: FrechetDistance(real.shape[1]), back.device).update(real, back)

    def _kid(self) -> KernelDistance:
        return KernelDistance(self.kid_subsets, self.kid_subset_size, self.seed)

    def _copies(self, versions: Versions) -> None:
        # A method that gives its input back unchanged would score well on every figure of similarity to it.
        # Halved: pictures lie in [-1, 1], and COPY_DISTANCE is on [0, 1].
        change = (versions.recovered["file"] - versions.anonymized[0]).abs().mean((1, 2, 3)) / 2
        self._metric("recovery_copy_rate", Mean, change.device).update((change < COPY_DISTANCE).float())

    def compute(self) -> dict[str, float]:
        """Figures over everything added, by metric name."""
        figures: dict[str, float] = {}
        for name, metric in self.metrics.items():
            value = metric.compute()
            if name.startswith("quality/"):
                for key, v in value.items():
                    figures[f"{key}/{name.removeprefix('quality/')}"] = float(v)
            elif name == "kid":
                figures |= {"kid": float(value["mean"]), "kid_std": float(value["std"])}
                self.ci["kid"] = kid_interval(value)
            else:
                figures[name.replace("psnr_occluder", "occluder_psnr")] = float(value)
        measured = {}
        for name, figure in figures.items():
            # 0 / 0 of a region that no picture has is left out. Any other NaN stays: `find_faults` has to report it.
            if not empty_region(name, figure):
                measured[name] = figure
        return measured


def empty_region(name: str, value: float) -> bool:
    """Whether a region's figure is NaN because no picture has that region."""
    return value != value and name.startswith(("psnr_", "occluder_psnr/"))
