"""Regularisers of latent codes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

LatentNorm = Literal["mean_code", "delta", "square", "spread"]


def latent_regulariser(w_plus: Tensor, form: LatentNorm = "spread", mean_code: Tensor | None = None) -> Tensor:
    """Keep W+ codes `(B, L, D)` near W; the mean over the codes.

    - `mean_code`: sum over i of ||w_i - w_mean||, DBAF eqs. (15) and (36). The paper calls w_mean "the averaged latent
      code"; that this is the generator's mean code is our reading, and that i counts layers from 0, so that its N - 1
      terms leave the first layer out, as HFORD's offsets do.
    - `delta`: sum of ||w_i - w_0||, HFORD eq. (15), and e4e's delta regularisation. HFORD prints "offsets based on w";
      that w is the first layer's is our reading.
    - `square`: mean of w^2, DBAF's released code.
    - `spread`: sum over all layers of ||w_i - mean of the picture's own layers||, which is ours.

    Args:
        w_plus: The codes.
        form: One of the above.
        mean_code: The generator's mean code `(L, D)`, for `mean_code`.

    Examples:
        >>> import torch
        >>> from faceanon.losses.latent import latent_regulariser
        >>> in_w = torch.ones(1, 10, 192)  # all layers have one code
        >>> latent_regulariser(in_w, "spread").item() < 1e-4, latent_regulariser(in_w, "square").item()
        (True, 1.0)
    """
    if form == "square":
        return w_plus.square().mean()
    if form == "mean_code":
        assert mean_code is not None
        centre = mean_code.to(w_plus)[1:]
        w_plus = w_plus[:, 1:]
    elif form == "spread":
        centre = w_plus.mean(1, keepdim=True)
    else:
        centre = w_plus[:, :1]
    # At 0 the square root's gradient is infinite: a layer may equal the centre exactly.
    return (w_plus - centre).square().sum(-1).add(1e-12).sqrt().sum(1).mean()


def sliced_wasserstein(first: Tensor, second: Tensor, directions: int = 64) -> Tensor:
    """Squared sliced 2-Wasserstein distance between two clouds of as many points, `(N, D)` each.

    Random projections come from torch's global generator.

    Examples:
        >>> import torch
        >>> from faceanon.losses.latent import sliced_wasserstein
        >>> cloud = torch.randn(50, 4)
        >>> shuffled = cloud[torch.randperm(50)]
        >>> bool(sliced_wasserstein(cloud, shuffled) < 1e-9 < sliced_wasserstein(cloud, cloud + 1))
        True
    """
    projection = torch.randn(first.shape[1], directions, device=first.device)
    projection = projection / projection.norm(dim=0)
    # In one dimension the best transport between two clouds of as many points pairs them in order.
    a = (first @ projection).sort(0).values
    b = (second @ projection).sort(0).values
    distance: Tensor = (a - b).square().mean()
    return distance
