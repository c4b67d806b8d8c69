"""NVIDIA's StyleGAN2 checkpoints (`.pkl`) in the layout of our networks.

TensorFlow's names and shapes are first turned into those of stylegan2-ada-pytorch, which then become ours:

- TensorFlow keeps convolutions as (kH, kW, I, O), dense layers as (I, O), and adds 1 to the style's bias when it runs.
- It flips the kernel of an up-sampling convolution when it runs; stylegan2-ada-pytorch and we keep it flipped.
- Equalised learning rates scale at run time in all three, so weights are taken over as they are.
- Blur kernels are stored with sum 1; ours contain the gain of the up-sampling, 4.

What some of NVIDIA's files do besides, clamping activations at 256 for half precision, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from faceanon.errors import UserError
from faceanon.interop.public.unpickle import Array, Record, TensorFlowNetwork, read_pickle
from faceanon.networks.stylegan2 import Discriminator, Generator

ROLES = ("G", "D", "G_ema")
MAPPING_RATE = 0.01

_TF_CONV = re.compile(r"(?:synthesis/)?(\d{1,4})x\1/(\w+)/(\w+)")
_TF_DENSE = re.compile(r"mapping/Dense(\d{1,2})/(weight|bias)")
_TF_NOISE = re.compile(r"synthesis/noise(\d{1,2})")
_TF_LAYERS = {
    "Conv0_up": "conv0", "Conv0": "conv0", "Conv1": "conv1", "Conv1_down": "conv1", "Conv": "conv1", "ToRGB": "torgb",
    "FromRGB": "fromrgb", "Skip": "skip", "Dense0": "fc",
}  # fmt: skip
_TF_PARTS = {"mod_weight": "affine.weight", "mod_bias": "affine.bias"}
_CONV = re.compile(r"synthesis\.b(\d{1,4})\.(conv0|conv1|torgb)\.([\w.]+)")
_CONV_PARTS = {
    "weight": "conv.weight", "bias": "activate.bias", "noise_strength": "noise.weight",
    "affine.weight": "conv.modulation.weight", "affine.bias": "conv.modulation.bias",
}  # fmt: skip
_BLOCK = re.compile(r"b(\d{1,4})\.(fromrgb|conv0|conv1|skip|conv|fc|out)\.(weight|bias|resample_filter)")


def read_nvidia_pickle(path: Path) -> dict[str, dict[str, Tensor]]:
    """Read a `.pkl` of StyleGAN2 or stylegan2-ada; no code of the file is run.

    Args:
        path: The file, from the TensorFlow or the PyTorch version.

    Returns:
        State dicts of our `Generator` under "G" (in training) and "G_ema" (its running average), of our
        `Discriminator` under "D": what the file holds of them. A generator's has the mean w, `(D,)`, as `latent_avg`
        besides; take it out before loading strictly. Tensors are float32.

    Raises:
        UserError: The file is damaged or hostile, or its networks are of another kind.
    """
    records = _networks(read_pickle(path), path)
    try:
        states = {}
        for role, record in records.items():
            states[role] = _convert(role, record, f"{path} ({role})")
        return states
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).split("\n", 1)[0][:200]
        raise UserError(
            f"{path} is no StyleGAN2 of NVIDIA's ({reason}); get the file from its authors again"
        ) from error


def _networks(content: Any, path: Path) -> dict[str, Record]:  # noqa: ANN401 - whatever the file holds
    if isinstance(content, TensorFlowNetwork):
        return {"G_ema": content}
    # TensorFlow's files are a tuple without names: G, D and the running average of G.
    if isinstance(content, tuple | list) and len(content) == len(ROLES):
        content = dict(zip(ROLES, content, strict=True))
    records: dict[str, Record] = {}
    if isinstance(content, dict):
        for role in ROLES:
            if isinstance(content.get(role), Record):
                records[role] = content[role]
    if not records:
        raise UserError(f"{path} holds no StyleGAN2 networks (G, D, G_ema); is it the right file?")
    return records


def _convert(role: str, record: Record, source: str) -> dict[str, Tensor]:
    if isinstance(record, TensorFlowNetwork):
        tensors = _from_tensorflow(dict(_tf_variables(record)), record.state.get("static_kwargs", {}), source)
        rate = record.state.get("static_kwargs", {}).get("mapping_lrmul", MAPPING_RATE)
    else:
        modules = dict(_modules(record))
        tensors = dict(_tensors(modules))
        if "mapping.fc0" in modules:
            rate = modules["mapping.fc0"].state.get("bias_gain", MAPPING_RATE)
        else:
            rate = MAPPING_RATE
    if role == "D":
        return discriminator_state(tensors, source)
    # Our layers scale by a fixed rate: under another one the same weights draw other faces.
    if abs(float(rate) - MAPPING_RATE) > 1e-9:
        raise UserError(f"{source}: its mapping network learns at {rate} times the rate, ours at {MAPPING_RATE}")
    return generator_state(tensors, source)


def _modules(record: Record) -> Iterator[tuple[str, Record]]:
    """Every module under its dotted name, each once."""
    waiting = [("", record)]
    seen = set()
    while waiting:
        name, module = waiting.pop()
        # A hostile file can make a module contain itself.
        if id(module) in seen or not isinstance(module, Record):
            continue
        seen.add(id(module))
        yield name, module
        children = module.state.get("_modules") or {}
        for child, item in children.items():
            waiting.append((f"{name}.{child}" if name else str(child), item))


def _tensors(modules: Mapping[str, Record]) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers under their dotted names."""
    for name, module in modules.items():
        for kind in ("_parameters", "_buffers"):
            for leaf, value in (module.state.get(kind) or {}).items():
                if isinstance(value, Tensor):
                    yield f"{name}.{leaf}" if name else str(leaf), value.detach().float()


