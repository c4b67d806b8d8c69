"""From a network found in a public file to complete tensors of ours."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from faceanon.errors import UserError
from faceanon.files import load_strictly
from faceanon.interop.public.reading import Found
from faceanon.networks.stylegan2 import Generator
from faceanon.weights.bundle import network_class

AVERAGE_DRAWS = 10_000
_NOISE = re.compile(r"noises\.noise_\d+")
_KERNEL = re.compile(r"(.*\.)?kernel")
_COUNTER = re.compile(r".*\.num_batches_tracked")


@dataclass(frozen=True)
class Converted:
    """A network that loads strictly.

    Args:
        tensors: Its whole state dict, float32.
        notes: What was added that the file did not have.
        net: The network itself with these weights, None where we have no class for it.
    """

    tensors: dict[str, Tensor]
    notes: tuple[str, ...]
    net: nn.Module | None


def convert(found: Found, source: str) -> Converted:
    """Complete what public files may lack (noise maps, blur kernels, batch counters), then load strictly.

    Noise maps are drawn from a fixed seed, so that the same file gives the same pictures everywhere.

    Raises:
        UserError: Anything else is missing or too much, or weights are not finite.
    """
    tensors = {}
    for name, value in found.tensors.items():
        tensors[name] = _float32(value)
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            raise UserError(f"{source}: {name} has values that are not finite; get the file again")
    if found.layout.network is None:
        return Converted(tensors, (), None)
    try:
        net = network_class(found.layout.network)(**found.init)
    except ValueError as error:
        raise UserError(f"{source}: a {found.layout.title} whose sizes do not fit together: {error}") from error
    own = net.state_dict()
    # Only what needs no training may be missing. `load_strictly` below refuses all else.
    missing = sorted(own.keys() - tensors.keys())
    noise = list(filter(_NOISE.fullmatch, missing))
    kernels = list(filter(_KERNEL.fullmatch, missing))
    counters = list(filter(_COUNTER.fullmatch, missing))
    for name in (*kernels, *counters):
        tensors[name] = own[name]
    for name in noise:
        tensors[name] = _noise(name, own[name])
    load_strictly(net, tensors, source)
    named = (
        (noise, "noise maps drawn from a fixed seed"),
        (kernels, "blur kernels computed"),
        (counters, "batch counters set to 0"),
    )
    lines = []
    for names, what in named:
        if names:
            lines.append(f"{len(names)} {what} (the file has none)")
    notes = tuple(lines)
    return Converted(tensors, notes, net.eval())


def _float32(value: Tensor) -> Tensor:
    if value.is_floating_point():
        return value.to(torch.float32)
    return value


def _noise(name: str, like: Tensor) -> Tensor:
    # The name seeds each map, so that a second import gives the same file.
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))


def average_rows(average: Tensor, rows: int, source: str) -> Tensor:
    """An average code as `(rows, D)`, from `(D,)`, `(1, D)` or `(rows, D)`.

    Raises:
        UserError: Another shape.
    """
    # A number without an axis would make `shape[-1]` raise; it is refused below.
    if average.ndim:
        flat = average.detach().float().reshape(-1, average.shape[-1])
    else:
        flat = average
    if flat.ndim == 2 and flat.shape[0] in (1, rows):
        return flat.expand(rows, -1).contiguous()
    raise UserError(f"{source}: latent_avg is {tuple(average.shape)}; expected (D,) or ({rows}, D)")


def estimated_average(generator: Generator) -> Tensor:
    """The mean w of random z, as `(L, D)`; the same for the same generator."""
    mean = generator.mean_latent(AVERAGE_DRAWS, torch.Generator().manual_seed(0))
    return mean.expand(generator.n_latent, -1).contiguous()
