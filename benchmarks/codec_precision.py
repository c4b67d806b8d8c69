"""What does the codec lose of a photograph, and how much of it to bfloat16?

  python benchmarks/codec_precision.py

The shipped test pictures at 128 px go through the codec and back, in float32 and in bfloat16; the peak is 255, of
pictures rounded to 8 bits as in a file.
"""

from __future__ import annotations

import csv
import math

import numpy as np
import torch
from torch import Tensor

from faceanon.data.files import read_photo
from faceanon.metrics.quality import psnr
from faceanon.networks.codec import LatentCodec
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle

SIDE = 128
BATCH = 8


def test_pictures() -> Tensor:
    """The shipped test pictures, `(48, 3, 128, 128)` in [-1, 1]."""
    folder = checkpoints() / "photo128"
    with (folder / "pictures.csv").open(encoding="utf-8", newline="") as file:
        names = [row["file"] for row in csv.DictReader(file) if row["split"] == "test"]
    pixels = np.stack([read_photo(folder / "pictures" / name, SIDE)[0] for name in names])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1


@torch.inference_mode()
def through(codec: LatentCodec, pictures: Tensor) -> Tensor:
    """Pictures as the codec keeps them, in whole numbers from 0 to 255."""
    kept = torch.cat([codec(part) for part in torch.split(pictures, BATCH)])
    return ((kept.clamp(-1, 1) + 1) * 127.5).round()


def decibels(one: Tensor, other: Tensor) -> Tensor:
    """`(N,)` dB of pairs of pictures from 0 to 255."""
    return psnr(((one - other) / 255).square().mean((1, 2, 3)), ceiling=math.inf)


def described(values: Tensor) -> str:
    """Mean and range."""
    return f"{values.mean():.2f} dB ({values.min():.2f} to {values.max():.2f})"


def main() -> None:
    """Print four lines."""
    pictures = test_pictures()
    shown = ((pictures + 1) * 127.5).round()
    codec = Bundle("photo128").build("codec")
    assert isinstance(codec, LatentCodec)
    codec = codec.eval().requires_grad_(False)
    full = through(codec, pictures)
    half = through(codec.bfloat16(), pictures)
    loss = decibels(full, shown) - decibels(half, shown)
    print(f"{len(pictures)} test pictures of {SIDE} px, through the codec and back")
    print(f"float32 against the picture   {described(decibels(full, shown))}")
    print(f"bfloat16 against the picture  {described(decibels(half, shown))}")
    print(f"bfloat16 against float32      {described(decibels(half, full))}")
    print(f"lost to bfloat16              {loss.mean():.3f} dB, at most {loss.max():.3f} dB")


if __name__ == "__main__":
    main()
