"""Fit what the coder of sealed codes knows of latents (`faceanon.sealed.statistics`), and say what codes cost and keep.

    python tools/networks/fit_latent_statistics.py FOLDER OUT.safetensors

FOLDER holds aligned photographs of 256 px and more in FFHQ's frame; what ships was fitted to photographs of people
who do not exist. Of the pictures sorted by name every sixth is for faces of 128 px, every twelfth for 256 px; twenty
others, which no fit sees, are measured: the coded cells are painted with another person's, and brought back from
8-bit pictures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from faceanon.landmarks.mesh import FaceMesh
from faceanon.metrics.quality import psnr
from faceanon.networks.codec import LatentCodec
from faceanon.persona.cells import drawn_lines
from faceanon.sealed.coder import default_step
from faceanon.sealed.envelope import sealed_size
from faceanon.sealed.faces import codes_of_latents, faces_of_cells
from faceanon.sealed.statistics import SHIPPED, fit, save, shipped
from faceanon.weights.bundle import Bundle

SIDES = {128: 6, 256: 12}
TESTED = 20


def read(file: Path, side: int) -> Tensor:
    """A picture `(1, 3, side, side)` in [-1, 1]."""
    with Image.open(file) as picture:
        pixels = np.array(picture.convert("RGB").resize((side, side), Image.Resampling.LANCZOS))
    return torch.from_numpy(pixels).permute(2, 0, 1)[None] / 127.5 - 1


def look(files: list[Path], side: int, codec: LatentCodec, mesh: FaceMesh) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures, latents and masks of those files that clearly show a face."""
    found = []
    for file in files:
        image = read(file, side)
        pixels = ((image + 1) * 127.5).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
        points, confidence = mesh.points(pixels)
        if confidence[0] < 0.8:
            continue
        mask = torch.from_numpy(drawn_lines(points / side * 2 - 1, image.numpy())[1])
        with torch.no_grad():
            found.append((image, codec.encode(image), mask))
    images, latents, masks = zip(*found, strict=True)
    return torch.cat(images), torch.cat(latents), torch.cat(masks)


def measure(images: Tensor, latents: Tensor, masks: Tensor, codec: LatentCodec) -> str:
    """A line on the bytes of codes and the PSNR of what they bring back."""
    side = images.shape[-1]
    codes = codes_of_latents(latents, masks)
    covered = masks.bool().repeat_interleave(codec.shrink, -1).repeat_interleave(codec.shrink, -2)
    strangers = torch.where(covered, images.roll(1, 0), images)
    recovered = torch.cat([faces_of_cells(codec, strangers[i : i + 1], codes[i : i + 1]) for i in range(len(images))])
    saved = ((recovered.clamp(-1, 1) + 1) * 127.5).round() / 127.5 - 1
    decibels = psnr(((saved - images) / 2).square().mean((1, 2, 3)))
    sizes = [len(code) for code in codes]
    sealed = [sealed_size(size) for size in sizes]
    what = f"{side} px, step {default_step(side // codec.shrink)}, {masks.sum((1, 2, 3)).mean():.0f} cells"
    cost = (
        f"code {np.mean(sizes):.0f} bytes (at most {max(sizes)}), sealed {np.mean(sealed):.0f} (at most {max(sealed)})"
    )
    return f"{what}: {cost}, PSNR {decibels.mean():.1f} dB (at least {decibels.min():.1f})"


def main() -> None:
    """Fit, save, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    files = sorted(args.folder.glob("*.jpg"))
    codec = Bundle("photo128").codec
    mesh = FaceMesh()
    sets = []
    for side, every in SIDES.items():
        _, latents, masks = look(files[::every], side, codec, mesh)
        sets.append(fit(latents.numpy(), masks[:, 0].bool().numpy()))
        print(f"{side} px: fitted to {len(latents)} photographs")
    save(args.out, sets)
    if args.out.resolve() == SHIPPED.resolve():
        shipped.cache_clear()
    for side in SIDES:
        # No fit saw the third of any six.
        print(measure(*look(files[3 :: 6 * (len(files) // 6 // TESTED)], side, codec, mesh), codec))


if __name__ == "__main__":
    main()
