"""Small wrappers that give foreign networks the interface the framework speaks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Normalised(nn.Module):
    """A recogniser on the bundle's own pictures: crop, resize, embed, L2-normalise.

    Where the crop has to grow it is interpolated bilinearly from its exact place; where it shrinks it is cut at whole
    pixels and averaged.

    Args:
        net: `(B, 3, h, w)` in [-1, 1] -> `(B, E)`.
        input_size: Side the network wants, in pixels, or `(h, w)`; None takes pictures as they come.
        crop: Rows and columns `(top, bottom, left, right)` kept first, as fractions of the side; None keeps all.
    """

    def __init__(
        self, net: nn.Module, input_size: int | Sequence[int] | None = None, crop: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.net = net
        self.crop = crop
        self.input_size: tuple[int, int] | None = None
        if input_size is not None:
            if isinstance(input_size, int):
                height = input_size
                width = input_size
            else:
                height, width = input_size
            self.input_size = (height, width)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` in [-1, 1] -> `(B, E)` of unit length."""
        return F.normalize(self.net(self._prepared(image)))

    def _prepared(self, image: Tensor) -> Tensor:
        side = image.shape[-1]
        top, bottom, left, right = (fraction * side for fraction in self.crop or (0.0, 1.0, 0.0, 1.0))
        if self.input_size is not None:
            height, width = self.input_size
            # Too few pixels for the network: pooling would only repeat them, so they are interpolated.
            if height > bottom - top or width > right - left:
                rows = bilinear_weights(image, top, bottom, height)
                columns = bilinear_weights(image, left, right, width)
                # Bilinear sampling is separable: one matrix samples the rows, another one the columns.
                return rows @ image @ columns.T
        if self.crop is not None:
            image = image[..., round(top) : round(bottom), round(left) : round(right)]
        if self.input_size is not None and image.shape[-2:] != self.input_size:
            image = F.adaptive_avg_pool2d(image, self.input_size)
        return image


def bilinear_weights(image: Tensor, start: float, stop: float, count: int) -> Tensor:
    """Weights `(count, S)` that sample a side of `image` at `count` pixel centres spread from `start` to `stop`.

    Args:
        image: `(B, C, S, S)`; gives S, type and device.
        start: First edge, in pixels; samples beyond the picture repeat its border.
        stop: Last edge.
        count: Number of samples.

    Examples:
        >>> import torch
        >>> from faceanon.networks.adapters import bilinear_weights
        >>> bilinear_weights(torch.zeros(1, 3, 4, 4), start=1, stop=3, count=3)
        tensor([[0.1667, 0.8333, 0.0000, 0.0000],
                [0.0000, 0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 0.8333, 0.1667]])
    """
    side = image.shape[-1]
    steps = torch.arange(count, device=image.device, dtype=torch.float32)
    # Centres are counted from the middle of the first pixel, hence the - 0.5. The clamp repeats the border.
    centres = (start + (steps + 0.5) * (stop - start) / count - 0.5).clamp(0, side - 1)
    distance = centres[:, None] - torch.arange(side, device=image.device)
    # A tent around each centre: the bilinear weights of its two nearest pixels, which sum to 1.
    return (1 - distance.abs()).clamp(min=0).to(image.dtype)


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
        if isinstance(reference, Tensor):
            others = self.maps(reference)
        else:
            others = reference
        terms = []
        for a, b in zip(self.maps(image), others, strict=True):
            terms.append((a - b).square().sum(1).mean((1, 2)))
        return torch.stack(terms).sum(0)

    def features(self, image: Tensor) -> Tensor:
        """Spatial mean of the last map, `(B, F)`, for KID."""
        last: Tensor = self.net(image)[-1]
        return last.mean((2, 3))
