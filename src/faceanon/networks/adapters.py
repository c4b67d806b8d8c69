"""Small wrappers that give foreign networks the interface the framework speaks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Normalised(nn.Module):
    """A recogniser on the bundle's own pictures: crop, resize, embed, L2-normalise.

    Args:
        net: `(B, 3, s, s)` in [-1, 1] -> `(B, E)`.
        input_size: Side s the network wants, in pixels; None takes pictures as they come.
        crop: Rows and columns `(top, bottom, left, right)` kept first, as fractions of the side; None keeps all.
    """

    def __init__(self, net: nn.Module, input_size: int | None = None, crop: Sequence[float] | None = None) -> None:
        super().__init__()
        self.net, self.input_size, self.crop = net, input_size, crop

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` in [-1, 1] -> `(B, E)` of unit length."""
        if self.crop is not None:
            top, bottom, left, right = (round(fraction * image.shape[-1]) for fraction in self.crop)
            image = image[..., top:bottom, left:right]
        if self.input_size is not None and image.shape[-1] != self.input_size:
            image = F.adaptive_avg_pool2d(image, self.input_size)
        return F.normalize(self.net(image))


class PerceptualDistance(nn.Module):
    """LPIPS' distance without its learned linear layers, on any network that returns a list of feature maps.

    Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", CVPR 2018, eq. (1), w = 1.

    Args:
        net: `(B, 3, S, S)` in [-1, 1] -> list of `(B, C, h, w)`.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def maps(self, image: Tensor) -> list[Tensor]:
        """Feature maps of unit length along the channels; compute once for an image compared many times."""
        return [F.normalize(feature, dim=1, eps=1e-8) for feature in self.net(image)]

    def forward(self, image: Tensor, reference: Tensor | list[Tensor]) -> Tensor:
        """Distance `(B,)` between `(B, 3, S, S)` and another picture, or its `maps`."""
        others = self.maps(reference) if isinstance(reference, Tensor) else reference
        terms = [(a - b).square().sum(1).mean((1, 2)) for a, b in zip(self.maps(image), others, strict=True)]
        return torch.stack(terms).sum(0)

    def features(self, image: Tensor) -> Tensor:
        """Spatial mean of the last map, `(B, F)`, for KID."""
        last: Tensor = self.net(image)[-1]
        return last.mean((2, 3))
