"""Train Persona's flow painter: python tools/networks/train_flow_painter.py OUT --root FOLDER ... --minutes 600 --on.

FOLDER holds aligned photographs of people who do not exist. From noise, what surrounds a face, drawings of it, its
light and an identity code, a rectified flow learns to give the latents of the face (networks/flow_painter.py). One
photograph in twenty-five is kept for the test, and those that photo128 holds out for the test are left out. Where a
`manifest.csv` beside FOLDER says which pictures show one look (column `identity`), a face's code is read off any of
them, and a look gives 20 pictures at most.

OUT gets `versions.pt` (versions of the pictures, drawn once), `state.pt` from which the same command goes on where it
was stopped, `last.safetensors` and `best.safetensors` (averaged weights in float16; best by the error on pictures kept
for the test), `log.csv`, and `sheet_N.png` every half an hour: kept pictures drawn as themselves, and as strangers
under two strengths of guidance. Runs on a CPU too, slowly.
"""

from __future__ import annotations

import argparse
import copy
import csv
import multiprocessing
import os
import time
from collections import Counter
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
from faceanon.landmarks.redrawer import FILE
from faceanon.landmarks.redrawing import times
from faceanon.losses.light import TERMS
from faceanon.networks.flow_painter import FlowPainter, flow_error, follow
from faceanon.report.sheets import png_bytes, sheet
from faceanon.types import Codes
from faceanon.weights.shipped import read_tensors

SIDE = 128
CELLS = 16
KEPT = 25  # one block of pictures in so many is kept for the test
BLOCK = 10  # pictures that follow each other may show one person
UNTOLD = 0.2  # share of training faces whose code says sex, age and skin alone
PICTURES = 20  # of one look
CODE_NOISE = 0.4  # deviation of the noise on codes: 2,000 people are few, and a painter could know each by its code
WARM = 300  # batches until the full learning rate, and until the weights are averaged
FALL = 0.4  # share of the time, at the end, in which the rate falls to nothing
NEAR = 0.4  # share of training faces of whose surroundings only the nearest cells are shown
HALF_LIFE = 700  # batches, of the averaged weights
EVERY = 30.0  # minutes between two looks: state, error on kept pictures, and a sheet
STEPS = 10  # of a flow in the sheet


@dataclass
class Versions:
    """Versions of pictures as tensors; row n is of picture `picture[n]`, which shows look `look[n]`."""

    image: Tensor
    lines: Tensor
    mask: Tensor
    mesh: Tensor
    picture: Tensor
    look: Tensor


def draw_versions(job: tuple[int, int, Path, tuple[int, ...]]) -> list[tuple[NDArray[Any], ...]]:
    """Versions of one picture that show a face: pixels, lines, mask, points, numbers of picture and look."""
    number, look, path, wanted = job
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
        drawn = (lines[0] * 255).round().byte().numpy()
        found.append((small, drawn, mask[0].bool().numpy(), mesh, np.asarray(number), np.asarray(look)))
    return found


def looks_beside(root: Path) -> dict[str, str]:
    """Which look each file in a folder shows, as far as the `manifest.csv` beside the folder says."""
    path = root.parent / "manifest.csv"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as lines:
        return {row["file"]: row["identity"] for row in csv.DictReader(lines) if row["identity"]}


