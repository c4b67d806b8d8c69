"""e4e's discriminator of w codes, in the layout of the public checkpoints (arXiv:2102.02766, section 4.1)."""

from __future__ import annotations

from torch import Tensor, nn


class LatentCodesDiscriminator(nn.Module):
    """Tell rows of w+ codes from codes that the mapping network drew: an MLP of ordinary linear layers.

    Public files hold it under `discriminator_state_dict`, if at all.

    Args:
        style_dim: Width D of a code.
        n_mlp: Linear layers; all but the last are followed by a leaky ReLU of slope 0.2.
    """

    def __init__(self, style_dim: int = 512, n_mlp: int = 4) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(n_mlp - 1):
            layers += [nn.Linear(style_dim, style_dim), nn.LeakyReLU(0.2)]
        self.mlp = nn.Sequential(*layers, nn.Linear(style_dim, 1))

    def forward(self, w: Tensor) -> Tensor:
        """Logits `(..., 1)` of codes `(..., D)`.

        The encoder's adversarial loss averages over the rows trained so far, so it is `generator_loss` of the logits of
        `w_plus[:, : stage + 1]`.
        """
        logits: Tensor = self.mlp(w)
        return logits
