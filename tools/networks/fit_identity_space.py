"""Fit what a photo bundle knows of identities and colours: `identity_space.safetensors` and the codec's preview.

    python tools/networks/fit_identity_space.py FOLDER LABELS.csv OUT

FOLDER holds aligned photographs of 256 px and more in FFHQ's frame; what ships was fitted to people who do not exist.
LABELS.csv has the columns file, sex and age: sex 1 or -1, age in years, either may be empty. OUT, a new folder, gets
both files. The space is that of the bundle's recogniser: 64 whitened principal components of its embeddings, and among
them four directions that a key leaves as they are, fitted by ridge regression: sex, age, lightness of the skin and
warmth of its colour.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.files import save_tensors
from faceanon.landmarks.mesh import FaceMesh
from faceanon.networks.codec import LatentCodec
from faceanon.networks.identity_space import IdentitySpace
from faceanon.persona.cells import drawn_lines
from faceanon.weights.bundle import Bundle

SIDE = 128
RIDGE = 0.1  # added to the codes' variance of 1, so that a direction does not follow single pictures
PREVIEWED = 1500  # pictures for the map from latents to colours


def read(file: Path) -> Tensor:
    """A picture `(1, 3, 128, 128)` in [-1, 1]."""
    with Image.open(file) as picture:
        pixels = np.array(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS))
    return torch.from_numpy(pixels).permute(2, 0, 1)[None] / 127.5 - 1


def direction(codes: Tensor, values: Tensor, name: str) -> Tensor:
    """The direction `(N,)` of codes `(B, N)` along which `(B,)` values grow; NaN where a value is unknown."""
    known = ~values.isnan()
    x = codes[known]
    y = (values[known] - values[known].mean()) / values[known].std()
    covariance = x.T @ x / len(x) + RIDGE * torch.eye(x.shape[1])
    weights: Tensor = torch.linalg.solve(covariance, x.T @ y / len(x))
    fit = torch.corrcoef(torch.stack([x @ weights, y]))[0, 1]
    print(f"{name}: {len(x)} pictures, correlation {fit:.2f}")
    return weights


def space_of(embeddings: Tensor, attributes: dict[str, Tensor]) -> IdentitySpace:
    """The space of embeddings `(B, E)` that keeps attributes `(B,)`, by name."""
    space = IdentitySpace(embeddings.shape[1], kept=len(attributes))
    mean = embeddings.mean(0)
    _, spread, axes = torch.linalg.svd(embeddings - mean, full_matrices=False)
    space.mean.copy_(mean)
    space.basis.copy_(axes[: space.size])
    space.scale.copy_(spread[: space.size] / len(embeddings) ** 0.5)
    codes = space.code(embeddings)
    found = torch.stack([direction(codes, values, name) for name, values in attributes.items()], 1)
    kept = torch.linalg.qr(found)[0]
    complete = torch.linalg.svd(kept, full_matrices=True)[0]
    space.kept_basis.copy_(kept)
    space.free_basis.copy_(complete[:, kept.shape[1] :])
    return space


def fit_preview(codec: LatentCodec, latents: Tensor, images: Tensor) -> None:
    """Give a codec the linear map that best tells a cell's mean colour from its latents."""
    cells = latents.permute(0, 2, 3, 1).flatten(0, 2)
    inputs = torch.cat([cells, torch.ones(len(cells), 1)], 1)
    colours = F.avg_pool2d(images, codec.shrink).permute(0, 2, 3, 1).flatten(0, 2)
    solution = torch.linalg.lstsq(inputs, colours).solution
    explained = 1 - (inputs @ solution - colours).square().mean() / colours.var()
    print(f"preview: {explained:.2f} of the colours' variance")
    codec.preview_weight.copy_(solution[:-1].T)
    codec.preview_bias.copy_(solution[-1])


def main() -> None:
    """Look at all pictures, fit, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bundle", default="photo128", help="whose recogniser and codec (photo128)")
    args = parser.parse_args()
    args.out.mkdir(parents=True)
    with args.labels.open(encoding="utf-8", newline="") as file:
        labels = {row["file"]: row for row in csv.DictReader(file)}
    bundle = Bundle(args.bundle)
    # Built anew: `bundle.codec` may compute in bfloat16, and is not to be saved so.
    codec = bundle.build("codec").eval()
    assert isinstance(codec, LatentCodec)
    mesh = FaceMesh()
    embeddings: list[Tensor] = []
    images: list[Tensor] = []
    latents: list[Tensor] = []
    attributes: dict[str, list[float]] = {"sex": [], "age": [], "lightness": [], "warmth": []}
    for path in tqdm(sorted(args.folder.glob("*.[jp][pn]g")), unit="picture"):
        image = read(path)
        pixels = ((image + 1) * 127.5).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
        points, confidence = mesh.points(pixels)
        if confidence[0] < 0.5:
            continue
        mask = torch.from_numpy(drawn_lines(points / SIDE * 2 - 1, image.numpy())[1])
        skin = (F.avg_pool2d(image, LatentCodec.shrink) * mask).sum((0, 2, 3)) / mask.sum()
        row = labels.get(path.name, {})
        attributes["sex"].append(float(row.get("sex") or "nan"))
        # A year more changes a child's face more than an old one's.
        attributes["age"].append(math.log(float(row.get("age") or "nan") + 3))
        attributes["lightness"].append(float(skin.mean()))
        attributes["warmth"].append(float(skin[0] - skin[2]))
        with torch.no_grad():
            embeddings.append(bundle.recogniser(image))
            if len(latents) < PREVIEWED:
                images.append(image)
                latents.append(codec.encode(image))
    if len(embeddings) <= IdentitySpace().size:
        parser.error(f"{args.folder} shows {len(embeddings)} faces; the space needs more than {IdentitySpace().size}")
    space = space_of(torch.cat(embeddings), {name: torch.tensor(values) for name, values in attributes.items()})
    with torch.no_grad():
        fit_preview(codec, torch.cat(latents), torch.cat(images))
    for name, network in (("identity_space", space), ("codec", codec)):
        print(args.out / f"{name}.safetensors", save_tensors(args.out / f"{name}.safetensors", network.state_dict()))


if __name__ == "__main__":
    main()
