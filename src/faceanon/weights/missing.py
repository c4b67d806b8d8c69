"""What to say when a bundle or one of its networks is not there: the published file, its terms, the import command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from faceanon.weights.catalog import Published, catalog

PAPERS = {
    "ffhq256": (
        "stylegan2_256", "e4e_256", "ir_se50", "facenet_casia", "facenet_vggface2", "unet_parser", "lpips_alex",
        "landmarks68", "inception_v3", "adaface_ir50",
    ),
}  # fmt: skip
"""Catalog entries of the bundles that shipped configs stand on and nobody may ship, in the order of their import."""

_HOW_TO = "docs/how-to/bring-your-own-networks.md"
_ANY = "FILE"


def missing_roles(roles: Sequence[str], bundle: str | Path, image_size: int) -> str:
    """How to get the networks that a bundle lacks.

    Args:
        roles: Their roles.
        bundle: Name or folder, as `faceanon weights import --as` takes it.
        image_size: Side of the bundle's pictures, in px.
    """
    networks = []
    for role in roles:
        networks.append((role, _published(role, image_size)))
    if all(entry is None for _, entry in networks):
        return "train or import one first"
    return _advice(networks, str(bundle))


def missing_bundle(bundle: str | Path) -> str | None:
    """How to get a bundle of the papers, None for any other name."""
    ids = PAPERS.get(Path(bundle).name)
    if ids is None:
        return None
    entries = {entry.id: entry for entry in catalog()}
    return _advice([(entries[name].role, entries[name]) for name in ids], str(bundle))


def _published(role: str, image_size: int) -> Published | None:
    """The papers' file for a role, or the first of the catalog that fits; a discriminator comes with its generator."""
    role = "generator" if role == "discriminator" else role
    fitting = []
    for entry in catalog():
        if role in entry.role.split(", ") and entry.resolution in (None, image_size):
            fitting.append(entry)
    papers: list[str] = []
    for ids in PAPERS.values():
        papers += ids
    return min(fitting, key=lambda entry: papers.index(entry.id) if entry.id in papers else len(papers), default=None)


def _advice(found: Sequence[tuple[str, Published | None]], bundle: str) -> str:
    files = []
    lines = []
    for role, entry in found:
        if entry is None:
            lines.append(f"{role}: no published file is known; train one")
            continue
        # A name with a space describes a file and cannot be typed into a command.
        file = _ANY if " " in entry.files[0] else entry.files[0]
        if file not in files:
            files += [file]
        lines.append(f"{role}: {file} ({entry.title}; licence: {entry.licence}), published at {entry.published}")
    command = f"faceanon weights import {' '.join(files)} --as {bundle}"
    if len(lines) == 1:
        return f"get {lines[0].removeprefix(f'{found[0][0]}: ')}, then run: {command}"
    return "\n  ".join(["get these files:", *lines]) + f"\nthen run: {command}   (more: {_HOW_TO})"
