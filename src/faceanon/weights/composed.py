"""A bundle made of another one and of networks that were trained on it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import yaml
from torch import nn

from faceanon.files import sha256, write_atomic
from faceanon.networks.latents import LatentMaps
from faceanon.networks.mesh_landmarks import MeshLandmarks
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle
from faceanon.weights.checksums import write_checksums
from faceanon.weights.shipped import read_shipped, shipped_sha256

MESH = "mesh.safetensors"
MESH_LICENCE = "LICENSE.mesh"


@runtime_checkable
class Rebuilt(Protocol):
    """A network that knows what it was built with.

    Attributes:
        init_args: Arguments of its constructor, plain values.
    """

    init_args: dict[str, Any]


def compose_bundle(folder: Path, base: Bundle, trained: Mapping[str, nn.Module], steady_numbers: int = 0) -> None:
    """Make a bundle of a folder that holds freshly trained networks as `ROLE.safetensors` and `latent_avg.safetensors`.

    Networks of `base` are copied beside them. A bundle of photographs gets those roles too that need no training: the
    distance between latents as `perceptual`, and the mesh that ships as `landmarks`. Where the folder is a bundle
    already, its checksums alone are brought up to date.

    Args:
        folder: The folder.
        base: The bundle that they were trained on.
        trained: The networks by role.
        steady_numbers: As `Bundle.steady_numbers`.
    """
    if (folder / "bundle.yaml").is_file():
        write_checksums(folder)
        return
    networks: dict[str, dict[str, Any]] = {}
    sources = {base.folder}
    for role, entry in base.spec["networks"].items():
        if role in trained:
            continue
        networks[role] = dict(entry)
        if "file" in entry:
            # It may lie in another bundle's folder.
            own = Path(entry["file"]).name
            shutil.copyfile(base.folder / entry["file"], folder / own)
            sources.add((base.folder / entry["file"]).parent)
            networks[role]["file"] = own
    if base.has("codec"):
        _add_untrained(networks, folder)
    for role, net in trained.items():
        assert isinstance(net, Rebuilt)
        file = f"{role}.safetensors"
        entry = {"class": _import_path(type(net)), "init": net.init_args, "file": file, "sha256": sha256(folder / file)}
        if role == "encoder":
            entry["latent_avg"] = "latent_avg.safetensors"
            entry["latent_avg_sha256"] = sha256(folder / "latent_avg.safetensors")
        networks[role] = entry
    # The copied networks stay under the terms of the bundle they are from.
    for source in sources:
        for licence in source.glob("LICENSE*"):
            shutil.copyfile(licence, folder / licence.name)
    spec = {**base.spec, "name": f"{base.name}_prior", "networks": networks}
    # Their folder is not beside this one.
    spec.pop("pictures", None)
    if steady_numbers:
        spec["steady_numbers"] = steady_numbers
    text = yaml.safe_dump(spec, sort_keys=False, default_flow_style=None, width=110)
    write_atomic(folder / "bundle.yaml", text.encode())


def _add_untrained(networks: dict[str, dict[str, Any]], folder: Path) -> None:
    if "perceptual" not in networks:
        networks["perceptual"] = {"name": "latents", "class": _import_path(LatentMaps)}
    if "landmarks" not in networks:
        write_atomic(folder / MESH, read_shipped(MESH))
        entry = {"name": "face_mesh", "class": _import_path(MeshLandmarks), "file": MESH}
        networks["landmarks"] = {**entry, "sha256": shipped_sha256(MESH)}
        shutil.copyfile(checkpoints() / "photo_seers" / MESH_LICENCE, folder / MESH_LICENCE)


def _import_path(kind: type[nn.Module]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
