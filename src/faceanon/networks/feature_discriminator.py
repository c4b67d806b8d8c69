"""A discriminator on the feature maps of a trained network."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

GROUPS = 8
PLACES = 7  # a side, of what is left of a map before the last layer


class FeatureDiscriminator(nn.Module):
    """Tell photographs from painted faces by what a recogniser's layers see in them.

    Sauer et al., "Projected GANs Converge Faster", NeurIPS 2021, without its random mixing of channels and scales: the
    features are trained already, so a few hundred pictures are enough to learn what gives a painted face away.

    Args:
        widths: Channels of the maps, one number a map.
        hidden: Channels of the layers on each map.

    Examples:
        >>> import torch
        >>> from faceanon.networks.feature_discriminator import FeatureDiscriminator
        >>> logits = FeatureDiscriminator([32, 64])([torch.zeros(2, 32, 28, 28), torch.zeros(2, 64, 7, 7)])
        >>> [tuple(level.shape) for level in logits]
        [(2, 1), (2, 1)]
    """

    def __init__(self, widths: Sequence[int], hidden: int = 64) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_level(width, hidden) for width in widths)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Logits `(B, 1)` of each map `(B, C, h, h)`, higher for photographs."""
        logits: list[Tensor] = []
        for level, seen in zip(self.levels, maps, strict=True):
            logits.append(level(seen))
        return logits


def _level(width: int, hidden: int) -> nn.Sequential:
    """Layers on one map: `(B, width, h, h)` -> `(B, 1)`."""
    return nn.Sequential(
        # The features of a recogniser are small, of a deviation of a tenth; as they are, little is learnt from them.
        nn.GroupNorm(1, width, affine=False),
        nn.Conv2d(width, hidden, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(hidden, hidden, 3, 1, 1),
        nn.GroupNorm(GROUPS, hidden),
        nn.LeakyReLU(0.2),
        # Faces are aligned: where something is, tells. A judgement of every place alone learns ten times more slowly.
        nn.AdaptiveAvgPool2d(PLACES),
        nn.Flatten(),
        nn.Linear(hidden * PLACES**2, 1),
    )
