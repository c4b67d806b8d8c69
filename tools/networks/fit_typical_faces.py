"""Fit what latents of photographs are like: python tools/networks/fit_typical_faces.py OUT --root FOLDER ...

FOLDER holds aligned photographs of people who do not exist. OUT gets `typical.safetensors`: for each cell of a face of
128 px the mean of its latents, and for each 2 x 2 cells the inverse of the Cholesky factor of their covariance. The
test pictures that ship with the bundle are left out. `faceanon.persona.use` reads it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from faceanon.data.prepared import PreparedFaces
from faceanon.files import save_tensors
from faceanon.persona.use import BLOCK, TYPICAL

ROWS = 64
LEAST = 0.01  # added to every variance: what hardly varies says nothing


def batches(data: PreparedFaces) -> Iterator[Tensor]:
    """Latents `(B, 32, 16, 16)` of all versions of the training pictures, each of which is a row."""
    split = data.split("train")
    for start in range(0, len(split), ROWS):
        rows = range(start, min(start + ROWS, len(split)))
        batch = split[[(row, False) for row in rows]]
        assert batch.latents is not None
        yield batch.latents.float()


def fit(data: PreparedFaces) -> dict[str, Tensor]:
    """Mean `(32, 16, 16)` and whitening `(8, 8, 32, 32)` of the training pictures."""
    count = 0
    total: Tensor | float = 0.0
    for latents in batches(data):
        count += len(latents)
        total = total + latents.double().sum(0)
    assert isinstance(total, Tensor)
    mean = total / count
    channels, height, width = mean.shape
    products = torch.zeros(height // BLOCK, width // BLOCK, channels, channels, dtype=torch.float64)
    for latents in batches(data):
        away = latents.double() - mean
        blocks = away.reshape(len(away), channels, height // BLOCK, BLOCK, width // BLOCK, BLOCK)
        products += torch.einsum("bciujv,bdiujv->ijcd", blocks, blocks)
    covariance = products / (count * BLOCK**2) + LEAST * torch.eye(channels, dtype=torch.float64)
    whitening = torch.linalg.inv(torch.linalg.cholesky(covariance))
    print(f"{count} versions of photographs")
    return {"mean": mean.float(), "whitening": whitening.float()}


def main() -> None:
    """Fit, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the file")
    parser.add_argument("--root", nargs="+", help="folders of photographs; none: those that ship with the bundle")
    parser.add_argument("--cache", default="runs/prepared", help="folder of prepared pictures (runs/prepared)")
    parser.add_argument("--versions", type=int, default=6, help="of each picture (6)")
    options = parser.parse_args()
    data = PreparedFaces(bundle="photo128", root=options.root, cache=options.cache, versions=options.versions)
    data.prepare_data()
    data.setup()
    save_tensors(options.out / TYPICAL, fit(data), half=True, int8=True)


if __name__ == "__main__":
    main()
