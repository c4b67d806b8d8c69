"""Train Persona's flow painter: python tools/networks/train_flow_painter.py OUT --root FOLDER ... --minutes 8.

FOLDER holds aligned photographs of people who do not exist. From noise, what surrounds a face, drawings of it, its
light and an identity code, a rectified flow learns to give the latents of the face (networks/flow_painter.py). One
photograph in twenty-five is kept for the test, and those that photo128 holds out for the test are left out.

OUT gets `last.safetensors` and `best.safetensors` (averaged weights in float16; best by the error on pictures kept for
the test), `log.csv`, and `sheet.png`, at half the time `sheet_half.png`: kept pictures drawn as themselves, and as
strangers under two strengths of guidance. Versions of the pictures are drawn on all cores; the rest runs on --device.
Runs on a CPU too, slowly.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.backbones.persona import MAPS, POSE, Persona
from faceanon.backbones.persona_cells import uncovered
from faceanon.compat import move_all
from faceanon.data.files import list_photos, read_photo
from faceanon.data.photo_jitter import PhotoJitter
from faceanon.data.prepared import CLEAR, SOURCE_SIDE, shipped_test
from faceanon.files import save_tensors
from faceanon.landmarks.covers import random_covers
from faceanon.landmarks.drawings import drawings
from faceanon.landmarks.mesh import FaceMesh
from faceanon.landmarks.redrawing import times
from faceanon.losses.light import TERMS
from faceanon.networks.flow_painter import FlowPainter, flow_error, follow
from faceanon.report.sheets import png_bytes, sheet
from faceanon.types import Codes

SIDE = 128
CELLS = 16
KEPT = 25  # one block of pictures in so many is kept for the test
BLOCK = 10  # pictures that follow each other may show one person
UNTOLD = 0.2  # share of training faces whose code says sex, age and skin alone
CODE_NOISE = 0.4  # deviation of the noise on codes: 2,000 people are few, and a painter could know each by its code
WARM = 300  # batches until the full learning rate
FALL = 0.4  # share of the time, at the end, in which the rate falls to nothing
NEAR = 0.4  # share of training faces of whose surroundings only the nearest cells are shown
HALF_LIFE = 700  # batches, of the averaged weights
LOOKS = 8  # times of a training at which the error on kept pictures is measured
STEPS = 10  # of a flow in the sheet


@dataclass
class Versions:
    """Versions of pictures as tensors; row n is of picture `picture[n]`."""

    image: Tensor
    lines: Tensor
    mask: Tensor
    mesh: Tensor
    picture: Tensor


def draw_versions(job: tuple[int, Path, tuple[int, ...]]) -> list[tuple[NDArray[Any], ...]]:
    """Versions of one picture that show a face: pixels, lines, mask, points, number."""
    number, path, wanted = job
    torch.set_num_threads(1)
    large = read_photo(path, SOURCE_SIDE)[0]
    jitter = PhotoJitter()
    pictures = []
    for version in wanted:
        pictures.append(jitter.version(large, version, [0, number, version]))
    points, confidence = FaceMesh().points(np.stack(pictures))
    found: list[tuple[NDArray[Any], ...]] = []
    for picture, mesh, sure in zip(pictures, points / SOURCE_SIDE * 2 - 1, confidence, strict=True):
        if sure < CLEAR:
            continue
        small = cv2.resize(picture, (SIDE, SIDE), interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
        image = torch.from_numpy(small.copy())[None] / 127.5 - 1
        lines, mask = drawings(torch.from_numpy(mesh)[None], image, CELLS)
        found.append((small, (lines[0] * 255).round().byte().numpy(), mask[0].bool().numpy(), mesh, np.asarray(number)))
    return found


def split_paths(roots: list[str], most: int | None = None) -> tuple[list[Path], list[Path]]:
    """Pictures to learn from, and those kept for the test; of the first `most` ones."""
    paths = []
    for root in roots:
        paths += [photo.path for photo in list_photos(Path(root))]
    learnt, tested = [], []
    for number, path in enumerate(paths[:most]):
        if number // BLOCK % KEPT:
            learnt.append(path)
        else:
            tested.append(path)
    return learnt, tested


def all_versions(paths: list[Path], wanted: tuple[int, ...]) -> Versions:
    """Versions of many pictures, drawn on all cores."""
    jobs = []
    for number, path in enumerate(paths):
        jobs.append((number, path, wanted))
    rows: list[tuple[NDArray[Any], ...]] = []
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        for some in tqdm(pool.imap(draw_versions, jobs, chunksize=8), "versions", len(jobs), mininterval=5):
            rows += some
    columns = []
    for column in zip(*rows, strict=True):
        columns.append(torch.from_numpy(np.stack(column)))
    image, lines, mask, mesh, picture = columns
    return Versions(image, lines, mask, mesh.float(), picture)


class Faces:
    """Everything that a batch needs, on the device.

    Args:
        versions: Of the pictures.
        method: Persona on the device, in training mode.
        test: Embeddings and cosines of `shipped_test`; pictures like these are left out.
    """

    def __init__(self, versions: Versions, method: Persona, test: tuple[Tensor, Tensor] | None) -> None:
        self.method = method
        device = method.identities.mean.device
        latents, embedding, looks = [], [], []
        with torch.no_grad():
            for part in versions.image.split(256):  # type: ignore[no-untyped-call]
                unit = part.to(device).float() / 127.5 - 1
                latents.append(method.bundle.codec.encode(unit))
                embedding.append(method.bundle.recogniser(unit).float())
                looks.append(method.looks.read(latents[-1]))
        embeddings = torch.cat(embedding)
        kept = torch.ones(len(embeddings), dtype=torch.bool)
        if test is not None and len(test[0]):
            same = (embeddings.cpu() @ test[0].T > test[1]).any(1)
            kept = ~torch.isin(versions.picture, versions.picture[same].unique())  # type: ignore[no-untyped-call]
            print(f"{int((~kept).sum())} versions are of pictures held out for the test", flush=True)
        rows = kept.nonzero()[:, 0]
        on = rows.to(device)
        self.latents = torch.cat(latents)[on].half()
        self.code = method.identities.code(embeddings[on])
        self.looks = torch.cat(looks)[on]
        self.lines = versions.lines[rows].to(device)
        self.mask = versions.mask[rows].to(device)
        self.mesh = versions.mesh[rows].to(device)
        # Where the versions of a row's picture begin, and how many there are: a row's code is of another version.
        _, count = versions.picture[rows].to(device).unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
        first = count.cumsum(0) - count
        self.first = first.repeat_interleave(count)
        self.count = count.repeat_interleave(count)

    def __len__(self) -> int:
        return len(self.latents)

    def codes(self, rows: Tensor, train: bool) -> Codes:
        """What is known of the faces of some rows; in training with random covers, and codes of other versions."""
        device = rows.device
        latents = self.latents[rows].float()
        mask = self.mask[rows].float()
        source = rows
        if train:
            mask = uncovered(mask, random_covers(len(rows), CELLS, device))
            source = self.first[rows] + (torch.rand(len(rows), device=device) * self.count[rows]).long()
        space = self.method.identities
        identity = space.with_kept(self.code[source], self.looks[rows])
        lines = self.lines[rows].float() / 255
        codes = self.method.codes_of_drawings(latents, latents, self.mesh[rows], identity, lines, mask)
        if not train:
            return codes
        noisy = identity + CODE_NOISE * torch.randn_like(identity)
        untold = torch.rand(len(rows), 1, device=device) < UNTOLD
        codes = codes.with_identity(torch.where(untold, space.nearer_to_mean(identity, 0.0), noisy))
        return replace(codes, latents=partly_shown(latents, mask))


def partly_shown(latents: Tensor, mask: Tensor) -> Tensor:
    """Latents `(B, 32, h, h)` of which, in some rows, only what lies within two cells of the mask is left.

    A painter that always sees all surroundings knows the training pictures by them.
    """
    near = F.max_pool2d(mask, 5, stride=1, padding=2)
    hidden = torch.rand(len(latents), 1, 1, 1, device=latents.device) < NEAR
    return torch.where(hidden, latents * near, latents)


def direction_of(painter: nn.Module, codes: Codes) -> Callable[[Tensor, Tensor], Tensor]:
    """Directions of a flow to the faces of some codes."""
    assert codes.latents is not None
    assert codes.mask is not None
    assert codes.attributes is not None
    assert codes.features is not None
    latents, mask, maps = codes.latents, codes.mask, codes.features[CELLS]
    condition = torch.cat([codes.identity, codes.attributes[:, 0]], 1)

    def direction(noisy: Tensor, at: Tensor) -> Tensor:
        with torch.autocast(noisy.device.type, torch.bfloat16):
            found: Tensor = painter(noisy, at, latents, mask, maps, condition)
        return found.float()

    return direction


def error_on(painter: nn.Module, faces: Faces) -> float:
    """Mean error of directions on pictures kept for the test, the same noise and times always."""
    device = faces.latents.device
    random = torch.Generator(device).manual_seed(1)
    errors = []
    with torch.no_grad():
        for rows in torch.arange(len(faces), device=device).split(128):  # type: ignore[no-untyped-call]
            codes = faces.codes(rows, train=False)
            assert codes.latents is not None
            assert codes.mask is not None
            direction = direction_of(painter, codes)
            for _ in range(4):
                noise = torch.randn(codes.latents.shape, generator=random, device=device)
                at = torch.rand(len(rows), generator=random, device=device)
                errors.append(flow_error(direction, codes.latents, codes.mask, noise, at))
    return float(torch.cat(errors).mean())


def painted(painter: nn.Module, method: Persona, codes: Codes, strength: float, seed: int) -> Tensor:
    """Latents of faces; the identity code counts more than it was trained to, by `strength` - 1."""
    assert codes.latents is not None
    assert codes.mask is not None
    told = direction_of(painter, codes)
    # `nearer_to_mean` with 0 leaves sex, age and skin, as in training.
    untold = direction_of(painter, codes.with_identity(method.identities.nearer_to_mean(codes.identity, 0.0)))

    def guided(noisy: Tensor, at: Tensor) -> Tensor:
        toward = told(noisy, at)
        if strength == 1:
            return toward
        return toward + (strength - 1) * (toward - untold(noisy, at))

    random = torch.Generator(codes.latents.device).manual_seed(seed)
    noise = torch.randn(codes.latents.shape, generator=random, device=codes.latents.device)
    with torch.no_grad():
        face = follow(guided, noise, times(0.0, STEPS))
    return codes.latents * (1 - codes.mask) + face * codes.mask


def save_sheet(painter: nn.Module, faces: Faces, path: Path) -> None:
    """Kept pictures: as they are, drawn as themselves, and two strangers under each of two strengths."""
    method = faces.method
    device = faces.latents.device
    rows = torch.arange(0, len(faces), max(1, len(faces) // 12), device=device)[:12]
    codes = faces.codes(rows, train=False)
    assert codes.latents is not None
    drawn = {"photograph": codes.latents, "itself": painted(painter, method, codes, 1, 0)}
    for key in (1, 2):
        keys = method.sample_key(1, torch.Generator().manual_seed(key)).to(device).expand(len(rows), -1, -1)
        stranger = codes.with_identity(method.identities.turned(codes.identity, keys))
        for strength in (1, 2.5):
            drawn[f"stranger {key}, strength {strength}"] = painted(painter, method, stranger, strength, key)
    with torch.no_grad():
        pictures = {label: method.bundle.codec.decode(latents) for label, latents in drawn.items()}
    path.write_bytes(png_bytes(sheet(pictures, scale=1)))


def train(painter: FlowPainter, faces: Faces, kept: Faces, options: argparse.Namespace, end: float) -> None:
    """Train until the monotonic clock shows `end`."""
    device = faces.latents.device
    average = copy.deepcopy(painter).requires_grad_(False).eval()
    network: nn.Module = torch.compile(painter) if options.compile else painter  # type: ignore[assignment]
    fused = device.type == "cuda"
    optimizer = torch.optim.AdamW(painter.parameters(), options.rate, (0.9, 0.99), weight_decay=0.02, fused=fused)
    begun = time.monotonic()
    seconds = end - begun
    batch, looked, least, past = 0, 0, float("inf"), 0.0
    log = ["batch,seconds,training,kept,kept_own"]
    while past < 1:
        past = (time.monotonic() - begun) / seconds
        rate = options.rate * min(1, (batch + 1) / WARM, max(0.0, 1 - past) / FALL)
        optimizer.param_groups[0]["lr"] = rate
        rows = torch.randint(len(faces), (options.batch,), device=device)
        codes = faces.codes(rows, train=True)
        assert codes.mask is not None
        latents = faces.latents[rows].float()
        noise = torch.randn_like(latents)
        at = torch.sigmoid(torch.randn(len(rows), device=device))
        error = flow_error(direction_of(network, codes), latents, codes.mask, noise, at).mean()
        optimizer.zero_grad(set_to_none=True)
        error.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(painter.parameters(), 1.0)
        optimizer.step()
        batch += 1
        share = 1 - 0.5 ** (1 / HALF_LIFE) if batch > WARM else 1.0
        with torch.no_grad():
            move_all(list(average.parameters()), list(painter.parameters()), share)
        if past * LOOKS >= looked or past >= 1:
            looked += 1
            found, own = error_on(average, kept), float(error.detach())
            log.append(f"{batch},{time.monotonic() - begun:.0f},{own:.4f},{found:.4f},{error_on(painter, kept):.4f}")
            print(log[-1], flush=True)
            if batch > 1 and found < least:
                least = found
                save_tensors(options.out / "best.safetensors", average.state_dict(), half=True)
                print("best so far", flush=True)
            if looked == LOOKS // 2 + 1:
                save_sheet(average, kept, options.out / "sheet_half.png")
    (options.out / "log.csv").write_text("\n".join(log) + "\n", encoding="utf-8")
    save_tensors(options.out / "last.safetensors", average.state_dict(), half=True)
    save_sheet(average, kept, options.out / "sheet.png")


def main() -> None:
    """Prepare, train, show, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", nargs="+", required=True, help="folders of aligned photographs")
    parser.add_argument("--versions", type=int, default=16, help="versions of every picture (16)")
    parser.add_argument("--pictures", type=int, help="take so many pictures only, to try the script")
    parser.add_argument("--minutes", type=float, default=8.0, help="of everything, preparation too (8)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--width", type=int, default=192, help="channels at 16 cells; twice as many at 8 (192)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="compile the network first: a minute, then faster")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    begun = time.monotonic()
    # Before the device is used: processes are forked.
    learnt, tested = split_paths(options.root, options.pictures)
    training = all_versions(learnt, tuple(range(options.versions)))
    test = all_versions(tested, (0, 2))
    method = Persona()
    held_out = shipped_test(method.bundle)
    torch.set_float32_matmul_precision("high")
    method.train().to(options.device)
    method.bundle.to(options.device)
    faces = Faces(training, method, held_out)
    kept = Faces(test, method, None)
    print(f"{len(faces)} versions, {len(kept)} kept, after {time.monotonic() - begun:.0f} s", flush=True)
    condition = method.identities.size + 3 * TERMS + POSE
    width = {CELLS: options.width, CELLS // 2: 2 * options.width}
    painter = FlowPainter(maps=MAPS, condition=condition, widths=width).to(options.device)
    print(f"{sum(p.numel() for p in painter.parameters()) / 1e6:.1f} million numbers", flush=True)
    train(painter, faces, kept, options, begun + 60 * options.minutes)


if __name__ == "__main__":
    main()
