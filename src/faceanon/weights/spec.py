"""`bundle.yaml`: which networks a bundle holds; read without torch."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from faceanon.errors import UserError
from faceanon.files import read_yaml
from faceanon.paths import checkpoints

_TEXTS = ("class", "file", "folder", "sha256", "latent_avg", "latent_avg_sha256")


def bundle_path(name: str | Path) -> Path:
    """Folder of a bundle, by name (in `checkpoints/`) or by path.

    Raises:
        UserError: There is no `bundle.yaml` in it.
    """
    for folder in (Path(name), checkpoints() / name):
        if (folder / "bundle.yaml").is_file():
            return folder
    # Here, since the list of what is published knows torch's layouts.
    from faceanon.weights.missing import missing_bundle

    if advice := missing_bundle(name):
        raise UserError(f"no bundle {str(name)!r} yet: {advice}")
    known = sorted(path.parent.name for path in checkpoints().glob("*/bundle.yaml"))
    raise UserError(
        f"no bundle {str(name)!r}: give a folder with a bundle.yaml, or one of {', '.join(known) or 'none'}"
    )


def read_spec(folder: Path) -> dict[str, Any]:
    """The content of a folder's bundle.yaml, with the entries that everything else relies on.

    Raises:
        UserError: It is damaged, or lacks one.
    """
    path = folder / "bundle.yaml"
    spec = read_yaml(path)
    size = spec.get("image_size")
    networks = spec.get("networks")
    # In Python True is an int too.
    sized = "image_size" in spec and isinstance(size, int | None) and not isinstance(size, bool)
    if not isinstance(spec.get("name"), str) or not sized:
        raise UserError(f"{path}: name and image_size must be a text and a number; restore the file")
    for section in (networks, spec.get("parts", {}), spec.get("packs", {})):
        if not isinstance(section, dict):
            raise UserError(f"{path}: networks must be entries by role; restore the file")
        for role, entry in section.items():
            if isinstance(entry, dict):
                texts = [entry.get(key, "") for key in _TEXTS]
            else:
                texts = [None]
            inner = []
            if isinstance(entry, dict):
                for key in ("init", "files", "source"):
                    inner.append(entry.get(key, {}))
            if not all(isinstance(text, str) for text in (role, *texts)) or not all(isinstance(i, dict) for i in inner):
                raise UserError(f"{path}: the entry of {role!r:.40} is damaged; restore the file")
    return spec


def fingerprint(spec: dict[str, Any], folder: Path) -> str:
    """Hash over the weights that codes depend on, as `Bundle.fingerprint` says.

    Args:
        spec: Of `read_spec`.
        folder: Of the bundle.

    Raises:
        UserError: If the bundle has no codec and lacks generator, encoder or recogniser.
    """
    networks = spec["networks"]
    roles = ["generator", "encoder", "recogniser"]
    if "codec" in networks:
        own_roles = []
        for role in (*roles, "codec"):
            if role in networks:
                own_roles.append(role)
        roles = own_roles
    hashes = []
    for role in roles:
        if role not in networks:
            raise UserError(f"bundle {spec['name']!r} ({folder}) has no {role}; restore {folder / 'bundle.yaml'}")
        hashes.append(str(networks[role].get("sha256")))
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()
