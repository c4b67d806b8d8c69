"""The public checkpoints that faceanon knows: what they are for, who publishes them, on which terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from faceanon.paths import checkpoints
from faceanon.weights.layouts import ENCODERS, LAYOUTS

ROLES = {layout.kind: layout.role for layout in (*LAYOUTS, *ENCODERS.values())}
# These have no layout in the tables: one has a generator's keys, the other is a pack of ONNX files.
ROLES |= {"dbaf_decoder": "dbaf_decoder", "insightface": "judge, detector"}
"""Role in a bundle that a network of a kind has."""


@dataclass(frozen=True)
class Published:
    """A checkpoint that somebody publishes.

    Args:
        id: Its name here.
        title: What it is.
        kind: As `Layout.kind`.
        resolution: Side in px where that is part of the network, else None.
        files: Names under which it is published, for people; nothing is recognised by them.
        licence: Its terms.
        commercial: Whether they allow commercial use: `no`, `unclear` or `yes`, as we read them.
        size: Of the file, in words.
        sha256: Of the file, of the first of `files`, or None where it is not known.
        published: Where its authors publish it.
        variant: Name that `import` gives it, where a kind has several.
    """

    id: str
    title: str
    kind: str
    resolution: int | None
    files: tuple[str, ...]
    licence: str
    commercial: str
    size: str
    sha256: str | None
    published: str
    variant: str | None = None

    @property
    def role(self) -> str:
        """Role that the network has in a bundle."""
        return ROLES[self.kind]


@cache
def catalog() -> tuple[Published, ...]:
    """Everything known, in the order of the file."""
    entries = yaml.safe_load((Path(__file__).parent / "data" / "catalog.yaml").read_text(encoding="utf-8"))
    return tuple(Published(**{**entry, "files": tuple(entry["files"])}) for entry in entries)


def published(kind: str, resolution: int | None = None, name: str | None = None) -> Published | None:
    """The entry that a network of this kind falls under, or None.

    Args:
        kind: As `Layout.kind`.
        resolution: Side in px, for generators and encoders.
        name: The network's name, where a kind has variants.
    """
    for entry in catalog():
        right_size = entry.resolution is None or entry.resolution == resolution
        if entry.kind == kind and right_size and entry.variant in (None, name):
            return entry
    return None


def by_sha256(digest: str) -> Published | None:
    """The published file with this hash, or None."""
    for entry in catalog():
        if entry.sha256 == digest:
            return entry
    return None


def bundle_entries(spec: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Every entry of a bundle.yaml: networks, tensors without a network, packs."""
    for section in ("networks", "parts", "packs"):
        yield from (spec.get(section) or {}).values()


def on_disk() -> dict[str, list[str]]:
    """Names of the bundles in `checkpoints/` that hold something imported, by `Published.id`."""
    bundles: dict[str, list[str]] = {}
    for path in sorted(checkpoints().glob("*/bundle.yaml")):
        for entry in bundle_entries(yaml.safe_load(path.read_text(encoding="utf-8"))):
            known = entry.get("source", {}).get("catalog")
            if known is not None and path.parent.name not in bundles.setdefault(known, []):
                bundles[known].append(path.parent.name)
    return bundles


def markdown_table() -> str:
    """The licence table of the documentation."""
    head = "| role | network | published as | licence | commercial use | size | sha256 | where |"
    lines = [head, "|" + "---|" * 8]
    for entry in catalog():
        files = ", ".join(f"`{file}`" if "." in file else file for file in entry.files)
        digest = "unknown"
        if entry.sha256:
            digest = f"`{entry.sha256[:12]}…`"
        where = f"[{entry.published.split('/', 3)[-1]}]({entry.published})"
        cells = (entry.role, entry.title, files, entry.licence, entry.commercial, entry.size, digest, where)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
