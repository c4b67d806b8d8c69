"""Every public layout that was recorded, against our network for it: the same keys, shapes, types and order."""

import importlib
import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from latent_discriminator import LatentCodesDiscriminator

FOLDER = Path(__file__).resolve().parents[2] / ".." / "shared" / "golden" / "manifests"
NAMES = sorted(path.stem for path in FOLDER.glob("[!_]*.json"))


def network(path, *args, **kwargs):
    """Construct `faceanon.networks.<path>`; imported here, so that one broken file fails its own cases alone."""
    module, name = path.split(".")
    return getattr(importlib.import_module(f"faceanon.networks.{module}"), name)(*args, **kwargs)


def whole(encoder, size):
    """The modules of a checkpoint that holds an encoder beside its generator."""
    return nn.ModuleDict({"encoder": network(encoder, size), "decoder": network("stylegan2.Generator", size)})


def with_classifier(classes):
    """FaceNet as it was published: with the persons it was trained on."""
    net = network("facenet.InceptionResnetV1")
    net.logits = nn.Linear(512, classes)
    return net


BUILD = {
    "bisenet": lambda: network("bisenet.BiSeNet", n_classes=19),
    "e4e_256": lambda: whole("e4e.Encoder4Editing", 256),
    "e4e_1024": lambda: whole("e4e.Encoder4Editing", 1024),
    "e4e_latent_discriminator": LatentCodesDiscriminator,
    "inception_resnet_v1": lambda: network("facenet.InceptionResnetV1"),
    "inception_resnet_v1_casia": lambda: with_classifier(10575),
    "inception_resnet_v1_vggface2": lambda: with_classifier(8631),
    "ir_se50": lambda: network("irse.IRSE"),
    "psp_256": lambda: whole("psp.GradualStyleEncoder", 256),
    "psp_1024": lambda: whole("psp.GradualStyleEncoder", 1024),
    "riddle_mapper_linear_pos": lambda: network(
        "riddle_mapper.TransformerMapperSplit", add_linear=True, add_pos_embedding=True
    ),
    "riddle_mapper_plain": lambda: network("riddle_mapper.TransformerMapperSplit"),
    **{f"stylegan2_d_{size}": lambda size=size: network("stylegan2.Discriminator", size) for size in (256, 512, 1024)},
    **{f"stylegan2_g_{size}": lambda size=size: network("stylegan2.Generator", size) for size in (256, 512, 1024)},
}


@pytest.fixture(scope="module")
def folder(shared):
    return shared / "golden" / "manifests"


@pytest.mark.parametrize("name", sorted({*BUILD, *NAMES}))
def test_public_layout_in_both_directions(folder, name):
    assert name in BUILD, f"{name}.json has no network in BUILD: add the network that reads such files"
    recorded = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    entries = [(key, tuple(shape), getattr(torch, dtype)) for key, shape, dtype in recorded["entries"]]
    with torch.device("meta"):
        net = BUILD[name]()
        file = {key: torch.empty(shape, dtype=dtype) for key, shape, dtype in entries}
    assert [(key, tuple(tensor.shape), tensor.dtype) for key, tensor in net.state_dict().items()] == entries
    assert {key for key, _ in net.named_buffers()} == set(recorded["buffers"])
    assert sum(parameter.numel() for parameter in net.parameters()) == recorded["n_parameters"]
    net.load_state_dict(file, strict=True)
    del file[entries[0][0]]
    with pytest.raises(RuntimeError, match=re.escape(entries[0][0])):
        net.load_state_dict(file, strict=True)


def test_every_manifest_is_in_the_summary(folder):
    summary = json.loads((folder / "_summary.json").read_text(encoding="utf-8"))
    assert {name for name in summary if name in BUILD} == set(BUILD) == {path.stem for path in folder.glob("[!_]*")}