def _tf_variables(record: Record) -> Iterator[tuple[str, Tensor]]:
    """Variables of a network and of its components, under the components' names and slashes."""
    waiting = [("", record)]
    seen = set()
    while waiting:
        prefix, network = waiting.pop()
        if id(network) in seen or not isinstance(network, Record):
            continue
        seen.add(id(network))
        for name, value in network.state.get("variables") or []:
            array = value.value if isinstance(value, Array) else value
            # Components are named G_mapping and G_synthesis there.
            yield f"{prefix}{name}".replace("G_", "", 1), torch.tensor(array, dtype=torch.float32)
        for name, item in (network.state.get("components") or {}).items():
            waiting.append((f"{prefix}{name}/", item))


def _from_tensorflow(variables: Mapping[str, Tensor], settings: Mapping[str, Any], source: str) -> dict[str, Tensor]:
    """Names and shapes of stylegan2-ada-pytorch for TensorFlow's variables."""
    taps = torch.tensor(settings.get("resample_kernel") or [1, 3, 3, 1], dtype=torch.float32)
    kernel = torch.outer(taps, taps) / taps.sum() ** 2
    tensors = {}
    for name, value in variables.items():
        # The level of detail of progressive growing, which no layer uses.
        if name.split("/")[-1] == "lod":
            continue
        key, tensor = _tf_entry(name, value, source)
        tensors[key] = tensor
        module = key.rpartition(".")[0]
        # TensorFlow's files hold no blur kernels, so those that stylegan2-ada-pytorch stores are added.
        if key.endswith(("conv0.weight", "conv1.weight", "skip.weight")):
            tensors[f"{module}.resample_filter"] = kernel
        if key.endswith("torgb.weight"):
            tensors[f"{module.removesuffix('.torgb')}.resample_filter"] = kernel
    return tensors


