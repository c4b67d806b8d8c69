"""A complete bundle of tiny untrained networks, for tests that need the wiring and not the figures."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import yaml

from faceanon.files import load_tensors, save_tensors
from faceanon.weights.bundle import Bundle, network_class
from faceanon.weights.checksums import write_checksums

NETWORKS = {
    "recogniser": ("critics.ConvRecogniser", {"image_size": 64, "widths": [4, 8, 8, 8], "embedding": 32}),
    "judge": ("critics.ConvRecogniser", {"image_size": 64, "widths": [4, 4, 8, 8], "embedding": 16}),
    "parser": ("critics.UNetParser", {"n_classes": 10, "widths": [4, 4, 8]}),
    "landmarks": ("critics.LandmarkNet", {"image_size": 64, "points": 16, "widths": [4, 4, 8, 8]}),
    "perceptual": ("critics.PerceptualNet", {"widths": [4, 4, 8]}),
    "generator": (
        "stylegan2.Generator",
        {"size": 64, "style_dim": 16, "n_mlp": 2, "channels": {4: 16, 8: 16, 16: 16, 32: 8, 64: 8}},
    ),
    "encoder": (
        "e4e.Encoder4Editing",
        {
            "stylegan_size": 64,
            "style_dim": 16,
            "input_size": 64,
            "widths": [8, 8, 16, 16, 16],
            "units": [1, 1, 1, 1],
            "coarse_ind": 3,
            "middle_ind": 10,
            "feature_taps": [-1, 0, 1],
        },
    ),
    "discriminator": ("stylegan2.Discriminator", {"size": 64, "channels": {4: 8, 8: 8, 16: 8, 32: 8, 64: 8}}),
}


def give_noise_strengths(folder: Path) -> None:
    """Let the generator of a bundle add its noise, or what takes its place: untrained, all strengths are 0."""
    file = folder / "generator.safetensors"
    tensors = load_tensors(file)
    strengths = [name for name in tensors if name.endswith("noise.weight")]
    assert strengths
    for name in strengths:
        tensors[name] = torch.full_like(tensors[name], 0.1)
    save_tensors(file, tensors)
    assert write_checksums(folder) == []


def make_sealed_bundle(folder: Path) -> Path:
    """A tiny bundle with the codec of photographs, for methods whose way back is a sealed code."""
    make_tiny_bundle(folder)
    path = folder / "bundle.yaml"
    spec = yaml.safe_load(path.read_text())
    codec = Bundle("photo128").entry("codec")
    shutil.copyfile(Bundle("photo128").folder / codec["file"], folder / "codec.safetensors")
    spec["networks"]["codec"] = {"class": codec["class"], "file": "codec.safetensors"}
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    assert write_checksums(folder) == []
    return folder


LATENT_NETWORKS = {
    "generator": (
        "stylegan2.Generator",
        {"size": 16, "style_dim": 16, "n_mlp": 2, "channels": {4: 16, 8: 16, 16: 16}, "latents": 32, "depth": 6},
    ),
    "encoder": (
        "e4e.Encoder4Editing",
        {
            "stylegan_size": 16,
            "depth": 6,
            "style_dim": 16,
            "input_size": 16,
            "input_nc": 32,
            "strides": [1, 1, 2, 2],
            "widths": [8, 8, 16, 16, 16],
            "units": [1, 1, 1, 1],
        },
    ),
    "discriminator": ("cell_discriminator.CellDiscriminator", {"cells": 16, "channels": 32, "width": 16}),
    "judge": ("critics.ConvRecogniser", {"image_size": 128, "widths": [4, 4, 8, 8], "embedding": 16}),
    "parser": ("critics.UNetParser", {"n_classes": 10, "widths": [4, 4, 8]}),
    "perceptual": ("latents.LatentMaps", {}),
    "landmarks": ("mesh_landmarks.MeshLandmarks", {}),
}


def make_latent_bundle(folder: Path, without: tuple[str, ...] = (), encoder: str = "e4e.Encoder4Editing") -> Path:
    """A bundle of photographs with everything that a method on W+ wants: photo128's codec, tiny untrained networks.

    Args:
        folder: Made where it is missing.
        without: Roles that it is to lack.
        encoder: Class of the encoder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shipped = Bundle("photo128")
    entries = {}
    for role in ("recogniser", "codec"):
        entry = shipped.entry(role)
        shutil.copyfile(shipped.folder / entry["file"], folder / entry["file"])
        entries[role] = {key: value for key, value in entry.items() if key != "sha256"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for role, (name, init) in LATENT_NETWORKS.items():
            path = f"faceanon.networks.{encoder if role == 'encoder' else name}"
            entries[role] = {"name": f"tiny_{role}", "class": path, "init": init}
            tensors = network_class(path)(**init).state_dict()
            if tensors:
                save_tensors(folder / f"{role}.safetensors", tensors)
                entries[role]["file"] = f"{role}.safetensors"
    # Untrained, its points would be anywhere; what ships is small.
    shutil.copyfile(shipped.folder.parent / "photo_seers/mesh.safetensors", folder / "landmarks.safetensors")
    save_tensors(folder / "latent_avg.safetensors", {"latent_avg": torch.zeros(14, 16)})
    entries["encoder"]["latent_avg"] = "latent_avg.safetensors"
    for role in without:
        del entries[role]
    spec = {"name": "tiny_photo128", "image_size": 128, "networks": entries}
    if "parser" not in without:
        spec["parsing"] = {"edited": list(range(10)), "face": [1], "head": [1, 2], "parts": [4, 5, 6, 7]}
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    assert write_checksums(folder) == []
    return folder


def make_tiny_bundle(folder: Path, seed: int = 0, side: int = 64) -> Path:
    """Write the bundle into `folder`; deterministic from the seed.

    Args:
        folder: Where it is written.
        seed: Of the weights.
        side: Of the pictures that are drawn: 64, or 128, which the encoder shrinks as 256 px encoders do at 1024.
    """
    entries = {}
    larger = {}
    if side == 128:
        larger = {"generator": {"size": 128}, "discriminator": {"size": 128}, "encoder": {"stylegan_size": 128}}
        larger |= {role: {"image_size": 128} for role in ("recogniser", "judge", "landmarks")}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for role, (name, usual) in NETWORKS.items():
            init = usual | larger.get(role, {})
            if "channels" in init:
                init["channels"] = {**init["channels"], side: 8}
            path = f"faceanon.networks.{name}"
            net = network_class(path)(**init)
            save_tensors(folder / f"{role}.safetensors", net.state_dict())
            entries[role] = {"name": f"tiny_{role}", "class": path, "init": init, "file": f"{role}.safetensors"}
    save_tensors(folder / "latent_avg.safetensors", {"latent_avg": torch.zeros(2 * side.bit_length() - 4, 16)})
    entries["encoder"]["latent_avg"] = "latent_avg.safetensors"
    # An untrained parser may see one class everywhere: all count as edited, so that a blending method draws something.
    parsing = {
        "edited": list(range(10)),
        "face": [1, 4, 5, 6, 7],
        "head": [1, 2, 3, 4, 5, 6, 7, 9],
        "parts": [4, 5, 6, 7],
        "occluder": 9,
    }
    spec = {"name": f"tiny{side}", "image_size": side, "parsing": parsing, "networks": entries}
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    assert write_checksums(folder) == []
    return folder
