"""A folder of faces that a bundle's generator draws, to train on: iFADIT's FFHQ* is one of 70,000 from StyleGAN2.

Every picture has a random z and random noise maps of its own, from the seed and its number alone. So a set does not
depend on the batch, and an interrupted one goes on. The paper names no truncation; there is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from faceanon.errors import UserError
from faceanon.files import whole_file, write_atomic
from faceanon.metrics.saved import to_bytes
from faceanon.networks.stylegan2 import Generator
from faceanon.weights.bundle import Bundle
from faceanon.weights.pairing import generator_fingerprint

RECORD = "drawn.json"


def sample(bundle: Bundle, folder: Path, count: int, seed: int, batch: int, device: torch.device) -> Iterator[int]:
    """Draw 000000.png, 000001.png, ... of the generator's side; those that are there already stay.

    Args:
        bundle: Has the generator.
        folder: Where they are written, with drawn.json, which says whose they are.
        count: Number of pictures.
        seed: Of all of them.
        batch: Pictures at once.
        device: Where they are drawn.

    Yields:
        How many are there, from before the first batch on.

    Raises:
        UserError: A number is too small; the folder has pictures of another generator or seed; the bundle has no
            generator; the folder cannot be written.
    """
    for name, value, least in (("count", count, 1), ("seed", seed, 0), ("batch", batch, 1)):
        if value < least:
            raise UserError(f"{name} is {value}; give a whole number from {least}")
    bundle.require("generator")
    bundle.device = device
    generator = bundle.generator().eval().to(device)
    _claim(folder, {"generator": generator_fingerprint(generator.state_dict()), "seed": seed})
    missing = []
    for number in range(count):
        if not _place(folder, number).is_file():
            missing.append(number)
    yield count - len(missing)
    for start in range(0, len(missing), batch):
        numbers = missing[start : start + batch]
        pictures = to_bytes(_drawn(generator, numbers, seed, device).cpu()).numpy()
        for number, pixels in zip(numbers, pictures, strict=True):
            with whole_file(_place(folder, number)) as file:
                Image.fromarray(pixels).save(file, "PNG")
        yield count - len(missing) + start + len(numbers)


def _claim(folder: Path, made: dict[str, Any]) -> None:
    """Say of a new folder whose pictures it has, or refuse one of others."""
    record = folder / RECORD
    if record.is_file():
        # As text: a damaged record is another one.
        if record.read_bytes() != json.dumps(made).encode():
            raise UserError(f"{folder} has pictures of another generator or seed, see {RECORD}; give another folder")
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} has other files; give a new or an empty folder")
    else:
        write_atomic(record, json.dumps(made).encode())


def _place(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.png"


@torch.no_grad()
def _drawn(generator: Generator, numbers: list[int], seed: int, device: torch.device) -> Tensor:
    """`(B, 3, S, S)` of the numbers."""
    codes = []
    maps: list[list[Tensor]] = [[] for _ in generator.noise_sides]
    for number in numbers:
        random = np.random.default_rng([seed, number])
        codes.append(_normal(random, generator.style_dim))
        for layer, side in zip(maps, generator.noise_sides, strict=True):
            layer.append(_normal(random, 1, side, side))
    noise = [torch.stack(layer).to(device) for layer in maps]
    return generator.synthesis(generator.mapping(torch.stack(codes).to(device)), noise)


def _normal(random: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(random.standard_normal(shape, dtype=np.float32))
