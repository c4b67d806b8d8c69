"""Bundles of random networks in the public checkpoints' layout: what the papers' setting costs, without its weights."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from faceanon.files import save_tensors
from faceanon.networks.irse import CROP
from faceanon.networks.stylegan2_tables import channel_table
from faceanon.weights.bundle import network_class
from faceanon.weights.checksums import write_checksums

PUBLIC = 256
FRAMING = [edge / 256 for edge in CROP]
PARSING = {
    "face": [1, 2, 3, 4, 5, 10, 11, 12, 13],
    "head": [1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 13, 14],
    "parts": [4, 5, 10, 11],
}
Table = dict[str, tuple[str, dict[str, Any], dict[str, Any]]]


def network_table(size: int = PUBLIC, narrow: int = 1) -> Table:
    """Class, arguments and further lines of bundle.yaml by role.

    Args:
        size: Side of the faces in px, a power of two from 64; channels follow the distance from the finest resolution.
        narrow: Divides all widths but the parser's and LPIPS'.
    """
    public = channel_table(PUBLIC, 2, None)
    channels = {}
    for side, width in public.items():
        # Of smaller faces the coarsest resolutions would lie below 4 px, and are left out.
        if side * size >= 4 * PUBLIC:
            channels[side * size // PUBLIC] = width // narrow
    dim = 512 // narrow
    widths = []
    for width in (64, 64, 128, 256, 512):
        widths.append(width // narrow)
    encoder = {"stylegan_size": size, "style_dim": dim, "input_size": size, "widths": widths}
    face = size * 7 // 16
    framing = {"input_size": face, "crop": list(FRAMING)}
    recogniser = ("irse.IRSE", {"input_size": face, "widths": widths, "embedding": dim}, framing)
    return {
        "generator": ("stylegan2.Generator", {"size": size, "style_dim": dim, "channels": channels}, {}),
        "encoder": ("e4e.Encoder4Editing", encoder, {"latent_avg": "latent_avg.safetensors"}),
        "discriminator": ("stylegan2.Discriminator", {"size": size, "channels": channels}, {}),
        "recogniser": recogniser,
        "judge": recogniser,
        # The public parser takes faces of 256 px at 512.
        "parser": ("unet.CelebAMaskParser", {"working_size": 2 * size}, {}),
        "perceptual": ("lpips_net.Lpips", {"net": "alex"}, {}),
    }


def write_bundle(folder: Path, table: Table) -> Path:
    """Write a bundle of random networks; every figure but cost is meaningless with it.

    Args:
        folder: Where.
        table: As `network_table`'s.
    """
    entries: dict[str, Any] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for role, (leaf, init, more) in table.items():
        path = f"faceanon.networks.{leaf}"
        file = f"{role}.safetensors"
        entries[role] = {"name": f"random_{role}", "class": path, "init": init, "file": file, **more}
        # What a case draws later must not depend on whether weights were written before.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            save_tensors(folder / file, network_class(path)(**init).state_dict())
    init = table["generator"][1]
    # `(L, D)`, L = 2 log2(S) - 2 rows of w+: 14 at 256 px. A bit length is one more than the logarithm.
    average = torch.zeros(2 * init["size"].bit_length() - 4, init["style_dim"])
    save_tensors(folder / "latent_avg.safetensors", {"latent_avg": average})
    spec = {"name": "random", "image_size": init["size"], "parsing": PARSING, "networks": entries}
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    write_checksums(folder)
    return folder


@cache
def random_bundle(size: int = PUBLIC) -> Path:
    """All networks of a stage, written once in a process, and removed when it ends.

    Args:
        size: Side of the faces in px; in the public size they take 1.6 GB, smaller ones are narrow, for trials.
    """
    folder = tempfile.TemporaryDirectory(prefix="faceanon-bench-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    narrow = 1 if size == PUBLIC else 8
    return write_bundle(
        Path(folder.name), network_table(size, narrow) | {"landmarks": ("landmarks68.Landmarks68", {}, {})}
    )