def _tf_entry(name: str, value: Tensor, source: str) -> tuple[str, Tensor]:
    if name == "dlatent_avg":
        return "mapping.w_avg", value
    if name == "synthesis/4x4/Const/const":
        return "synthesis.b4.const", value[0]
    if match := _TF_DENSE.fullmatch(name):
        return f"mapping.fc{match[1]}.{match[2]}", _tf_layout(value) if match[2] == "weight" else value
    if match := _TF_NOISE.fullmatch(name):
        # Map 0 is of the one layer at 4 px, then two follow a resolution: 1 and 2 at 8 px, 3 and 4 at 16 px.
        index = int(match[1])
        return f"synthesis.b{2 ** ((index + 5) // 2)}.conv{int(index % 2 == 0)}.noise_const", value[0, 0]
    if name in ("Output/weight", "Output/bias"):
        return f"b4.out.{name[7:]}", _tf_layout(value) if name == "Output/weight" else value
    match = _TF_CONV.fullmatch(name)
    if match is None or match[2] not in _TF_LAYERS:
        raise _foreign(source, name)
    layer = _TF_LAYERS[match[2]]
    part = _TF_PARTS.get(match[3], match[3])
    # Without this prefix it is a layer of the discriminator, whose layer `Conv` has another name than the generator's.
    if not name.startswith("synthesis/"):
        return f"b{match[1]}.{'conv' if match[2] == 'Conv' else layer}.{part}", _tf_layout(value)
    if part == "affine.bias":
        # TensorFlow's version adds this 1 when it runs; ours has it in the bias.
        value = value + 1
    if match[2] == "Conv0_up" and part == "weight":
        # NVIDIA's TensorFlow code turns the kernel round before it is transposed, ours does not.
        value = _flipped(value)
    return f"synthesis.b{match[1]}.{layer}.{part}", _tf_layout(value)


def _tf_layout(value: Tensor) -> Tensor:
    """(kH, kW, I, O) to (O, I, kH, kW), (I, O) to (O, I); others as they are."""
    if value.ndim == 4:
        return value.permute(3, 2, 0, 1)
    if value.ndim == 2:
        return value.t()
    return value


def _flipped(kernel: Tensor) -> Tensor:
    """Both axes of a (kH, kW, I, O) kernel reversed."""
    return kernel.flip((0, 1))


