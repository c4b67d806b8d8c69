"""Train the network that brings a face which was put on into the light of its surroundings.

    python examples/train_shading.py OUT.safetensors --root FOLDER [FOLDER ...] --minutes 40

The folders hold aligned photographs of 256 px of people who do not exist; without --root the bundle's own pictures are
taken. Donors of the cast are put on jittered versions of every photograph, two thirds of them donors who fit. The
network sees the result, and learns by how much its smooth colours differ from those of the photograph itself. Nobody
can tell a person's own hard shadows from what surrounds a face, so it learns the light that is likely there.

Pictures that the bundle keeps for its test are left out. A sixteenth of the others is held out; for them the script
prints how far smooth colours are off (mean over the new face of the three channels' summed difference of natural
logarithms) with the network, and without.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms.functional import gaussian_blur
from tqdm import tqdm

from faceanon.backbones.persona import Persona, numbers_of
from faceanon.data.files import list_photos, read_photo
from faceanon.data.photo_jitter import PhotoJitter
from faceanon.data.prepared import CLEAR, SHIPPED_FOLDER, SHIPPED_TABLE, SOURCE_SIDE
from faceanon.files import save_tensors
from faceanon.landmarks.cast import Cast
from faceanon.landmarks.shading import SIDE, sheet
from faceanon.landmarks.swap import SwapTarget, put_on
from faceanon.models import load_backbone
from faceanon.networks.shading import ShadingNet
from faceanon.paths import checkpoints

PORTION = 16  # photographs that are looked at together
HELD_OUT = 16  # every so many photographs
SMOOTH = 1.5  # sigma in pixels of a sheet: what is finer is the donor's, and stays
STEADY = 0.5  # weight of what is not smooth in the changes
EPSILON = 0.05  # below it differences count by their squares
BATCH = 32
RATE = 1e-3
LIGHT = 0.2  # deviation of the brightness that sheet and photograph both get in training, natural logarithm
TINT = 0.1  # ... and of each channel


@dataclass(frozen=True)
class Samples:
    """Pictures on which donors were put.

    Args:
        sheets: `(N, 6, 64, 64)` float16, what the network sees.
        photographs: `(M, 3, 64, 64)` float16, the first channels of the sheets of the photographs themselves.
        photograph: `(N,)`, the photograph of each sheet.
    """

    sheets: Tensor
    photographs: Tensor
    photograph: Tensor


def put_donors_on(files: list[Path], names: list[str], versions: int, donors: int, seed: int) -> Samples:
    """Every photograph in some versions, each under some donors.

    Args:
        files: The photographs.
        names: Files of the cast's donors, by number: nobody is put on their own photograph.
        versions: Of each photograph.
        donors: On each version.
        seed: Decides jitter and donors.
    """
    shipped, _ = load_backbone("persona_photo128")
    assert isinstance(shipped, Persona)
    cast = Cast()
    jitter = PhotoJitter()
    random = np.random.default_rng(seed)
    sheets = []
    photographs = []
    photograph = []
    starts = range(0, len(files), PORTION)
    for version in range(versions):
        for start in tqdm(starts, desc=f"version {version + 1} of {versions}"):
            part = files[start : start + PORTION]
            # Version 2 is the first one of the jitter that differs from the photograph.
            pictures = [
                jitter.version(read_photo(file, SOURCE_SIDE)[0], version + 2, [seed, version, start + number])
                for number, file in enumerate(part)
            ]
            for target, file, looks in _targets(shipped, pictures, part):
                own = names.index(file.name) if file.name in names else -1
                for number in _donors(cast, target, looks, shipped, own, donors, random):
                    picture, edge = put_on(target, cast.donor(number, len(target.picture)), cast.triangles)
                    sheets.append(sheet(picture, edge, target.mesh).astype(np.float16))
                    photograph.append(len(photographs))
                photographs.append(sheet(target.picture, target.edge, target.mesh)[:3].astype(np.float16))
    return Samples(
        torch.from_numpy(np.stack(sheets)), torch.from_numpy(np.stack(photographs)), torch.tensor(photograph)
    )


def _targets(
    method: Persona, pictures: list[NDArray[np.uint8]], files: list[Path]
) -> list[tuple[SwapTarget, Path, NDArray[np.float32]]]:
    """Faces on which others can be put, their files and what is read of sex, age and skin."""
    side = method.image_size
    small = [cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA) for picture in pictures]
    image = torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).float() / 127.5 - 1
    codes, _, confidence = method._look(image)
    looks = numbers_of(codes.identity @ method.identities.kept_basis)
    found = zip(method._targets(image, codes), files, looks, confidence.tolist(), strict=True)
    return [(target, file, look) for target, file, look, sure in found if sure >= CLEAR and target.hidden]


def _donors(
    cast: Cast,
    target: SwapTarget,
    looks: NDArray[np.float32],
    method: Persona,
    own: int,
    count: int,
    random: np.random.Generator,
) -> list[int]:
    """Numbers of some donors for a face: two thirds who fit, and others whose mouths fit."""
    kept = numbers_of(method.identities.kept_basis)
    fitting = cast.fitting(looks[:3], target.appearance, kept)
    # Who is put on in use is always among the fitting; the others teach what hard light is.
    others = cast.closed
    chosen = []
    for pool, share in ((fitting, count - count // 3), (others, count // 3)):
        pool = pool[pool != own]
        chosen.append(random.choice(pool, min(share, len(pool)), replace=False))
    facing: list[int] = cast.facing(np.concatenate(chosen), target.appearance.turn).tolist()
    return facing


def smooth_gap(field: Tensor, sheets: Tensor, photographs: Tensor) -> Tensor:
    """How far smooth colours of the new faces are off once they are changed, `(B, 3, 64, 64)`.

    Args:
        field: `(B, 3, 64, 64)`, what the network changes.
        sheets: `(B, 6, 64, 64)`.
        photographs: `(B, 3, 64, 64)`.
    """
    changed = sheets[:, :3] + field * sheets[:, 3:4]
    return _smoothed(photographs - changed)


def _smoothed(sheets: Tensor) -> Tensor:
    blurred: Tensor = gaussian_blur(sheets, [9, 9], [SMOOTH, SMOOTH])
    return blurred


def _over_face(values: Tensor, sheets: Tensor) -> Tensor:
    """Mean over the new face of values `(B, 3, 64, 64)`, the channels summed."""
    face = sheets[:, 3:4]
    return ((values * face).sum((1, 2, 3)) / face.sum((1, 2, 3)).clamp(min=1)).mean()


def train(samples: Samples, rows: Tensor, held: Tensor, minutes: float) -> ShadingNet:
    """A trained network, after so many minutes."""
    torch.manual_seed(0)
    net = ShadingNet()
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-3)
    start = time.monotonic()
    step = 0
    while True:
        spent = (time.monotonic() - start) / (60 * minutes)
        if spent >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 200) * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * spent)))
        some = rows[torch.randint(0, len(rows), (BATCH,))]
        loss = cost(net, *_in_other_light(*_batch(samples, some)))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 500 == 0:
            off, before = examined(net, samples, held)
            print(
                f"batch {step}, {spent * minutes:.1f} minutes: held out {off:.4f}, unchanged {before:.4f}", flush=True
            )
    return net.eval()


def _batch(samples: Samples, rows: Tensor) -> tuple[Tensor, Tensor]:
    return samples.sheets[rows].float(), samples.photographs[samples.photograph[rows]].float()


def _in_other_light(sheets: Tensor, photographs: Tensor) -> tuple[Tensor, Tensor]:
    """The same, half of it mirrored, in brighter, darker or coloured light."""
    mirrored = (torch.rand(len(sheets)) < 0.5)[:, None, None, None]
    signs = torch.ones(1, sheets.shape[1], 1, 1)
    # Places to the right lie to the left in a mirror.
    signs[:, 4] = -1
    sheets = torch.where(mirrored, sheets.flip(3) * signs, sheets)
    photographs = torch.where(mirrored, photographs.flip(3), photographs)
    change = LIGHT * torch.randn(len(sheets), 1, 1, 1) + TINT * torch.randn(len(sheets), 3, 1, 1)
    lit = torch.cat([sheets[:, :3] + change, sheets[:, 3:]], 1)
    return lit, photographs + change


def cost(net: ShadingNet, sheets: Tensor, photographs: Tensor) -> Tensor:
    """What training makes small: how far smooth colours are off, and how uneven the changes are."""
    field = changes(net, sheets)
    gap = (smooth_gap(field, sheets, photographs).square() + EPSILON**2).sqrt()
    uneven = (field - _smoothed(field)).abs()
    return _over_face(gap, sheets) + STEADY * _over_face(uneven, sheets)


def changes(net: ShadingNet, sheets: Tensor) -> Tensor:
    """The network's field at the side of the sheets, `(B, 3, 64, 64)`."""
    # Half the time on a processor that computes in bfloat16.
    with torch.autocast("cpu", torch.bfloat16):
        field: Tensor = net(sheets)
    return F.interpolate(field.float(), size=(SIDE, SIDE), mode="bilinear")


