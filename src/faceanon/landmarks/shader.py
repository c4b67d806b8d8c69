"""The network that ships for the light of faces which are put on, in torch (`landmarks.shading`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from faceanon.networks.shading import ShadingNet
from faceanon.weights.shipped import read_tensors

FILE = "shading.safetensors"


class TorchShader:
    """Runs the network on the CPU, where faces are put on.

    Args:
        folder: Where `shading.safetensors` lies; the shipped one when None.

    Raises:
        UserError: If the file is missing or damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        # On the meta device no random numbers are drawn for weights that are replaced at once (see FaceMesh).
        with torch.device("meta"):
            self.net = ShadingNet()
        self.net.load_state_dict(read_tensors(FILE, folder), assign=True)
        self.net.eval().requires_grad_(False)

    def __call__(self, sheets: NDArray[np.float32]) -> NDArray[np.float32]:
        """Fields `(B, 3, 32, 32)` of sheets `(B, 6, 64, 64)`, see `landmarks.shading`."""
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            fields: NDArray[np.float32] = self.net(torch.from_numpy(sheets)).numpy()
        return fields
