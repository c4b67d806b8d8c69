"""Our generator and encoder as files in the public layouts, so that other tools can load them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from faceanon.errors import UserError
from faceanon.files import write_together
from faceanon.networks.e4e import PyramidEncoder
from faceanon.networks.stylegan2 import Generator

GENERATOR_FILE = "generator.pt"
ENCODER_FILE = "encoder.pt"
ENCODER_TYPES = {
    "faceanon.networks.e4e.Encoder4Editing": "Encoder4Editing",
    "faceanon.networks.psp.GradualStyleEncoder": "GradualStyleEncoder",
}


@dataclass(frozen=True)
class Exportable:
    """What the public layouts have room for.

    Args:
        generator: Our `Generator`.
        encoder: Our `Encoder4Editing` or `GradualStyleEncoder`.
        latent_avg: `(L, D)`, added to the encoder's codes.
        source: Where they came from.
    """

    generator: Generator
    encoder: PyramidEncoder
    latent_avg: Tensor
    source: str


def exportable(generator: object, encoder: object, latent_avg: object, source: str) -> Exportable:
    """Check that the networks have public layouts.

    Raises:
        UserError: One has none; the message names it.
    """
    if not isinstance(generator, Generator):
        raise UserError(f"{source} has {_named(generator)} as its generator; only StyleGAN2 has a public layout")
    if not isinstance(encoder, PyramidEncoder) or _class(encoder) not in ENCODER_TYPES:
        raise UserError(f"{source} has {_named(encoder)} as its encoder; only e4e and pSp have a public layout")
    rows = (generator.n_latent, generator.style_dim)
    if not isinstance(latent_avg, Tensor) or latent_avg.shape != rows:
        raise UserError(f"{source} has no latent_avg of shape {rows}, which the public layouts need")
    return Exportable(generator, encoder, latent_avg, source)


def _class(network: object) -> str:
    return f"{type(network).__module__}.{type(network).__qualname__}"


def _named(network: object) -> str:
    if network is None:
        return "nothing"
    return f"a {type(network).__name__}"


def generator_content(parts: Exportable) -> dict[str, Any]:
    """What rosinality's `convert_weight.py` writes: `g_ema`, and `latent_avg` `(D,)`, the mean of our rows."""
    rows = parts.latent_avg
    # The mean of equal rows may differ from them in the last bit.
    if bool((rows == rows[0]).all()):
        average = rows[0]
    else:
        average = rows.mean(0)
    return {"g_ema": dict(parts.generator.state_dict()), "latent_avg": average}


def encoder_content(parts: Exportable) -> dict[str, Any]:
    """What e4e's and pSp's training writes: `state_dict` with `encoder.` and `decoder.`, `latent_avg`, plain `opts`."""
    state = {}
    for name, value in parts.encoder.state_dict().items():
        state[f"encoder.{name}"] = value
    for name, value in parts.generator.state_dict().items():
        state[f"decoder.{name}"] = value
    size = parts.generator.size
    options = {
        "encoder_type": ENCODER_TYPES[_class(parts.encoder)],
        "stylegan_size": size,
        "output_size": size,
        "n_styles": parts.generator.n_latent,
        "input_nc": 3,
        "label_nc": 0,
        "learn_in_w": False,
        "start_from_latent_avg": True,
    }
    if parts.encoder.feature_taps != tuple(parts.encoder.pyramid_taps):
        # Ours alone: no public file has other taps.
        options["feature_taps"] = list(parts.encoder.feature_taps)
    return {"state_dict": state, "latent_avg": parts.latent_avg, "opts": options}


def has_public_widths(parts: Exportable) -> bool:
    """Whether every shape is that of the public networks at this size; tools that build theirs fixed need that."""
    # Without memory or weights: names and shapes are all that is compared.
    with torch.device("meta"):
        pairs: list[tuple[nn.Module, nn.Module]] = [(parts.generator, Generator(parts.generator.size))]
        pairs += [(parts.encoder, type(parts.encoder)(stylegan_size=parts.generator.size))]
    return all(_shapes(own.state_dict()) == _shapes(public.state_dict()) for own, public in pairs)


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in state.items()}


def write_public(parts: Exportable, folder: Path, overwrite: bool = False) -> list[Path]:
    """Write `generator.pt` and `encoder.pt`, which load with `weights_only=True`.

    Args:
        parts: From `exportable`, or `models.read_exportable`.
        folder: Where; made if missing.
        overwrite: Replace files that exist.

    Returns:
        The files.

    Raises:
        UserError: A file exists, or cannot be written; then all of them are as they were.
    """
    contents = {folder / GENERATOR_FILE: generator_content(parts), folder / ENCODER_FILE: encoder_content(parts)}
    for path in contents:
        if path.exists() and not overwrite:
            raise UserError(f"{path} exists; give --overwrite to replace it")
    # Encoded one after the other: both at once would take twice the memory.
    write_together((path, _encoded(content)) for path, content in contents.items())
    return list(contents)


def _encoded(content: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(_on_cpu(content), buffer)
    return buffer.getvalue()


def _on_cpu(content: Any) -> Any:  # noqa: ANN401 - a tree of plain containers
    """The same tree with each tensor on the CPU, holding its own numbers and nothing else."""
    if isinstance(content, dict):
        return {name: _on_cpu(value) for name, value in content.items()}
    if isinstance(content, Tensor):
        # torch.save would write all of a memory that several tensors share.
        return content.detach().cpu().contiguous().clone()
    return content
