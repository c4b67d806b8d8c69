"""How good the networks of a bundle are that judge pictures: recognisers, parsers, landmark and perceptual nets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric

from faceanon.errors import UserError
from faceanon.losses.auxiliary import FactorObjective, IdentityObjective, LandmarkObjective, Objective, ParsingObjective
from faceanon.metrics.recognition import Verification, threshold_at_far
from faceanon.metrics.utility import LandmarkDistance, ParsingIoU
from faceanon.types import FaceBatch

FARS = (1e-2, 1e-3)


class Examination(ABC):
    """Figures of one network over held-out faces."""

    @abstractmethod
    def update(self, network: nn.Module, batch: FaceBatch) -> None:
        """Add what `network` says of a batch of held-out faces."""

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """Figures over everything added, by metric name."""


def examination_of(objective: Objective, name: str, labels: Sequence[str], image_size: int) -> Examination:
    """The examination that belongs to what a network was trained for.

    Args:
        objective: What it was trained for; an objective that is not known here is examined by its own `figures`.
        name: Of the network, in the figures.
        labels: Names of classes or landmarks, in their order; numbers where there are none.
        image_size: Side of the pictures in pixels.
    """
    if isinstance(objective, IdentityObjective):
        return RecogniserExam(name)
    if isinstance(objective, ParsingObjective):
        return ParserExam(labels, len(objective.class_weights))
    if isinstance(objective, LandmarkObjective):
        return LandmarkExam(labels, image_size)
    if isinstance(objective, FactorObjective):
        return ProbeExam(name)
    return OwnFigures(objective, name)


class RecogniserExam(Examination):
    """Area under the ROC curve of all pairs of pictures, and the true accept rate at each false accept rate.

    Args:
        name: Of the recogniser.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        # The threshold that is reported belongs to the first rate, which is also the default of `Evaluation`.
        self.verification = Verification(FARS[0])

    def update(self, network: nn.Module, batch: FaceBatch) -> None:
        """Add the embeddings of `batch`."""
        self.verification.update(F.normalize(network(batch.image)), batch.identity)

    def compute(self) -> dict[str, float]:
        """`auc`, `tar_at_far` and the `threshold` that evaluations use.

        Raises:
            UserError: The faces offer no pair of one person, or none of two.
        """
        scores = self.verification.compute()
        genuine = scores["genuine"]
        impostor = scores["impostor"]
        # Without a pair of each kind there is no rate to divide.
        if not (genuine.numel() and impostor.numel()):
            raise UserError("a recogniser is tested on several persons with two pictures each; the data hold none")
        figures = {f"auc/{self.name}": area_under_roc(genuine, impostor)}
        for far in FARS:
            rate = (genuine > threshold_at_far(impostor, far)).float().mean()
            figures[f"tar_at_far/{self.name}/{far:g}"] = float(rate)
        return figures | {f"threshold/{self.name}": float(scores["threshold"])}


def area_under_roc(genuine: Tensor, impostor: Tensor) -> float:
    """Probability that a genuine score `(P,)` exceeds an impostor score `(Q,)`; ties count half.

    Examples:
        >>> import torch
        >>> from faceanon.metrics.auxiliary import area_under_roc
        >>> genuine = torch.tensor([0.9, 0.6])
        >>> area_under_roc(genuine, impostor=torch.tensor([0.6, 0.1]))  # three of four pairs are right, one is a tie
        0.875
    """
    impostor = impostor.sort().values
    # The Mann-Whitney statistic: sorting is N log N where comparing every pair is N times M in memory.
    below = torch.searchsorted(impostor, genuine.contiguous())
    not_above = torch.searchsorted(impostor, genuine.contiguous(), right=True)
    # `below` leaves ties out and `not_above` counts them, so that their mean counts each tie as half.
    return float((below + not_above).double().mean() / 2 / len(impostor))


class ParserExam(Examination):
    """Intersection over union with the true labels, per class over all pixels.

    Args:
        labels: Names of the classes.
        classes: Their number.
    """

    def __init__(self, labels: Sequence[str], classes: int) -> None:
        self.labels = _names(labels, classes, "classes")
        self.iou = ParsingIoU(classes)
        self.accuracy = MeanMetric()

    def update(self, network: nn.Module, batch: FaceBatch) -> None:
        """Add the label maps of `batch`."""
        truth = _needed(batch.parsing, "parsing masks")
        labels = network(batch.image).argmax(1)
        self.iou.to(labels.device).update(labels, truth)
        self.accuracy.to(labels.device).update((labels == truth).float())

    def compute(self) -> dict[str, float]:
        """`parsing_iou` of every class that occurs, their `mean`, and `pixel_accuracy`."""
        per_class = (self.iou.intersection / self.iou.union).tolist()  # 0 / 0 is NaN: the class does not occur
        figures = {}
        for label, value in zip(self.labels, per_class, strict=True):
            figures[f"parsing_iou/{label}"] = value
        measured = {}
        for name, value in figures.items():
            if not math.isnan(value):
                measured[name] = value
        figures = measured
        mean = float(self.iou.compute())
        accuracy = float(self.accuracy.compute())
        return {"parsing_iou/mean": mean, **figures, "pixel_accuracy": accuracy}


