"""LPIPS with its learned linear layers (Zhang et al., CVPR 2018, eq. 1), on a backbone from this disk."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.errors import UserError
from faceanon.networks.adapters import PerceptualDistance
from faceanon.networks.frozen import Frozen
from faceanon.networks.local_weights import load_exactly, read_state

BACKBONES = {
    "alex": "alexnet-owt-7be5be79.pth (torchvision's AlexNet, BSD-3; https://download.pytorch.org/models/)",
    "vgg": "vgg16-397923af.pth (torchvision's VGG-16, BSD-3; https://download.pytorch.org/models/)",
}


class Lpips(nn.Module):
    """The maps that LPIPS compares. Scaling and linear layers (v0.1) come from the package `lpips`.

    The state dict is the backbone's alone, with torchvision's names (`features.0.weight`, ...).

    Args:
        net: Backbone: AlexNet or VGG-16.

    Raises:
        UserError: If the package `lpips` is missing.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, net: Literal["alex", "vgg"] = "alex") -> None:
        super().__init__()
        self.kind = net
        whole = _untrained(net)
        slices = []
        for i in range(whole.net.N_slices):
            slices.append(getattr(whole.net, f"slice{i + 1}"))
        # The layers keep their numbers in torchvision's network as names, so that its file fits.
        layers = {}
        for part in slices:
            layers.update(part.named_children())
        self.features = nn.ModuleDict(layers)
        # LPIPS compares what leaves the last layer of each slice.
        self.taps = tuple(list(dict(part.named_children()))[-1] for part in slices)
        self.register_buffer("shift", whole.scaling_layer.shift, persistent=False)
        self.register_buffer("scale", whole.scaling_layer.scale, persistent=False)
        for index, layer in enumerate(whole.lins):
            self.register_buffer(f"root{index}", layer.model[-1].weight.detach().sqrt(), persistent=False)

    def raw(self, image: Tensor) -> list[Tensor]:
        """The backbone's five maps `(B, C, h, w)` of `(B, 3, S, S)` in [-1, 1]."""
        maps = []
        x = (image - self.shift) / self.scale
        for name, layer in self.features.items():
            x = layer(x)
            if name in self.taps:
                maps.append(x)
        return maps

    def forward(self, image: Tensor) -> list[Tensor]:
        """Maps of unit length times the roots of the linear weights: LPIPS is the mean square of their differences."""
        maps = []
        for item in self.raw(image):
            maps.append(F.normalize(item, dim=1, eps=1e-10))
        return [item * self.get_buffer(f"root{index}") for index, item in enumerate(maps)]

    @classmethod
    def from_file(cls, path: str | Path, net: Literal["alex", "vgg"] = "alex") -> Lpips:
        """LPIPS on the backbone in torchvision's file; `weights_only`, every key checked.

        Raises:
            UserError: The file is missing, unreadable or another network's.
        """
        lpips = cls(net)
        load_exactly(lpips, backbone_weights(read_state(path, BACKBONES[net])), path)
        return lpips


class LpipsDistance(PerceptualDistance):
    """LPIPS as the bundle's perceptual distance.

    Args:
        net: `Lpips`, frozen or not.
    """

    def __init__(self, net: Lpips | Frozen) -> None:
        super().__init__(net)

    def maps(self, image: Tensor) -> list[Tensor]:
        """The weighted maps of `(B, 3, S, S)` in [-1, 1]; compute once for an image compared many times."""
        maps: list[Tensor] = self.net(image)
        return maps

    def features(self, image: Tensor) -> Tensor:
        """Spatial mean of the backbone's last map, `(B, C)`, for KID."""
        if isinstance(self.net, Frozen):
            net = self.net.net
        else:
            net = self.net
        assert isinstance(net, Lpips)
        return net.raw(image)[-1].mean((2, 3))


def backbone_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of torchvision's state dict that LPIPS uses; the classifier falls away, anything else stays."""
    kept = {}
    for name, tensor in state.items():
        if not name.startswith("classifier."):
            kept[name] = tensor
    return kept


def _untrained(net: str) -> Any:  # noqa: ANN401 - lpips has no types
    """LPIPS as its package builds it without a download: linear layers trained, backbone random."""
    if net not in BACKBONES:
        raise UserError(f"LPIPS has no backbone {net!r}; choose one of {', '.join(BACKBONES)}")
    try:
        import lpips
    except ImportError as error:
        raise UserError("LPIPS needs the package lpips; run: pip install 'lpips>=0.1.4'") from error
    with warnings.catch_warnings():
        # It speaks torchvision's old way.
        warnings.filterwarnings("ignore", category=UserWarning, module="torchvision")
        return lpips.LPIPS(net=net, pnet_rand=True, verbose=False)
