"""A bundle of random networks of the public checkpoints' size: what the papers' setting costs, without its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from faceanon.weights.bundle import network_class
from faceanon.weights.files import save_tensors
from faceanon.weights.seal import seal

FRAMING = (35 / 256, 32 / 256, 223 / 256, 220 / 256)
NETWORKS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "generator": ("stylegan2.Generator", {"size": 256}, {}),
    "encoder": ("e4e.Encoder4Editing", {"stylegan_size": 256}, {"latent_avg": "latent_avg.safetensors"}),
    "discriminator": ("stylegan2.Discriminator", {"size": 256}, {}),
    "recogniser": ("irse.IRSE50", {}, {"input_size": 112, "crop": list(FRAMING)}),
    "judge": ("irse.IRSE50", {}, {"input_size": 112, "crop": list(FRAMING)}),
    "parser": ("unet.UNetParser", {}, {}),
    "landmarks": ("landmarks68.Landmarks68", {}, {}),
    "perceptual": ("lpips_net.Lpips", {"net": "alex"}, {}),
}
"""Class, arguments and further lines of bundle.yaml by role."""
PARSING = {
    "face": [1, 2, 3, 4, 5, 10, 11, 12, 13],
    "head": [1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 13, 14],
    "parts": [4, 5, 10, 11],
}


def random_bundle(folder: Path, seed: int = 0) -> Path:
    """Write the bundle, 1.6 GB, into `folder`; every figure but cost is meaningless with it."""
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for role, (leaf, init, more) in NETWORKS.items():
            path = f"faceanon.networks.{leaf}"
            net: nn.Module = network_class(path)(**init)
            save_tensors(folder / f"{role}.safetensors", net.state_dict())
            entries[role] = {
                "name": f"random_{role}",
                "class": path,
                "init": init,
                "file": f"{role}.safetensors",
                **more,
            }
    save_tensors(folder / "latent_avg.safetensors", {"latent_avg": torch.zeros(14, 512)})
    spec = {"name": "random256", "image_size": 256, "parsing": PARSING, "networks": entries}
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    seal(folder)
    return folder
