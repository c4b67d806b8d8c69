"""Inception-v3 as FID is defined on it: the 2048 numbers of the network that TensorFlow published in 2015."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3


class InceptionV3(FeatureExtractorInceptionV3):  # type: ignore[misc] # the package has no types
    """torch-fidelity's Inception-v3 without its download; the state dict is that of its file and of pytorch-fid's.

    Pictures are resized as TensorFlow 1 did it, which torchmetrics and pytorch-fid do otherwise by default.
    """

    def __init__(self) -> None:
        empty = io.BytesIO()
        torch.save({}, empty)
        empty.seek(0)
        # Without a file it would fetch one.
        super().__init__("inception", ["2048"], feature_extractor_weights_path=empty)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:  # noqa: ANN401 - torch's
        """As torch's; nothing is loaded from the empty file."""
        return super().load_state_dict(state_dict, strict and bool(state_dict), assign)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` in [-1, 1], taken in steps of 8 bits -> `(B, 2048)`."""
        pixels = ((image.clamp(-1, 1) + 1) * 127.5).round().byte()
        features: Tensor = super().forward(pixels)[0]
        return features
