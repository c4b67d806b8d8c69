"""MTCNN's three networks (Zhang et al. 2016, arXiv:1604.02878) in torch, with the weights of the `mtcnn` package.

The weights come from the MIT-licensed PyPI package `mtcnn` 1.0 (github.com/ipazc/mtcnn, which converted them from
davidsandberg/facenet, MIT). The package needs TensorFlow to be imported, so its files are read without importing it.
State dict names are those of facenet-pytorch's MTCNN, so its files load too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, TypeVar

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from faceanon.errors import UserError

# joblib unpickles, and unpickling can run code: only these very files are opened.
WEIGHTS_SHA256 = {
    "pnet": "ea6b0c3e685ebee3165326ad6484acc95f2ef78f1c94fbf40a55704fa989f7b5",
    "rnet": "cb00e6460f3c98b0bfafaba3c0a0ded4bdf6e62cee7174d969e8670d7e757fee",
    "onet": "94f6ea2f4cf985275ee958cdd762d17b6009348a4fb9d8c6be39ba73ffd22ca3",
}


def _flatten(features: Tensor) -> Tensor:
    """`(B, C, H, W)` to `(B, W * H * C)`, the order in which the published dense layers were trained."""
    return features.permute(0, 3, 2, 1).flatten(1)


class PNet(nn.Module):
    """Proposals: `(B, 3, H, W)` to face logits and box offsets on a grid of stride 2; each cell sees 12 px."""

    # In the order of keras' list of arrays, where the heads stand the other way round.
    layers: ClassVar[tuple[str, ...]] = ("conv1", "prelu1", "conv2", "prelu2", "conv3", "prelu3", "conv4_2", "conv4_1")

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 10, 3)
        self.prelu1 = nn.PReLU(10)
        # The published networks round the sizes of pooled maps up, here and below.
        self.pool1 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(10, 16, 3)
        self.prelu2 = nn.PReLU(16)
        self.conv3 = nn.Conv2d(16, 32, 3)
        self.prelu3 = nn.PReLU(32)
        self.conv4_1 = nn.Conv2d(32, 2, 1)
        self.conv4_2 = nn.Conv2d(32, 4, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `(B, 2, h, w)` (no face, face) and offsets `(B, 4, h, w)` (x1, y1, x2, y2, in cells of 12 px)."""
        features = self.pool1(self.prelu1(self.conv1(image)))
        features = self.prelu3(self.conv3(self.prelu2(self.conv2(features))))
        return self.conv4_1(features), self.conv4_2(features)


class RNet(nn.Module):
    """Refinement: crops `(B, 3, 24, 24)` to face logits and box offsets."""

    layers: ClassVar[tuple[str, ...]] = (
        "conv1",
        "prelu1",
        "conv2",
        "prelu2",
        "conv3",
        "prelu3",
        "dense4",
        "prelu4",
        "dense5_2",
        "dense5_1",
    )

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 28, 3)
        self.prelu1 = nn.PReLU(28)
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(28, 48, 3)
        self.prelu2 = nn.PReLU(48)
        self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3 = nn.Conv2d(48, 64, 2)
        self.prelu3 = nn.PReLU(64)
        self.dense4 = nn.Linear(576, 128)
        self.prelu4 = nn.PReLU(128)
        self.dense5_1 = nn.Linear(128, 2)
        self.dense5_2 = nn.Linear(128, 4)

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `(B, 2)` and offsets `(B, 4)`, in sides of the crop."""
        features = self.pool1(self.prelu1(self.conv1(crops)))
        features = self.pool2(self.prelu2(self.conv2(features)))
        features = self.prelu3(self.conv3(features))
        features = self.prelu4(self.dense4(_flatten(features)))
        return self.dense5_1(features), self.dense5_2(features)


class ONet(nn.Module):
    """Output: crops `(B, 3, 48, 48)` to face logits, box offsets and five points."""

    layers: ClassVar[tuple[str, ...]] = (
        *("conv1", "prelu1", "conv2", "prelu2", "conv3", "prelu3", "conv4", "prelu4"),
        *("dense5", "prelu5", "dense6_2", "dense6_3", "dense6_1"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3)
        self.prelu1 = nn.PReLU(32)
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.prelu2 = nn.PReLU(64)
        self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3 = nn.Conv2d(64, 64, 3)
        self.prelu3 = nn.PReLU(64)
        self.pool3 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv4 = nn.Conv2d(64, 128, 2)
        self.prelu4 = nn.PReLU(128)
        self.dense5 = nn.Linear(1152, 256)
        self.prelu5 = nn.PReLU(256)
        self.dense6_1 = nn.Linear(256, 2)
        self.dense6_2 = nn.Linear(256, 4)
        self.dense6_3 = nn.Linear(256, 10)

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits `(B, 2)`, offsets `(B, 4)` and points `(B, 10)` (five x, then five y), in sides of the crop."""
        features = self.pool1(self.prelu1(self.conv1(crops)))
        features = self.pool2(self.prelu2(self.conv2(features)))
        features = self.pool3(self.prelu3(self.conv3(features)))
        features = self.prelu4(self.conv4(features))
        features = self.prelu5(self.dense5(_flatten(features)))
        return self.dense6_1(features), self.dense6_2(features), self.dense6_3(features)


Net = TypeVar("Net", PNet, RNet, ONet)


def load_mtcnn() -> tuple[PNet, RNet, ONet]:
    """The three networks with the weights of the installed `mtcnn` package, in eval mode and without gradients.

    Raises:
        UserError: If the package is missing or carries other weights.
    """
    return _trained(PNet(), "pnet"), _trained(RNet(), "rnet"), _trained(ONet(), "onet")


def _trained(net: Net, name: str) -> Net:
    net.load_state_dict(_from_keras(_read_weights(name), net.layers))
    net.requires_grad_(False)
    net.eval()
    return net


def _read_weights(name: str) -> list[NDArray[np.float32]]:
    spec = find_spec("mtcnn")  # finds without importing
    if spec is None or spec.origin is None:
        folder = None
    else:
        folder = Path(spec.origin).parent / "assets" / "weights"
    if folder is None or not (path := folder / f"{name}.lz4").is_file():
        raise UserError("face detection needs the weights of the package mtcnn; run: pip install 'mtcnn>=1.0,<2'")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256[name]:
        raise UserError(f"{path} is not the file of mtcnn 1.0.0 (sha256 {digest[:12]}...); reinstall mtcnn==1.0.0")
    arrays: list[NDArray[np.float32]] = joblib.load(path)
    return arrays


def _from_keras(arrays: Sequence[NDArray[np.float32]], layers: Sequence[str]) -> dict[str, Tensor]:
    """Name keras' flat list of arrays and turn its layouts: (H, W, I, O) to (O, I, H, W), (I, O) to (O, I)."""
    tensors = iter(torch.from_numpy(array.copy()) for array in arrays)
    state = {}
    for layer in layers:
        weight = next(tensors)
        if layer.startswith("prelu"):
            state[f"{layer}.weight"] = weight.flatten()
            continue
        if weight.dim() == 4:
            state[f"{layer}.weight"] = weight.permute(3, 2, 0, 1)
        else:
            state[f"{layer}.weight"] = weight.T
        state[f"{layer}.bias"] = next(tensors)
    if next(tensors, None) is not None:
        raise ValueError("more arrays than layers")
    return {name: tensor.contiguous() for name, tensor in state.items()}
