"""Which encoder belongs to which generator: told by a fingerprint of the generator's weights."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from faceanon.errors import UserError

_BUFFERS = re.compile(r"noises\.noise_\d+|.*\.kernel|kernel")


def generator_fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Hash of a generator's learnt weights.

    Noise maps and blur kernels do not count: copies of one generator come with and without them. Half precision and
    float32 of the same numbers give the same hash.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if _BUFFERS.fullmatch(name) is None:
            value = tensors[name].detach().to("cpu", torch.float32).contiguous()
            digest.update(f"{name} {tuple(value.shape)}\n".encode())
            digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def short(fingerprint: str) -> str:
    """The part of a fingerprint that people compare."""
    return fingerprint[:12]


def check_pair(encoder: Mapping[str, Any], generator: Mapping[str, Any]) -> None:
    """Compare two entries of a bundle.yaml.

    Raises:
        UserError: The encoder was trained with another generator; the message names both.
    """
    wanted = encoder.get("generator")
    fingerprint = generator.get("fingerprint")
    if wanted is None or fingerprint is None or wanted == fingerprint:
        return
    raise UserError(
        f"{origin(encoder)} was trained with generator {short(wanted)}, but {origin(generator)} is generator "
        f"{short(fingerprint)}: codes of the one mean nothing to the other; import them into separate bundles"
    )


def origin(entry: Mapping[str, Any]) -> str:
    """What to call an entry: the file it came from, and its name."""
    file = entry.get("source", {}).get("file", entry.get("file", "?"))
    return f"{file} ({entry.get('name', 'unnamed')})"
