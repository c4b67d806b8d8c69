"""NVIDIA's StyleGAN2 pickles, tiny and untrained, as its TensorFlow and PyTorch programs would write them.

Pickles name the writer's modules, so stand-ins of these are importable while a file is written. The stand-ins do on
loading what NVIDIA's own do: run the source text in the file. Tests use that to prove that a payload would work.
"""

import contextlib
import pickle
import sys
import types
from unittest import mock

import numpy as np
import torch

CHANNELS = {4: 6, 8: 5, 16: 4}
BUFFERS = ("noise_const", "resample_filter", "w_avg")


class EasyDict(dict):
    """dnnlib's dictionary."""


class Network:
    """dnnlib's TensorFlow network."""

    def __init__(self, name, variables, components=(), source="pass", **static_kwargs):
        self.state = {"version": 4, "name": name, "static_kwargs": EasyDict(static_kwargs)}
        self.state |= {"components": EasyDict(components), "build_module_src": source, "build_func_name": "G_main"}
        self.state["variables"] = list(variables.items())

    def __getstate__(self):
        return self.state

    def __setstate__(self, state):
        exec(state["build_module_src"], {})


def _reconstruct_persistent_obj(meta):
    exec(meta["module_src"], {})
    return meta


class Persistent:
    """A module of stylegan2-ada-pytorch."""

    def __init__(self, name, state, source="pass"):
        self.meta = {"type": "class", "version": 6, "module_src": source, "class_name": name, "state": state}

    def __reduce__(self):
        return _reconstruct_persistent_obj, (self.meta,), None


@contextlib.contextmanager
def nvidia_modules():
    """Make the names in NVIDIA's pickles importable."""
    homes = {EasyDict: "dnnlib.util", Network: "dnnlib.tflib.network"}
    homes[_reconstruct_persistent_obj] = "torch_utils.persistence"
    fakes = {name: types.ModuleType(name) for name in ("dnnlib", "dnnlib.tflib", "torch_utils", *homes.values())}
    with mock.patch.dict(sys.modules, fakes), contextlib.ExitStack() as stack:
        for thing, home in homes.items():
            setattr(fakes[home], thing.__name__, thing)
            stack.enter_context(mock.patch.object(thing, "__module__", home))
        yield


def write(path, content, protocol=4):
    """Pickle `content` as NVIDIA's programs do."""
    with nvidia_modules():
        path.write_bytes(pickle.dumps(content, protocol))
    return path


def kernel(device="cpu"):
    """Blur kernel of sum 1."""
    taps = torch.tensor([1.0, 3.0, 3.0, 1.0], device=device)
    return torch.outer(taps, taps) / 64


