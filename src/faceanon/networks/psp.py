"""The pSp encoder: a face to a w+ code, in the layout of the public checkpoints (arXiv:2008.00951)."""

from __future__ import annotations

import torch
from torch import Tensor

from faceanon.networks.e4e import PyramidEncoder


class GradualStyleEncoder(PyramidEncoder):
    """Encode a face as w+, every row by its own style block; rows are offsets from `latent_avg`, which is not added.

    Arguments as `PyramidEncoder`, of which `with_features` also gives the feature maps.
    """

    def forward(self, image: Tensor) -> Tensor:
        """Codes `(B, L, D)` of `(B, I, input_size, input_size)`, faces in [-1, 1]; larger ones are shrunk."""
        return self.with_features(image)[0]

    def _codes(self, c1: Tensor, c2: Tensor, c3: Tensor) -> Tensor:
        maps = self.pyramid(c1, c2, c3)
        return torch.stack([style(maps[self._level(row)]) for row, style in enumerate(self.styles)], 1)  # (B, L, D)
