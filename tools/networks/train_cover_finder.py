"""Train the network that finds what covers a face: `checkpoints/photo_seers/covers.safetensors`.

    python tools/networks/train_cover_finder.py OUT.safetensors --root FOLDER [FOLDER ...] --work runs/covers

The folders hold aligned photographs of 256 px of people who do not exist; without --root the bundle's own pictures are
taken. Covers are drawn onto them (pasted_covers.py), so every cell's label is known. What is prepared (latents,
drawings and labels) is kept in --work and is not made again. Pictures that the bundle keeps for its test, and a tenth
of the others, are held out; at the end the script prints what is found in them.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import time
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.data.files import list_photos, read_photo
from faceanon.data.photo_jitter import PhotoJitter
from faceanon.data.prepared import CLEAR, SHIPPED_FOLDER, SHIPPED_TABLE
from faceanon.files import load_tensors, save_tensors
from faceanon.landmarks.cover_cells import covered_cells
from faceanon.landmarks.drawings import FINE, OUTLINE
from faceanon.landmarks.mesh import FaceMesh
from faceanon.networks.cover_finder import CoverFinderNet
from faceanon.persona.cells import drawn_lines
from faceanon.weights.bundle import Bundle
from pasted_covers import COVERS, SIDE, Face, covered

PORTION = 64  # samples that are prepared and saved together
TESTED = 32  # samples of each kind of cover that are held out
SIZES = (128, 256)
LARGE = 0.4  # share of the samples that are prepared at 256 px, too
ORIGINAL = 0.2  # share of the samples that are not jittered
BATCH = {128: 32, 256: 16}
RATE = 2e-3
TRUSTING = 0.3  # share of the training in which every label counts
DOUBT = 1.0  # logit above which the network doubts a label later on
NOISE = 0.15  # deviation of what is added to latents in training; the codec's own is .25
# The same moves as PhotoJitter, and nothing else: labels go where the picture goes.
MOVED = PhotoJitter(gamma=0, balance=0, saturation=0, contrast=0, worse=0, dark=0, small=0)
UNLIKE_SKIN = 28.0  # distance in CIELAB from the cheeks' colour
Sample = dict[str, Tensor]


def read_faces(files: list[Path]) -> list[Face]:
    """Photographs in which the mesh finds a face."""
    mesh = FaceMesh()
    faces = []
    for start in tqdm(range(0, len(files), PORTION), desc="reading"):
        pixels = np.stack([read_photo(file, SIDE)[0] for file in files[start : start + PORTION]])
        points, confidence = mesh.points(pixels)
        for picture, places, sure in zip(pixels, points, confidence, strict=True):
            if sure >= CLEAR:
                faces.append(Face(picture.astype(np.float32) / 255, places))
    return faces


def split(roots: list[Path], bundle: Bundle, never_held_out: str) -> tuple[list[Path], list[Path]]:
    """Files to train on, and files that are held out."""
    with (bundle.folder / SHIPPED_TABLE).open(encoding="utf-8", newline="") as file:
        test = {row["file"] for row in csv.DictReader(file) if row["split"] == "test"}
    train = []
    held = []
    for number, root in enumerate(roots):
        for photo in list_photos(root):
            name = photo.path.name
            tenth = hashlib.sha256(name.encode()).digest()[0] < 26
            # Pictures of later folders, and some of the first, may show the same invented people as others.
            may = number == 0 and not name.startswith(never_held_out)
            if name in test or (tenth and may):
                held.append(photo.path)
            else:
                train.append(photo.path)
    return train, held


def unsure(face: Face) -> NDArray[np.uint8]:
    """Pixels that may show hair or a hat which nobody pasted: above the eyes and at the outline, unlike the skin.

    What stands there in a photograph carries no label. Without this the network would learn that hair covers nothing.
    """
    lab = cv2.cvtColor(face.pixels, cv2.COLOR_RGB2LAB)
    places = face.mesh[[50, 280, 205, 425, 4, 9, 151]].clip(3, SIDE - 4).astype(int)
    patches = [lab[y - 3 : y + 4, x - 3 : x + 4].reshape(-1, 3) for x, y in places]
    skin = np.median(np.concatenate(patches), 0)
    unlike = np.linalg.norm(lab - skin, axis=2) > UNLIKE_SKIN
    outline = face.mesh[list(OUTLINE)]
    inner = (outline - outline.mean(0)) * 0.88 + outline.mean(0)
    middle = np.zeros((SIDE, SIDE), np.uint8)
    cv2.fillPoly(middle, [np.round(inner).astype(np.int32)], 1)
    brows = face.mesh[[63, 293]].mean(0)
    chin = face.mesh[152] - brows
    rows, columns = np.mgrid[:SIDE, :SIDE]
    above = (columns - brows[0]) * chin[0] + (rows - brows[1]) * chin[1] < 0
    uncertain: NDArray[np.uint8] = (unlike & (above | (middle == 0))).astype(np.uint8)
    return uncertain


class Workshop:
    """Makes samples: pictures with covers, and what the network sees of them.

    Args:
        files: The photographs.
        bundle: Gives the codec.
    """

    def __init__(self, files: list[Path], bundle: Bundle) -> None:
        self.files = files
        self.bundle = bundle
        self.mesh = FaceMesh()
        self.jitter = PhotoJitter()

    @cached_property
    def faces(self) -> list[Face]:
        """The photographs, read where something has to be made of them."""
        return read_faces(self.files)

    def portion(self, seed: int, kind: str | None = None, count: int = PORTION) -> Sample:
        """Some samples as tensors by name; those of 256 px carry an `L` before their names.

        Args:
            seed: Decides everything.
            kind: A key of `COVERS`, "none", or None for any.
            count: Number of samples; those in which the mesh finds no face are left out.
        """
        random = np.random.default_rng(seed)
        pictures = []
        labels = []
        for number in range(count):
            face = self.faces[int(random.integers(0, len(self.faces)))]
            pixels, taken, _ = covered(random, face, self.faces, kind)
            picture = (pixels * 255).round().astype(np.uint8)
            sheet = np.stack([taken > 0.5, unsure(face) > 0, taken > 0.5], 2).astype(np.uint8) * 255
            version = 0 if random.random() < ORIGINAL else 2
            pictures.append(self.jitter.version(picture, version, [seed, number]))
            labels.append(MOVED.version(sheet, version, [seed, number]) > 127)
        stacked = np.stack(pictures)
        points, confidence = self.mesh.points(stacked)
        clear = confidence >= CLEAR
        meshes = torch.from_numpy(points / SIDE * 2 - 1)[torch.from_numpy(clear)]
        covers = torch.from_numpy(np.stack(labels)).permute(0, 3, 1, 2)[torch.from_numpy(clear)].float()
        found: Sample = {}
        for size in SIZES:
            rows = round(len(meshes) * (LARGE if size == SIDE else 1.0))
            if kind is not None:
                rows = len(meshes)
            small = [cv2.resize(one, (size, size), interpolation=cv2.INTER_AREA) for one in stacked[clear][:rows]]
            image = torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).float() / 127.5 - 1
            found |= self._seen(image, meshes[:rows], covers[:rows], "L" if size == SIDE else "")
        return found

    def _seen(self, image: Tensor, meshes: Tensor, covers: Tensor, prefix: str) -> Sample:
        """What the network sees of pictures, what it should say, and where that is known."""
        cells = image.shape[-1] // self.bundle.codec.shrink
        with torch.inference_mode():
            latents = torch.cat([self.bundle.codec.encode(part) for part in image.split(16)])  # type: ignore[no-untyped-call]
        lines, mask = map(torch.from_numpy, drawn_lines(meshes.numpy(), image.numpy()))
        share = F.adaptive_avg_pool2d(covers, cells)
        label = (share[:, :1] > 0.5).float() * mask
        known = mask * (1 - (share[:, 1:2] > 0.4).float() * (1 - label))
        return {
            f"{prefix}latents": latents.half(),
            f"{prefix}maps": torch.cat([mask, F.avg_pool2d(lines, FINE)], 1).half(),
            f"{prefix}label": label.half(),
            f"{prefix}known": known.half(),
            f"{prefix}mesh": meshes.clone(),
        }


def prepared(work: Path, name: str, workshop: Workshop, seeds: range, kind: str | None = None) -> Sample:
    """Samples from the folder, made where they are missing."""
    parts = []
    for seed in tqdm(seeds, desc=name):
        file = work / f"{name}_{seed}.safetensors"
        if not file.is_file():
            save_tensors(file, workshop.portion(seed, kind, PORTION if kind is None else TESTED))
        parts.append(load_tensors(file))
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def train(samples: Sample, minutes: float, seed: int) -> CoverFinderNet:
    """A trained network, after so many minutes."""
    torch.manual_seed(seed)
    net = CoverFinderNet()
    print(f"{sum(one.numel() for one in net.parameters())} parameters, {len(samples['label'])} samples")
    average = {name: value.clone() for name, value in net.state_dict().items()}
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-3, betas=(0.9, 0.99))
    start = time.monotonic()
    step = 0
    seen = []
    while True:
        spent = (time.monotonic() - start) / (60 * minutes)
        if spent >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 50) * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * spent)))
        size = SIZES[step % 2]
        rows = torch.randint(0, len(samples[_prefix(size) + "label"]), (BATCH[size],))
        loss = cost(net, samples, size, rows, doubting=spent > TRUSTING)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        step += 1
        with torch.no_grad():
            follow = min(0.998, step / (step + 10))
            for name, value in net.state_dict().items():
                average[name].lerp_(value, 1 - follow)
        seen.append(float(loss.detach()))
        if step % 100 == 0:
            print(f"step {step}, {spent * minutes:.1f} minutes, loss {np.mean(seen[-100:]):.4f}", flush=True)
    net.load_state_dict(average)
    return net.eval()


def cost(net: CoverFinderNet, samples: Sample, size: int, rows: Tensor, doubting: bool) -> Tensor:
    """Cross-entropy over the cells whose label is known; `doubting` leaves out labels that the network doubts.

    Some photographs show hats, hands and dark glasses that nobody pasted, and their labels say that nothing is there. A
    network that has learnt what covers look like sees them, before it learns them by heart.
    """
    prefix = _prefix(size)
    latents = samples[prefix + "latents"][rows].float()
    latents = latents + NOISE * torch.rand(len(rows), 1, 1, 1) * torch.randn_like(latents)
    logits = net(latents, samples[prefix + "maps"][rows].float())
    known = samples[prefix + "known"][rows].float()
    label = samples[prefix + "label"][rows].float()
    if doubting:
        known = known * (1 - (logits.detach() > DOUBT).float() * (1 - label))
    each = F.binary_cross_entropy_with_logits(logits, label, reduction="none")
    return (each * known).sum() / known.sum()


@torch.inference_mode()
def probabilities(net: CoverFinderNet, samples: Sample, size: int) -> Tensor:
    """How likely each cell is covered, `(B, 1, h, h)`."""
    found = []
    for start in range(0, len(samples[_prefix(size) + "label"]), PORTION):
        part = slice(start, start + PORTION)
        latents = samples[_prefix(size) + "latents"][part].float()
        found.append(net(latents, samples[_prefix(size) + "maps"][part].float()).sigmoid())
    return torch.cat(found)


def report(net: CoverFinderNet, tests: dict[str, Sample]) -> None:
    """Print what is released of covered cells and of others, by kind of cover, in pictures that were held out."""
    print("released, in per cent of the covered cells and of the others of the face")
    for size in SIZES:
        prefix = _prefix(size)
        for kind, samples in tests.items():
            chances = probabilities(net, samples, size).numpy()
            covered = 0
            hits = 0
            others = 0
            wrong = 0
            for row in range(len(chances)):
                mask = samples[prefix + "maps"][row, 0].numpy() > 0.5
                label = samples[prefix + "label"][row, 0].numpy() > 0.5
                known = samples[prefix + "known"][row, 0].numpy() > 0.5
                found = covered_cells(chances[row, 0], mask, samples[prefix + "mesh"][row].numpy())
                covered += int(label.sum())
                hits += int((label & found).sum())
                others += int((known & ~label).sum())
                wrong += int((known & ~label & found).sum())
            recall = 100 * hits / max(covered, 1)
            falsely = 100 * wrong / max(others, 1)
            print(f"{size} px, {kind:13} {covered:6} covered: {recall:5.1f} %; {others:6} others: {falsely:.2f} %")


def _prefix(size: int) -> str:
    return "L" if size == SIDE else ""


def main() -> None:
    """Prepare, train, save and print what is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", type=Path, nargs="+")
    parser.add_argument("--bundle", default="photo128")
    parser.add_argument("--work", type=Path, default=Path("runs/covers"))
    parser.add_argument("--portions", type=int, default=70, help=f"of {PORTION} samples each")
    parser.add_argument("--minutes", type=float, default=18)
    parser.add_argument("--never-held-out", default="vta", help="beginning of names that are trained on in any case")
    parser.add_argument("--report", action="store_true", help="train nothing, print what OUT finds")
    args = parser.parse_args()
    bundle = Bundle(args.bundle)
    roots = args.root or [bundle.folder / SHIPPED_FOLDER]
    files, held = split(roots, bundle, args.never_held_out)
    if not args.report:
        samples = prepared(args.work, "train", Workshop(files, bundle), range(args.portions))
        trained = train(samples, args.minutes, seed=0)
        save_tensors(args.out, {name: value.half() for name, value in trained.state_dict().items()})
    net = CoverFinderNet().eval()
    net.load_state_dict({name: value.float() for name, value in load_tensors(args.out).items()})
    strangers = Workshop(held, bundle)
    tests = {}
    for number, kind in enumerate(["none", *COVERS]):
        tests[kind] = prepared(args.work, f"test_{kind}", strangers, range(10_000 + number, 10_001 + number), kind)
    report(net, tests)


if __name__ == "__main__":
    main()