class LandmarkExam(Examination):
    """Mean distance to the true landmarks, in pixels.

    Args:
        labels: Names of the landmarks.
        image_size: Side of the pictures in pixels.
    """

    def __init__(self, labels: Sequence[str], image_size: int) -> None:
        self.labels = labels
        self.image_size = image_size
        self.distance = LandmarkDistance(image_size)
        self.each = list[LandmarkDistance]()

    def update(self, network: nn.Module, batch: FaceBatch) -> None:
        """Add the landmarks of `batch`."""
        truth = _needed(batch.landmarks, "landmarks")
        points = network(batch.image)
        # How many landmarks there are is known with the first batch.
        self.each = self.each or [LandmarkDistance(self.image_size).to(points.device) for _ in range(truth.shape[1])]
        self.distance.to(points.device).update(points, truth)
        for point, metric in enumerate(self.each):
            metric.update(points[:, [point]], truth[:, [point]])

    def compute(self) -> dict[str, float]:
        """`landmark_distance`: the mean, and each landmark's."""
        names = _names(self.labels, len(self.each), "landmarks")
        each = {}
        for name, m in zip(names, self.each, strict=True):
            each[f"landmark_distance/{name}"] = float(m.compute())
        return {"landmark_distance/mean": float(self.distance.compute()), **each}


class ProbeExam(Examination):
    """What a linear probe reads about the renderer's factors off a network's last map, pooled to 4 x 4.

    It needs nothing that was trained beside the network, so shipped weights can be examined. The probe is a ridge
    regression on the first half of the pictures (persons follow each other, so these are other persons); the second
    half decides.

    Args:
        name: Of the network.
        ridge: Penalty, in units of the number of features.
    """

    def __init__(self, name: str, ridge: float = 0.1) -> None:
        self.name = name
        self.ridge = ridge
        self.features = list[Tensor]()
        self.factors = list[Tensor]()

    def update(self, network: nn.Module, batch: FaceBatch) -> None:
        """Add maps and factors of `batch`."""
        self.factors.append(_needed(batch.factors, "the renderer's factors"))
        self.features.append(F.adaptive_avg_pool2d(network(batch.image)[-1], 4).flatten(1))

    def compute(self) -> dict[str, float]:
        """`probe_r2`: the share of the factors' variance that the probe explains, averaged over the factors."""
        features = torch.cat(self.features).double()
        factors = torch.cat(self.factors).double()
        # Fitted on one half and tested on the other: tested on what it was fitted to, a probe explains anything.
        half = len(features) // 2
        # Mean and deviation are those of the first half: the second half must stay unseen until it is tested.
        features = (features - features[:half].mean(0)) / features[:half].std(0).clamp(min=1e-6)
        middle = factors[:half].mean(0)
        # The dual form of the regression: its system has one row a picture, and there may be far more features.
        kernel = features @ features[:half].T  # (N, N / 2)
        damped = kernel[:half] + self.ridge * features.shape[1] * torch.eye(half, device=kernel.device)
        predicted = kernel[half:] @ torch.linalg.solve(damped, factors[:half] - middle) + middle
        truth = factors[half:]
        spread = (truth - truth.mean(0)).square().sum(0)
        # A factor that never varies has nothing to be explained.
        varies = spread > 1e-9
        r2 = 1 - (predicted - truth).square().sum(0)[varies] / spread[varies]
        return {f"probe_r2/{self.name}": float(r2.mean())}


class OwnFigures(Examination):
    """Mean over pictures of an objective's own validation figures.

    Args:
        objective: The objective, with the heads it was trained with.
        name: Of the network.
    """

    def __init__(self, objective: Objective, name: str) -> None:
        self.objective = objective
        self.name = name
        self.means: dict[str, MeanMetric] = {}

    def update(self, network: nn.Module, batch: FaceBatch) -> None:
        """Add the figures of `batch`."""
        for key, value in self.objective.figures(network, batch).items():
            # Weighted by the number of pictures, or a small last batch would count as much as a full one.
            self.means.setdefault(key, MeanMetric().to(value.device)).update(value, len(batch))

    def compute(self) -> dict[str, float]:
        """The objective's names, with the network's behind."""
        figures = {}
        for key, mean in self.means.items():
            figures[f"{key}/{self.name}"] = float(mean.compute())
        return figures


def _needed(truth: Tensor | None, what: str) -> Tensor:
    if truth is None:
        raise UserError(f"this test needs {what}, which the data do not bring; use data that do, e.g. SyntheticFaces")
    return truth


def _names(labels: Sequence[str], count: int, what: str) -> Sequence[str]:
    if labels and len(labels) != count:
        raise UserError(f"labels names {len(labels)} {what}, the network has {count}; give one name each, or none")
    return labels or list(map(str, range(count)))