@torch.no_grad()
def examined(net: ShadingNet, samples: Samples, rows: Tensor) -> tuple[float, float]:
    """How far smooth colours are off in some rows, with the network and without."""
    off = []
    before = []
    for part in rows.split(BATCH):
        sheets, photographs = _batch(samples, part)
        field = changes(net, sheets)
        off.append(float(_over_face(smooth_gap(field, sheets, photographs).abs(), sheets)))
        before.append(float(_over_face(smooth_gap(field * 0, sheets, photographs).abs(), sheets)))
    return float(np.mean(off)), float(np.mean(before))


def _names(table: Path, split: str | None = None) -> list[str]:
    """Files that a table lists, those of one split alone where one is given."""
    with table.open(encoding="utf-8", newline="") as lines:
        return [row["file"] for row in csv.DictReader(lines) if split is None or row["split"] == split]


def main() -> None:
    """Put donors on photographs, train, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", nargs="+", type=Path, help="folders of photographs (those of the bundle photo128)")
    parser.add_argument("--versions", type=int, default=2, help="of every photograph (2)")
    parser.add_argument("--donors", type=int, default=6, help="on every version (6)")
    parser.add_argument("--minutes", type=float, default=40, help="of training (40)")
    options = parser.parse_args()
    bundle = checkpoints() / "photo128"
    roots = options.root or [bundle / SHIPPED_FOLDER]
    tests = set(_names(bundle / SHIPPED_TABLE, "test"))
    files = [photo.path for root in roots for photo in list_photos(root) if photo.path.name not in tests]
    donors = _names(checkpoints() / "photo_seers" / "cast.csv")
    held = put_donors_on(files[::HELD_OUT], donors, 1, options.donors, seed=1)
    shown = [file for number, file in enumerate(files) if number % HELD_OUT]
    samples = put_donors_on(shown, donors, options.versions, options.donors, seed=0)
    print(f"{len(samples.sheets)} pictures to learn from, {len(held.sheets)} held out")
    everything = Samples(
        torch.cat([samples.sheets, held.sheets]),
        torch.cat([samples.photographs, held.photographs]),
        torch.cat([samples.photograph, held.photograph + len(samples.photographs)]),
    )
    rows = torch.arange(len(everything.sheets))
    net = train(everything, rows[: len(samples.sheets)], rows[len(samples.sheets) :], options.minutes)
    save_tensors(options.out, net.state_dict(), half=True, int8=True)


if __name__ == "__main__":
    main()
