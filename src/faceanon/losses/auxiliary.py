"""What the networks of a bundle are trained for: one objective a class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.losses.identity import in_batch_identity
from faceanon.types import FaceBatch


class Objective(nn.Module, ABC):
    """Named loss terms of a network on a batch, and the figures that a held-out set gives it."""

    @abstractmethod
    def terms(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """Terms that are summed and minimised."""

    @abstractmethod
    def figures(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """Scalars logged in validation; their mean over batches is what is reported."""


class IdentityObjective(Objective):
    """Tell persons apart; on synthetic faces also regress the renderer's identity factors from the embedding.

    Args:
        embedding: Length E of the network's embedding.
        factors: Number of leading columns of `FaceBatch.factors` to regress; 0 on real faces.
        factor_weight: Weight of that regression.
        scale: Inverse temperature of the softmax over the batch.
        margin: Cosine margin of the positives.
        noise: Standard deviation of Gaussian noise on the input, so that the recogniser does not depend on single
            pixels.
    """

    def __init__(
        self,
        embedding: int = 128,
        factors: int = 0,
        factor_weight: float = 1.0,
        scale: float = 16.0,
        margin: float = 0.2,
        noise: float = 0.03,
    ) -> None:
        super().__init__()
        self.head = nn.Linear(embedding, factors) if factors else None
        self.factors = factors
        self.factor_weight = factor_weight
        self.scale = scale
        self.margin = margin
        self.noise = noise

    def terms(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """`identity`, and `factors` where asked for."""
        raw = network(batch.image + self.noise * torch.randn_like(batch.image))
        terms = {"identity": in_batch_identity(F.normalize(raw), batch.identity, self.scale, self.margin)}
        if self.head is not None and batch.factors is not None:
            terms["factors"] = self.factor_weight * F.mse_loss(self.head(raw), batch.factors[:, : self.factors])
        return terms

    def figures(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """`rank1`: share of pictures whose nearest other picture shows the same person."""
        embedding = F.normalize(network(batch.image))
        similarity = embedding @ embedding.T
        # Below every cosine, so that no picture is its own nearest.
        similarity.fill_diagonal_(-2)
        return {"rank1": (batch.identity[similarity.argmax(1)] == batch.identity).float().mean()}


class ParsingObjective(Objective):
    """Cross-entropy over pixels, rare classes weighted up.

    Args:
        class_weights: One weight a class.
    """

    class_weights: Tensor

    def __init__(self, class_weights: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("class_weights", torch.tensor(class_weights))

    def terms(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """One term, `parsing`: the weighted cross entropy of the classes of all pixels."""
        return {"parsing": F.cross_entropy(network(batch.image), _parsing(batch), self.class_weights)}

    def figures(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """`iou`, the mean over the classes present, and pixel `accuracy`."""
        labels = network(batch.image).argmax(1)
        truth = _parsing(batch)
        ious = []
        for label in range(len(self.class_weights)):
            union = ((labels == label) | (truth == label)).sum()
            if union:
                ious.append(((labels == label) & (truth == label)).sum() / union)
        return {"iou": torch.stack(ious).mean(), "accuracy": (labels == truth).float().mean()}


class LandmarkObjective(Objective):
    """Wing-free plain L1 on landmarks; the figure is in pixels."""

    def terms(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """One term, `landmarks`: ten times the mean absolute error of coordinates in [-1, 1]."""
        return {"landmarks": 10 * F.l1_loss(network(batch.image), _landmarks(batch))}

    def figures(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """`distance`: mean Euclidean error in pixels."""
        error = (network(batch.image) - _landmarks(batch)).norm(dim=-1).mean()
        return {"distance": error * batch.image.shape[-1] / 2}


class FactorObjective(Objective):
    """Regress every factor of the renderer from the pooled feature maps: the training of the perceptual net.

    Args:
        channels: Channels of the network's maps, finest first.
        factors: Number of columns of `FaceBatch.factors`.
    """

    def __init__(self, channels: Sequence[int], factors: int) -> None:
        super().__init__()
        # 16 cells: every map is pooled to 4 x 4.
        self.heads = nn.ModuleList(nn.Sequential(nn.Flatten(), nn.Linear(width * 16, factors)) for width in channels)
        # The renderer's factors have units of their own; normalised, each counts alike.
        self.norm = nn.BatchNorm1d(factors, affine=False)

    def _outputs(self, network: nn.Module, batch: FaceBatch) -> tuple[list[Tensor], Tensor]:
        if batch.factors is None:
            raise ValueError("FactorObjective needs FaceBatch.factors: use synthetic faces")
        maps = network(batch.image)
        outputs = []
        for head, item in zip(self.heads, maps, strict=True):
            outputs.append(head(F.adaptive_avg_pool2d(item, 4)))
        return outputs, self.norm(batch.factors)

    def terms(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """One term, `factors`: the mean squared error of all factors, averaged over the levels."""
        outputs, target = self._outputs(network, batch)
        return {"factors": torch.stack([F.mse_loss(output, target) for output in outputs]).mean()}

    def figures(self, network: nn.Module, batch: FaceBatch) -> dict[str, Tensor]:
        """`r2` of the last level."""
        outputs, target = self._outputs(network, batch)
        return {"r2": 1 - F.mse_loss(outputs[-1], target) / target.var()}


def _parsing(batch: FaceBatch) -> Tensor:
    if batch.parsing is None:
        raise ValueError("this objective needs FaceBatch.parsing: the data set has no parsing masks")
    return batch.parsing


def _landmarks(batch: FaceBatch) -> Tensor:
    if batch.landmarks is None:
        raise ValueError("this objective needs FaceBatch.landmarks: the data set has no landmarks")
    return batch.landmarks