def generator_state(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Our `Generator`'s state dict, and `latent_avg`, from stylegan2-ada-pytorch's parameters and buffers.

    Raises:
        UserError: It is no unconditional generator of the skip architecture.
    """
    state = {}
    for name, value in tensors.items():
        key, tensor = _generator_entry(name, value, source)
        # An empty key marks a blur kernel of a layer that does not enlarge; our layers store none there.
        if key:
            state[key] = tensor.contiguous().clone()
    sides = set()
    for name in tensors:
        if match := _CONV.fullmatch(name):
            sides.add(int(match[1]))
    channels = {}
    for side in sides:
        channels[side] = len(tensors.get(f"synthesis.b{side}.conv1.bias", []))
    depth = 0
    for name in state:
        if name.startswith("style.") and name.endswith(".weight"):
            depth += 1
    average = state.pop("latent_avg", torch.zeros(0))
    _check(state, lambda: Generator(max(sides), average.numel(), depth, channels=channels), source)
    return {**state, "latent_avg": average}


def _generator_entry(name: str, value: Tensor, source: str) -> tuple[str, Tensor]:
    if name == "mapping.w_avg":
        return "latent_avg", value
    if name == "synthesis.b4.const":
        return "input.input", value[None]
    if match := re.fullmatch(r"mapping\.fc(\d{1,2})\.(weight|bias)", name):
        # style.0 is the PixelNorm, which has no weights.
        return f"style.{int(match[1]) + 1}.{match[2]}", value
    if match := re.fullmatch(r"synthesis\.b(\d{1,4})\.resample_filter", name):
        return (f"to_rgbs.{_block(match[1])}.upsample.kernel" if match[1] != "4" else ""), 4 * value
    match = _CONV.fullmatch(name)
    if match is None:
        raise _foreign(source, name)
    block = _block(match[1])
    layer = match[2]
    part = match[3]
    if layer == "torgb":
        return _rgb_entry(f"to_rgbs.{block}" if block >= 0 else "to_rgb1", part, value, source)
    # Two layers a block; the one layer at 4 px gets -1. Noise maps count that layer too, so theirs is one more.
    index = 2 * block + int(layer == "conv1")
    if part == "noise_const":
        return f"noises.noise_{index + 1}", value[None, None]
    target = f"convs.{index}" if block >= 0 else "conv1"
    if part == "resample_filter":
        return (f"{target}.conv.blur.kernel" if layer == "conv0" else ""), 4 * value
    if part not in _CONV_PARTS:
        raise _foreign(source, name)
    # Our modulated convolutions have an axis for the sample in front, and the noise's strength is a vector of one.
    shaped = {"weight": value[None], "noise_strength": value.reshape(-1)}
    return f"{target}.{_CONV_PARTS[part]}", shaped.get(part, value)


def _rgb_entry(target: str, part: str, value: Tensor, source: str) -> tuple[str, Tensor]:
    if part == "bias":
        return f"{target}.bias", value.reshape(1, -1, 1, 1)
    if part not in _CONV_PARTS:
        raise _foreign(source, part)
    if part == "weight":
        value = value[None]
    return f"{target}.{_CONV_PARTS[part]}", value


def _block(side: str) -> int:
    """Index of the block that draws `side` px: 0 at 8 px, -1 at 4 px."""
    return int(side).bit_length() - 4


def discriminator_state(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Our `Discriminator`'s state dict from stylegan2-ada-pytorch's parameters and buffers.

    Raises:
        UserError: It is no unconditional discriminator of the residual architecture.
    """
    sides = []
    for name in tensors:
        if re.match(r"b\d{1,4}\.", name):
            sides.append(int(name[1:].split(".")[0]))
    state = {}
    size = max(sides, default=0)
    for name, value in tensors.items():
        # Layers that keep the resolution carry a kernel that they never use, and so does the block itself.
        if re.fullmatch(r"b\d{1,4}\.(resample_filter|(fromrgb|conv0|conv)\.resample_filter)", name):
            continue
        key = _discriminator_key(name, size)
        if key is None:
            raise _foreign(source, name)
        state[key] = value.contiguous().clone()
    inner = {}
    for side in sides:
        inner[side] = len(tensors.get(f"b{side}.conv0.bias", []))
    channels = inner | {4: len(tensors.get("b4.conv.bias", []))}
    _check(state, lambda: Discriminator(size, channels=channels), source)
    return state


def _discriminator_key(name: str, size: int) -> str | None:
    match = _BLOCK.fullmatch(name)
    if match is None:
        return None
    side = int(match[1])
    layer = match[2]
    part = match[3]
    # convs.0 is the layer from RGB, so the block at full size has number 1.
    block = size.bit_length() - side.bit_length() + 1
    # Places in our sequences: a layer that halves the map begins with its blur, which moves the rest by one.
    slot = {"resample_filter": 0, "weight": int(layer in ("conv1", "skip")), "bias": 1 + int(layer == "conv1")}[part]
    if side == 4:
        dense = {"fc": f"final_linear.0.{part}", "out": f"final_linear.1.{part}", "conv": f"final_conv.{slot}.{part}"}
        return dense.get(layer)
    target = {"conv0": f"convs.{block}.conv1", "conv1": f"convs.{block}.conv2", "skip": f"convs.{block}.skip"}
    if layer == "fromrgb" and side == size:
        return f"convs.0.{slot}.{part}"
    leaf = "kernel" if part == "resample_filter" else part
    if layer in target:
        return f"{target[layer]}.{slot}.{leaf}"
    return None


def _check(state: Mapping[str, Tensor], build: Callable[[], nn.Module], source: str) -> None:
    """Compare names and shapes with a network that is built without memory."""
    with torch.device("meta"):
        net = build()
    wanted = {}
    for key, value in net.state_dict().items():
        wanted[key] = tuple(value.shape)
    given = {}
    for key, value in state.items():
        given[key] = tuple(value.shape)
    differing = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))
    if differing:
        name = differing[0]
        raise UserError(
            f"{source} does not fit {type(net).__name__}: {len(differing)} tensors differ, e.g. {name} is "
            f"{given.get(name, 'missing')} instead of {wanted.get(name, 'absent')}"
        )


def _foreign(source: str, name: str) -> UserError:
    return UserError(
        f"{source} has {name!r}, which plain StyleGAN2 has not; only unconditional networks with skip generators and "
        "residual discriminators fit"
    )