def generator(channels=None, dim=8, depth=2, device="cpu", seed=0):
    """Parameters and buffers of stylegan2-ada-pytorch's generator."""
    channels = channels or CHANNELS
    make = _maker(device, seed)
    tensors = {"mapping.w_avg": make(dim), "synthesis.b4.const": make(channels[4], 4, 4)}
    for index in range(depth):
        tensors[f"mapping.fc{index}.weight"] = 100 * make(dim, dim)
        tensors[f"mapping.fc{index}.bias"] = 10 * make(dim)
    for side, width in channels.items():
        block = f"synthesis.b{side}"
        tensors[f"{block}.resample_filter"] = kernel(device)
        for layer in ("conv0", "conv1", "torgb"):
            if layer == "conv0" and side == 4:
                continue
            before = channels[side // 2] if layer == "conv0" else width
            after, taps = (3, 1) if layer == "torgb" else (width, 3)
            tensors[f"{block}.{layer}.weight"] = make(after, before, taps, taps)
            tensors[f"{block}.{layer}.bias"] = make(after)
            tensors[f"{block}.{layer}.affine.weight"] = make(before, dim)
            tensors[f"{block}.{layer}.affine.bias"] = 1 + 0.1 * make(before)
            if layer != "torgb":
                tensors[f"{block}.{layer}.noise_const"] = make(side, side)
                tensors[f"{block}.{layer}.noise_strength"] = make()
                tensors[f"{block}.{layer}.resample_filter"] = kernel(device)
    return tensors


def discriminator(channels=None, device="cpu", seed=1):
    """Parameters and buffers of stylegan2-ada-pytorch's discriminator."""
    channels = channels or CHANNELS
    make, size, last = _maker(device, seed), max(channels), channels[4]
    tensors = {f"b{size}.fromrgb.weight": make(channels[size], 3, 1, 1), f"b{size}.fromrgb.bias": make(channels[size])}
    tensors[f"b{size}.fromrgb.resample_filter"] = kernel(device)
    for side, width in channels.items():
        if side == 4:
            continue
        after = channels[side // 2]
        shapes = {"conv0": (width, width, 3, 3), "conv1": (after, width, 3, 3), "skip": (after, width, 1, 1)}
        tensors[f"b{side}.resample_filter"] = kernel(device)
        for layer, shape in shapes.items():
            tensors[f"b{side}.{layer}.weight"] = make(*shape)
            tensors[f"b{side}.{layer}.resample_filter"] = kernel(device)
            if layer != "skip":
                tensors[f"b{side}.{layer}.bias"] = make(shape[0])
    shapes = {"conv": (last, last + 1, 3, 3), "fc": (last, last * 16), "out": (1, last)}
    for layer, shape in shapes.items():
        tensors |= {f"b4.{layer}.weight": make(*shape), f"b4.{layer}.bias": make(shape[0])}
    return tensors | {"b4.conv.resample_filter": kernel(device)}


def _maker(device, seed):
    source = torch.Generator().manual_seed(seed)

    def make(*shape):
        return torch.empty(shape, device="meta") if device == "meta" else torch.randn(shape, generator=source)

    return make


def module(tensors, name="Generator", source="pass", mapping_rate=0.01, **extra):
    """A tree of modules with these tensors."""
    state = {"training": False, "_parameters": {}, "_buffers": {}, "_modules": {}, "_init_kwargs": EasyDict(), **extra}
    inner = {}
    for key, value in tensors.items():
        head, _, rest = key.partition(".")
        if rest:
            inner.setdefault(head, {})[rest] = value
        elif head in BUFFERS:
            state["_buffers"][head] = value
        else:
            state["_parameters"][head] = torch.nn.Parameter(value)
    for head, below in inner.items():
        gains = {"bias_gain": mapping_rate, "weight_gain": np.float64(0.5)} if head.startswith("fc") else {}
        state["_modules"][head] = module(below, head, source, mapping_rate, **gains)
    return Persistent(name, state, source)


def tf_generator(tensors, source="pass", **static_kwargs):
    """The same generator as TensorFlow keeps it."""
    mapping, synthesis = {}, {}
    for key, value in tensors.items():
        room, *parts = key.split(".")
        if "resample_filter" in parts or parts == ["w_avg"]:
            continue
        if room == "mapping":
            mapping[f"Dense{parts[0][2:]}/{parts[1]}"] = _tf_layout(value)
        elif parts[1] == "const":
            synthesis["4x4/Const/const"] = value[None].numpy()
        elif parts[2] == "noise_const":
            index = 2 * int(np.log2(len(value))) - (5 if parts[1] == "conv0" else 4)
            synthesis[f"noise{max(index, 0)}"] = value[None, None].numpy()
        else:
            name, array = _tf_conv(int(parts[0][1:]), parts[1], ".".join(parts[2:]), value)
            synthesis[name] = array
    components = {"mapping": Network("G_mapping", mapping), "synthesis": Network("G_synthesis", synthesis)}
    own = {"lod": np.float32(0), "dlatent_avg": tensors["mapping.w_avg"].numpy()}
    return Network("G_main", own, components, source, **static_kwargs)


def _tf_conv(side, layer, part, value):
    names = {"conv0": "Conv0_up", "conv1": "Conv" if side == 4 else "Conv1", "torgb": "ToRGB"}
    leaf = {"affine.weight": "mod_weight", "affine.bias": "mod_bias"}.get(part, part)
    if part == "affine.bias":
        value = value - 1
    if part == "weight" and layer == "conv0":
        value = value.flip(2, 3)
    array = np.float32(value) if value.ndim == 0 else _tf_layout(value)
    return f"{side}x{side}/{names[layer]}/{leaf}", array


def tf_discriminator(tensors, **static_kwargs):
    """The same discriminator as TensorFlow keeps it."""
    names = {"fromrgb": "FromRGB", "conv0": "Conv0", "conv1": "Conv1_down", "skip": "Skip", "conv": "Conv"}
    names["fc"] = "Dense0"
    variables = {"lod": np.float32(0)}
    for key, value in tensors.items():
        block, layer, part = [*key.split("."), ""][:3]
        if part in ("weight", "bias"):
            home = "Output" if layer == "out" else f"{block[1:]}x{block[1:]}/{names[layer]}"
            variables[f"{home}/{part}"] = _tf_layout(value)
    return Network("D", variables, **static_kwargs)


def _tf_layout(value):
    order = {4: (2, 3, 1, 0), 2: (1, 0)}.get(value.ndim)
    return (value.permute(order) if order else value).contiguous().numpy()
