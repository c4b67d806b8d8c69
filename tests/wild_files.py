"""Contents of small files in the layouts of public checkpoints, with every omission that is met in the wild."""

from __future__ import annotations

import argparse

import pytest
import torch

from faceanon.errors import UserError
from faceanon.networks.bisenet import BiSeNet
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.facenet import InceptionResnetV1
from faceanon.networks.irse import IRSE
from faceanon.networks.landmarks68 import Landmarks68
from faceanon.networks.psp import GradualStyleEncoder
from faceanon.networks.riddle_mapper import TransformerMapperSplit
from faceanon.networks.stylegan2 import Discriminator, Generator
from faceanon.networks.unet import CelebAMaskParser

CHANNELS = {4: 8, 8: 8, 16: 6, 32: 4}
SIZE, DIM, ROWS = 32, 8, 8
WIDTHS, UNITS = [4, 4, 6, 8, 10], [1, 2, 2, 1]
ENCODERS = {"Encoder4Editing": Encoder4Editing, "GradualStyleEncoder": GradualStyleEncoder}


def seeded(build, seed=0):
    """A network from a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build().eval()


def generator(seed=0):
    return seeded(lambda: Generator(SIZE, DIM, 2, channels=CHANNELS), seed)


def discriminator(size=SIZE):
    return seeded(lambda: Discriminator(size, channels={4: 8, 8: 8, 16: 6, 32: 4}))


def without(state, *parts):
    """A state dict without the keys that contain one of the parts."""
    return {name: value for name, value in state.items() if not any(part in name for part in parts)}


def prefixed(state, prefix):
    return {f"{prefix}{name}": value for name, value in state.items()}


def stylegan_content(variant="converted", seed=0):
    """What a StyleGAN2 file holds; `converted` has a latent_avg, `noiseless` lacks what 550000.pt lacks."""
    state = generator(seed).state_dict()
    if variant == "converted":
        return {"g_ema": state, "latent_avg": torch.arange(float(DIM))}
    if variant == "distributed":
        return {"g_ema": prefixed(state, "module.")}
    if variant == "training":
        optimizer = {"state": {}, "param_groups": [{"lr": 0.002, "betas": (0.0, 0.99)}]}
        content = {"g": generator(seed + 50).state_dict(), "d": discriminator().state_dict(), "g_ema": state}
        return content | {"g_optim": optimizer, "args": argparse.Namespace(size=SIZE, latent=DIM), "ada_aug_p": 0.1}
    return {"g_ema": without(state, *{"noiseless": ["noises."], "kernelless": [".kernel"]}.get(variant, []))}


def encoder_content(kind="Encoder4Editing", seed=0, opts=None, average=True, prefix="", decoder=None):
    """What an e4e or pSp file holds; its decoder is `generator(seed)`."""
    net = seeded(lambda: ENCODERS[kind](SIZE, DIM, 32, WIDTHS, UNITS, 2, 5), seed + 7)
    decoder = generator(seed).state_dict() if decoder is None else decoder
    state = {**prefixed(net.state_dict(), "encoder."), **prefixed(decoder, "decoder.")}
    options = {"encoder_type": kind, "device": "cuda:0", "nested": {"a": 1}}
    options |= {"start_from_latent_avg": True} if opts is None else opts
    content = {"state_dict": prefixed(state, prefix), "opts": options}
    return {**content, "latent_avg": torch.full((ROWS, DIM), 0.5)} if average else content


def recogniser_content():
    return seeded(lambda: IRSE(48, WIDTHS, UNITS, 16)).state_dict()


def bisenet_content():
    return seeded(lambda: BiSeNet(19, 4)).state_dict()


def repeated(build):
    """A state dict in which every tensor is one number repeated, so that the file of a large network stays small."""
    with torch.device("meta"):
        shapes = build().state_dict()
    return {name: torch.full((), 0.01).to(value.dtype).expand(value.shape) for name, value in shapes.items()}


def unet_content():
    return repeated(lambda: CelebAMaskParser(19))


def landmarks_content():
    return {"state_dict": repeated(Landmarks68), "epoch": 3}


def facenet_content(classes=None):
    """FaceNet as it is published: with the persons it was trained on, unless `classes` is None."""

    def build():
        net = InceptionResnetV1()
        if classes is not None:
            net.logits = torch.nn.Linear(512, classes)
        return net

    return repeated(build)


def imagenet_content(name):
    """AlexNet or VGG-16 as torchvision publishes them."""
    from torchvision import models

    return repeated(getattr(models, name))


def mapper_content(ddp=False, plain=False):
    options = {} if plain else {"add_linear": True, "add_pos_embedding": True}
    state = seeded(lambda: TransformerMapperSplit(width=16, **options)).state_dict()
    return {"mapper_state_dict": prefixed(state, "module.") if ddp else state, "opts": {"mapper_type": "x"}}


def dbaf_contents():
    """DBAF's four files: a bare generator and three parts."""
    first = {"linear_w.weight": torch.ones(4, 4), "linear_w.bias": torch.ones(4), "pos_embedding": torch.ones(14, 1, 4)}
    first |= {f"layers.{level}.transformer.layers.0.0.norm.weight": torch.ones(4) for level in range(3)}
    return {
        "best_model_decoder_finetune.pth": generator(3).state_dict(),
        "best_model_w_disentanglement.pth": first,
        "best_model_attr_block.pth": {f"conv_c{level}.weight": torch.ones(4, level, 1, 1) for level in (1, 2, 3)},
        "best_model_id_mlp.pth": {f"mapper.{level}.model.0.weight": torch.ones(8, 4) for level in range(3)},
    }


def onnx_bytes(payload=b"graph"):
    """The outside of an ONNX model: ir_version 7 and a graph."""
    return b"\x08\x07" + b"\x3a" + bytes([len(payload)]) + payload


def everything(folder):
    """Content of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refuse(match, function, *args, **options):
    """A call that a user's mistake ends, with one line."""
    with pytest.raises(UserError, match=match) as caught:
        function(*args, **options)
    assert "\n" not in str(caught.value)
