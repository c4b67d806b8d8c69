"""Methods whose authors publish their weights: from what a bundle holds of them to a backbone that runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.backbones.dbaf import DBAF
from faceanon.backbones.riddle import Riddle
from faceanon.errors import UserError
from faceanon.files import load_strictly, load_tensors
from faceanon.networks.level_edits import level_sizes
from faceanon.weights.bundle import Bundle
from faceanon.weights.layouts import count

_HEAD = 64  # width of a head of CID's attention; no tensor tells it
_CID = (
    (r"layers\.(\d)\.transformer\.layers\.(\d+)\.0\.norm\.", r"levels.\1.blocks.\2.attention.0."),
    (r"layers\.(\d)\.transformer\.layers\.(\d+)\.0\.fn\.to_qkv\.", r"levels.\1.blocks.\2.attention.1.qkv."),
    (r"layers\.(\d)\.transformer\.layers\.(\d+)\.0\.fn\.to_out\.", r"levels.\1.blocks.\2.attention.1.out."),
    (r"layers\.(\d)\.transformer\.layers\.(\d+)\.1\.norm\.", r"levels.\1.blocks.\2.feed.0."),
    (r"layers\.(\d)\.transformer\.layers\.(\d+)\.1\.fn\.net\.0\.", r"levels.\1.blocks.\2.feed.1."),
    (r"layers\.(\d)\.transformer\.layers\.(\d+)\.1\.fn\.net\.3\.", r"levels.\1.blocks.\2.feed.4."),
)
_MAAR = (
    (r"conv_(c\d)\.", r"levels.\1.0."),
    (r"cbam_(c\d)\.ChannelGate\.mlp\.1\.", r"levels.\1.1.mlp.0."),
    (r"cbam_(c\d)\.ChannelGate\.mlp\.3\.", r"levels.\1.1.mlp.2."),
    (r"cbam_(c\d)\.SpatialGate\.spatial\.conv\.", r"levels.\1.1.spatial.0."),
    (r"cbam_(c\d)\.SpatialGate\.spatial\.bn\.", r"levels.\1.1.spatial.1."),
)
_KRIA = ((r"mapper\.(\d)\.model\.", r"\1.net."),)


def published_method(name: str, bundle: Bundle) -> Backbone:
    """DBAF with its released weights, or RiDDLE with its published mapper.

    Args:
        name: `dbaf` or `riddle`.
        bundle: Holds the method's files, and the generator and encoder that they were trained on.

    Raises:
        UserError: The bundle lacks a file, or one does not fit its networks.
    """
    if name == "riddle":
        bundle.require("mapper", "generator", "encoder")
        sizes = bundle.entry("mapper")["init"]
        riddle = Riddle(str(bundle.folder), sizes["add_linear"], sizes["add_pos_embedding"], sizes["norm"])
        load_strictly(riddle.mapper, bundle.build("mapper").state_dict(), _file(bundle, "networks", "mapper"))
        return riddle.eval()
    bundle.require("dbaf_decoder", "generator", "encoder")
    cid = _tensors(bundle, "dbaf_disentanglement")
    first = "layers.0.transformer.layers.0."
    dbaf = DBAF(
        str(bundle.folder),
        cid_depth=count(cid, "layers.0.transformer.layers.#.0.norm.weight"),
        cid_heads=cid[f"{first}0.fn.to_qkv.weight"].shape[0] // (3 * _HEAD),
        cid_head_dim=_HEAD,
        cid_axis="batch",
        cid_form="levels",
        maar_form="cbam",
    )
    assert dbaf.cid is not None
    assert dbaf.maar is not None
    sides = dict(zip(("c3", "c2", "c1"), sorted(dbaf.encoder.feature_channels), strict=True))
    maar = {}
    for key, tensor in _renamed(_tensors(bundle, "dbaf_attributes"), _MAAR).items():
        for level, side in sides.items():
            key = key.replace(f"levels.{level}.", f"levels.{side}.")
        maar[key] = tensor
    kria = _renamed(_tensors(bundle, "dbaf_mapper"), _KRIA)
    load_strictly(dbaf.generator, bundle.build("dbaf_decoder").state_dict(), _file(bundle, "networks", "dbaf_decoder"))
    load_strictly(dbaf.cid, _by_level(cid), _file(bundle, "parts", "dbaf_disentanglement"))
    load_strictly(dbaf.maar, maar, _file(bundle, "parts", "dbaf_attributes"))
    load_strictly(dbaf.kria, kria, _file(bundle, "parts", "dbaf_mapper"))
    return dbaf.eval()


def _by_level(cid: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """CID's tensors: its levels share one linear layer and one table of positions in the file, and not with us."""
    own = dict(cid)
    rows = own.pop("pos_embedding")
    weight = own.pop("linear_w.weight")
    bias = own.pop("linear_w.bias")
    tensors = _renamed(own, _CID)
    for level, position in enumerate(torch.split(rows, level_sizes(len(rows)))):
        tensors[f"levels.{level}.position"] = position
        tensors[f"levels.{level}.project.weight"] = weight
        tensors[f"levels.{level}.project.bias"] = bias
    return tensors


def _renamed(tensors: Mapping[str, Tensor], rules: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    """Tensors by our names; a name that no rule knows stays, for strict loading to refuse."""
    renamed = {}
    for name, tensor in tensors.items():
        for pattern, ours in rules:
            name = re.sub(f"^{pattern}", ours, name)
        renamed[name] = tensor
    return renamed


def _file(bundle: Bundle, section: str, role: str) -> str:
    return str(bundle.folder / bundle.spec[section][role]["file"])


def _tensors(bundle: Bundle, role: str) -> dict[str, Tensor]:
    entry = bundle.spec.get("parts", {}).get(role)
    if entry is None:
        raise UserError(
            f"bundle {bundle.name!r} ({bundle.folder}) has no {role}; import DBAF's four files together: "
            "faceanon weights list says which"
        )
    return load_tensors(Path(bundle.folder) / entry["file"], entry["sha256"])
