"""What is this file? Public checkpoints, recognised from their keys and options, never from their names.

Files are read with `weights_only=True`; nothing in them is executed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from faceanon.errors import UserError
from faceanon.files import load_tensors, sha256
from faceanon.interop.public.packs import Pack, is_pack, read_pack
from faceanon.interop.public.unpickle import read_torch
from faceanon.networks.lpips_net import backbone_weights
from faceanon.weights.layouts import ENCODER_MARKS, ENCODERS, FACENET_SETS, LAYOUTS, Init, Layout, State

GENERATOR, DISCRIMINATOR = LAYOUTS[:2]
_PARTS = ("g_ema", "g", "d")  # of a StyleGAN2 checkpoint
_WRAPPERS = ("state_dict", "mapper_state_dict")
_CLASSIFIER = ("logits.weight", "logits.bias")


@dataclass(frozen=True)
class Found:
    """One network in a file.

    Args:
        layout: What it is.
        init: Constructor arguments of `layout.network`.
        tensors: State dict in the public layout, without a `module.` prefix.
        name: Name for logs and results.
        notes: What had to be decided or dropped, for people.
        latent_avg: `(D,)` or `(L, D)` average code that travels with it, or None.
        start_from_latent_avg: Encoders: whether codes are offsets from that average.
        bare: The whole file was this state dict, without anything around it.
    """

    layout: Layout
    init: Init
    tensors: dict[str, Tensor]
    name: str
    notes: tuple[str, ...] = ()
    latent_avg: Tensor | None = None
    start_from_latent_avg: bool = True
    bare: bool = False

    @property
    def size(self) -> int | None:
        """Side in px of the pictures that the generator draws, where that is part of the network."""
        size: int | None = self.init.get("size", self.init.get("stylegan_size"))
        return size


@dataclass(frozen=True)
class PublicFile:
    """A file and what is in it.

    Args:
        path: Where it lies.
        sha256: Of the file; of the listing of names and hashes for a folder.
        keys: Its top-level keys.
        opts: Its options as plain values.
        found: The networks in it.
        pack: InsightFace's networks in it, or None.
    """

    path: Path
    sha256: str
    keys: tuple[str, ...]
    opts: dict[str, Any] = field(default_factory=dict)
    found: tuple[Found, ...] = ()
    pack: Pack | None = None


def read_public(path: Path, encoder_type: str | None = None) -> PublicFile:
    """Read a file and name what is in it.

    Args:
        path: A checkpoint (.pt, .pth, .pth.tar, .safetensors), an NVIDIA .pkl, or InsightFace's pack (folder, .zip or
            .onnx).
        encoder_type: `Encoder4Editing` or `GradualStyleEncoder`, for an encoder whose file does not say.

    Raises:
        UserError: Missing, damaged, unsafe, or nothing that has a name; the message says what was seen.
    """
    if not path.exists():
        raise UserError(f"no such file: {path}; give the path of a checkpoint you have")
    if is_pack(path):
        pack = read_pack(path)
        return PublicFile(path, pack.sha256, tuple(pack.files), pack=pack)
    content = _load(path)
    # e4e and pSp save `opts`; rosinality's StyleGAN2 saves `args`.
    opts = _plain(content.get("opts", content.get("args")))
    if encoder_type is not None:
        opts["encoder_type"] = encoder_type
    networks = _networks(content, opts, path)
    return PublicFile(path, sha256(path), tuple(map(str, content)), opts, tuple(networks))


def _load(path: Path) -> dict[str, Any]:
    """The file as a dict."""
    if path.suffix == ".safetensors":
        return dict(load_tensors(path))
    if path.suffix in (".pkl", ".pickle"):
        from faceanon.interop.public.nvidia import read_nvidia_pickle

        names = {"G_ema": "g_ema", "G": "g", "D": "d"}
        states = {}
        for part, state in read_nvidia_pickle(path).items():
            if part in names:
                states[names[part]] = state
        return states
    content = read_torch(path)
    if not isinstance(content, Mapping):
        raise UserError(f"{path} holds a {type(content).__name__}, not a dict of tensors; save its state_dict instead")
    return dict(content)


def _plain(opts: object) -> dict[str, Any]:
    """Options that are plain values, or lists of whole numbers."""
    if isinstance(opts, argparse.Namespace):
        opts = vars(opts)
    if not isinstance(opts, Mapping):
        return {}
    plain = {}
    for name, value in opts.items():
        numbers = isinstance(value, list) and all(isinstance(item, int) for item in value)
        if numbers or isinstance(value, str | int | float | bool | None):
            plain[str(name)] = value
    return plain


def _tensors(value: object) -> dict[str, Tensor] | None:
    """A state dict without `module.` prefixes, or None if `value` is none."""
    if not isinstance(value, Mapping) or not value:
        return None
    if not all(isinstance(name, str) and isinstance(item, Tensor) for name, item in value.items()):
        return None
    # The prefix of torch's DataParallel, which every key has or none.
    wrapped = all(name.startswith("module.") for name in value)
    state = {}
    for name, item in value.items():
        state[name.removeprefix("module.") if wrapped else name] = item.detach()
    return state


def _networks(content: dict[str, Any], opts: dict[str, Any], path: Path) -> list[Found]:
    average = content.get("latent_avg")
    if isinstance(average, Tensor):
        average = average.detach().float()
    else:
        average = None
    # StyleGAN2 trainings save several networks in one file; all others wrap one.
    if any(_tensors(content.get(part)) for part in _PARTS):
        return _stylegan2(content, average, path)
    for wrapper in _WRAPPERS:
        if (state := _tensors(content.get(wrapper))) is not None:
            return _state(state, opts, average, path)
    bare = _tensors(content)
    if bare is None:
        raise UserError(_unnamed(path, list(content)))
    networks = []
    for network in _state(bare, opts, average, path):
        networks.append(replace(network, bare=True))
    return networks


def _stylegan2(content: dict[str, Any], average: Tensor | None, path: Path) -> list[Found]:
    """Generator (its moving average where there is one) and discriminator."""
    states = {}
    for part in _PARTS:
        states[part] = _tensors(content.get(part))
    generator = states["g_ema"] or states["g"]
    discriminator = states["d"]
    parts = []
    if generator is not None:
        # Our reader of NVIDIA's files puts the average beside the weights, where strict loading would refuse it.
        if average is None and "latent_avg" in generator:
            average = generator.pop("latent_avg").float()
        note: tuple[str, ...] = ()
        if not states["g_ema"]:
            note = ("no g_ema in the file: took g, the generator without its moving average",)
        parts.append(replace(_named(GENERATOR, generator, path), latent_avg=average, notes=note))
    if discriminator is not None:
        parts.append(_named(DISCRIMINATOR, discriminator, path))
    return parts


def _state(state: dict[str, Tensor], opts: dict[str, Any], average: Tensor | None, path: Path) -> list[Found]:
    """What a state dict holds."""
    encoder = {}
    decoder = {}
    for name, item in state.items():
        if name.startswith("encoder."):
            encoder[name.removeprefix("encoder.")] = item
        elif name.startswith("decoder."):
            decoder[name.removeprefix("decoder.")] = item
    # Trainings of e4e and pSp save encoder and decoder under these prefixes; a bare encoder has none.
    if encoder or all(mark in state for mark in ENCODER_MARKS):
        networks = [_encoder(encoder or state, opts, average, path)]
        if decoder:
            return [*networks, replace(_named(GENERATOR, decoder, path), latent_avg=average)]
        return networks
    # AdaFace's training saves the recogniser beside the head of its loss.
    if "model.input_layer.0.weight" in state:
        state = {name.removeprefix("model."): item for name, item in state.items() if name.startswith("model.")}
    for layout in LAYOUTS:
        if all(mark in state for mark in layout.marks):
            if layout.kind == "facenet":
                return [_facenet(layout, state, path)]
            named = _named(layout, state, path)
            return [_backbone(named) if layout.role == "perceptual" else named]
    raise UserError(_unnamed(path, list(state)))


def _encoder(state: State, opts: dict[str, Any], average: Tensor | None, path: Path) -> Found:
    kind = opts.get("encoder_type")
    if kind is None:
        raise UserError(
            f"{path} is an e4e or a pSp encoder: their keys are the same and its opts have no encoder_type; "
            f"say which with --encoder-type {' or '.join(ENCODERS)}"
        )
    if kind not in ENCODERS:
        raise UserError(f"{path} has an encoder of type {kind!r}; faceanon knows {' and '.join(ENCODERS)}")
    network = _named(ENCODERS[kind], state, path)
    if network.init["input_nc"] != 3:
        raise UserError(
            f"{path} encodes pictures of {network.init['input_nc']} channels (sketches or labels), not faces"
        )
    # From our own export.
    if isinstance(opts.get("feature_taps"), list):
        network = replace(network, init={**network.init, "feature_taps": opts["feature_taps"]})
    # Where the options are silent, the defaults of the two trainings: on for e4e, off for pSp.
    offset = bool(opts.get("start_from_latent_avg", kind == "Encoder4Editing"))
    return replace(network, latent_avg=average, start_from_latent_avg=offset)


def _backbone(found: Found) -> Found:
    """A classifier of ImageNet without its head, which LPIPS does not use."""
    kept = backbone_weights(found.tensors)
    notes: tuple[str, ...] = ()
    if len(kept) < len(found.tensors):
        notes = ("classifier dropped",)
    return replace(found, tensors=kept, notes=notes)


def _facenet(layout: Layout, state: State, path: Path) -> Found:
    """FaceNet without its classifier, whose size tells the training set."""
    logits = state.get("logits.weight")
    kept = {}
    for name, item in state.items():
        if name not in _CLASSIFIER:
            kept[name] = item
    network = _named(layout, kept, path)
    if logits is None:
        return replace(network, notes=("no classifier in the file, so its training set is unknown",))
    classes = logits.shape[0]
    known = FACENET_SETS.get(classes)
    notes = (f"classifier of {classes} persons dropped" + (f": trained on {known}" if known else ""),)
    return replace(network, name=f"facenet_{known or classes}", notes=notes)


def _named(layout: Layout, state: State, path: Path) -> Found:
    if missing := [mark for mark in layout.marks if mark not in state]:
        raise UserError(_unnamed(path, list(state), f"looked like a {layout.title} without {missing[0]}"))
    try:
        init = layout.sizes(state)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(f"{path} looks like a {layout.title}, but is incomplete: {error}; get it again") from error
    return Found(layout, init, dict(state), _name(layout, init))


def _name(layout: Layout, init: Init) -> str:
    """The network's name, by which protocols ask for a recogniser: `ir_se50`, after its number of layers."""
    names = {"ir_se_recogniser": "ir_se", "adaface": "adaface_ir"}
    if layout.kind in names:
        # A unit has two convolutions; the input layer and the output layer are one each.
        return f"{names[layout.kind]}{2 * sum(init['units']) + 2}"
    return layout.kind


def _unnamed(path: Path, keys: list[Any], but: str = "") -> str:
    seen = ", ".join(str(key) for key in keys[:4]) + (f", ... ({len(keys)} keys)" if len(keys) > 4 else "")
    known = ", ".join(layout.title for layout in (*LAYOUTS, *ENCODERS.values()))
    return f"{path}: cannot name it; its keys are {seen or 'none'}{f'; {but}' if but else ''}; known are: {known}"