def split_paths(roots: list[str]) -> tuple[list[tuple[Path, str]], list[tuple[Path, str]]]:
    """Pictures and their looks: to learn from, those of one look after each other, and kept for the test."""
    learnt: list[tuple[Path, str]] = []
    tested: list[tuple[Path, str]] = []
    number = 0
    for root in roots:
        looks = looks_beside(Path(root))
        taken: Counter[str] = Counter()
        for photo in list_photos(Path(root)):
            look = looks.get(photo.path.name, str(photo.path))
            taken[look] += 1
            if taken[look] > PICTURES:
                continue
            (learnt if number // BLOCK % KEPT else tested).append((photo.path, look))
            number += 1
    return sorted(learnt, key=lambda one: one[1]), tested


def all_versions(pictures: list[tuple[Path, str]], wanted: tuple[int, ...]) -> Versions:
    """Versions of many pictures, drawn on all cores that this process may use."""
    numbers: dict[str, int] = {}
    jobs = []
    for number, (path, look) in enumerate(pictures):
        jobs.append((number, numbers.setdefault(look, len(numbers)), path, wanted))
    rows: list[tuple[NDArray[Any], ...]] = []
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        for some in tqdm(pool.imap(draw_versions, jobs, chunksize=8), "versions", len(jobs), mininterval=5):
            rows += some
    columns = []
    for column in zip(*rows, strict=True):
        columns.append(torch.from_numpy(np.stack(column)))
    image, lines, mask, mesh, picture, shown = columns
    return Versions(image, lines, mask, mesh.float(), picture, shown)


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
            for part in versions.image.split(32):  # type: ignore[no-untyped-call]
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
        self.picture = versions.image[rows]
        self.latents = torch.cat(latents)[on].half()
        self.code = method.identities.code(embeddings[on])
        self.looks = torch.cat(looks)[on]
        self.lines = versions.lines[rows].to(device)
        self.mask = versions.mask[rows].to(device)
        self.mesh = versions.mesh[rows].to(device)
        # Where the rows of a row's look begin, and how many there are: a row's code is of any of them, so that it says
        # who is drawn, and not how.
        _, count = versions.look[rows].to(device).unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
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


def train(painter: FlowPainter, faces: Faces, kept: Faces, options: argparse.Namespace) -> None:
    """Train for so many minutes, those before it was stopped counted in."""
    device = faces.latents.device
    average = copy.deepcopy(painter).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(painter.parameters(), options.rate, (0.9, 0.99), weight_decay=0.02)
    parts: dict[str, Any] = {"painter": painter, "average": average, "optimizer": optimizer}
    so_far: dict[str, Any] = {"batch": 0, "looks": 0, "seconds": 0.0, "least": float("inf")}
    state = options.out / "state.pt"
    if state.is_file():
        stored = torch.load(state, map_location=device, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(stored[name])
        so_far = stored["so_far"]
        torch.manual_seed(so_far["batch"])
    begun = time.monotonic() - so_far["seconds"]
    past = 0.0
    while past < 1:
        past = (time.monotonic() - begun) / 60 / options.minutes
        rate = options.rate * min(1, (so_far["batch"] + 1) / WARM, max(0.0, 1 - past) / FALL)
        optimizer.param_groups[0]["lr"] = rate
        rows = torch.randint(len(faces), (options.batch,), device=device)
        codes = faces.codes(rows, train=True)
        assert codes.mask is not None
        latents = faces.latents[rows].float()
        noise = torch.randn_like(latents)
        at = torch.sigmoid(torch.randn(len(rows), device=device))
        error = flow_error(direction_of(painter, codes), latents, codes.mask, noise, at).mean()
        optimizer.zero_grad(set_to_none=True)
        error.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(painter.parameters(), 1.0)
        optimizer.step()
        so_far["batch"] += 1
        share = 1 - 0.5 ** (1 / HALF_LIFE) if so_far["batch"] > WARM else 1.0
        with torch.no_grad():
            move_all(list(average.parameters()), list(painter.parameters()), share)
        so_far["seconds"] = time.monotonic() - begun
        if so_far["seconds"] / 60 < EVERY * so_far["looks"] and past < 1:
            continue
        look(average, faces, kept, so_far, options.out)
        stored = {name: part.state_dict() for name, part in parts.items()}
        torch.save(stored | {"so_far": so_far}, state.with_suffix(".new"))
        state.with_suffix(".new").replace(state)
    save_tensors(options.out / "last.safetensors", average.state_dict(), half=True)


def look(average: FlowPainter, faces: Faces, kept: Faces, so_far: dict[str, Any], out: Path) -> None:
    """Measure the error on kept pictures, keep the best weights, and draw a sheet."""
    so_far["looks"] += 1
    found = error_on(average, kept)
    line = f"{so_far['batch']},{so_far['seconds']:.0f},{found:.4f}"
    print(line, flush=True)
    with (out / "log.csv").open("a", encoding="utf-8") as log:
        log.write(line + "\n")
    if found < so_far["least"]:
        so_far["least"] = found
        save_tensors(out / "best.safetensors", average.state_dict(), half=True)
    save_sheet(average, kept, out / f"sheet_{so_far['looks']}.png")


def prepared(options: argparse.Namespace) -> tuple[Versions, Versions]:
    """Versions of the pictures to learn from, and of those that are kept; drawn where no earlier call has done so."""
    path = options.out / "versions.pt"
    if not path.is_file():
        learnt, tested = split_paths(options.root)
        drawn = (all_versions(learnt, tuple(range(options.versions))), all_versions(tested, (0, 2)))
        torch.save([vars(one) for one in drawn], path)
    training, test = torch.load(path, weights_only=True)
    return Versions(**training), Versions(**test)


def main() -> None:
    """Prepare, train, show, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", nargs="+", required=True, help="folders of aligned photographs")
    parser.add_argument("--on", action="store_true", help="train on from the network that ships")
    parser.add_argument("--versions", type=int, default=16, help="versions of every picture (16)")
    parser.add_argument("--minutes", type=float, default=8.0, help="of the training, preparation not counted (8)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    # Before the device is used: processes are forked.
    training, test = prepared(options)
    method = Persona()
    held_out = shipped_test(method.bundle)
    torch.set_float32_matmul_precision("high")
    method.train().to(options.device)
    method.bundle.to(options.device)
    faces = Faces(training, method, held_out)
    kept = Faces(test, method, None)
    print(f"{len(faces)} versions, {len(kept)} kept", flush=True)
    painter = FlowPainter(maps=MAPS, condition=method.identities.size + 3 * TERMS + POSE).to(options.device)
    if options.on:
        painter.load_state_dict(read_tensors(FILE))
    train(painter, faces, kept, options)


if __name__ == "__main__":
    main()
