"""What the cover finder releases in photographs: cells that Persona leaves as they are.

    python examples/cover_figures.py FOLDER [--labels FOLDER] [--size 128] [--limit N] [--sheet FILE.png]

FOLDER holds aligned photographs in FFHQ's frame. --labels is a folder with a PNG a picture, `NAME.png`, of class
numbers in the order of CelebAMask-HQ; a cell belongs to the class that takes more than half of it. Without labels the
script prints what share of all faces' cells is released. The sheet shows pictures beside what stays of them.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F
from tqdm import tqdm

from faceanon.data.files import list_photos, read_photo
from faceanon.data.prepared import CLEAR
from faceanon.landmarks.cover_cells import eye_cells
from faceanon.landmarks.cover_finder import CoverFinder
from faceanon.landmarks.drawings import FINE, LEFT_EYE, RIGHT_EYE, drawings
from faceanon.landmarks.mesh import FaceMesh
from faceanon.weights.bundle import Bundle

CLASSES = {
    "skin": (1,),
    "nose": (2,),
    "eyes": (4, 5),
    "brows": (6, 7),
    "mouth": (10, 11, 12),
    "hair": (13,),
    "hat": (14,),
    "dark glasses": (3,),
    "clear glasses": (3,),
    "background": (0,),
}
FACE = ("skin", "nose", "eyes", "brows", "mouth")
DARK = 0.22  # mean brightness of a picture's glasses, from 0 to 1, below which they count as dark
PORTION = 16


def shares(labels: NDArray[np.uint8], cells: int) -> dict[str, NDArray[np.float32]]:
    """Share of every cell that classes take, `(cells, cells)` each."""
    side = labels.shape[0] // cells
    found = {}
    for name, numbers in CLASSES.items():
        part = np.isin(labels, numbers).astype(np.float32)
        found[name] = part.reshape(cells, side, cells, side).mean((1, 3))
    return found


def main() -> None:
    """Look at all pictures and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--sheet", type=Path)
    args = parser.parse_args()
    photos = list_photos(args.folder)
    if args.limit is not None:
        # Spread over the folder, so that many persons are among them.
        photos = photos[:: max(1, len(photos) // args.limit)][: args.limit]
    if args.labels is not None:
        photos = [photo for photo in photos if (args.labels / f"{photo.path.stem}.png").is_file()]
    bundle = Bundle("photo128")
    mesh = FaceMesh()
    finder = CoverFinder()
    released: dict[str, float] = defaultdict(float)
    cells_of: dict[str, float] = defaultdict(float)
    faces_with = 0
    faces = 0
    sheet = []
    for start in tqdm(range(0, len(photos), PORTION)):
        part = photos[start : start + PORTION]
        large = np.stack([read_photo(photo.path, 256)[0] for photo in part])
        pixels = np.stack([read_photo(photo.path, args.size)[0] for photo in part])
        image = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
        places, confidence = mesh.points(pixels)
        meshes = torch.from_numpy(places) / args.size * 2 - 1
        with torch.inference_mode():
            latents = bundle.codec.encode(image)
        count = latents.shape[-1]
        lines, masks = drawings(meshes, image, count)
        covers = finder.covers(latents, torch.cat([masks, F.avg_pool2d(lines, FINE)], 1), meshes)
        for row, photo in enumerate(part):
            if confidence[row] < CLEAR:
                continue
            mask = masks[row, 0].numpy() > 0.5
            cover = covers[row, 0].numpy() > 0.5
            faces += 1
            faces_with += int(cover.any())
            groups = {"all": mask}
            own = meshes[row].numpy()
            groups["eyes of the mesh"] = eye_cells(own, LEFT_EYE, count) | eye_cells(own, RIGHT_EYE, count)
            if args.labels is not None:
                with Image.open(args.labels / f"{photo.path.stem}.png") as file:
                    labels = np.array(file.resize((256, 256), Image.Resampling.NEAREST))
                glasses = large[row][labels == 3]
                absent = "dark glasses"
                if len(glasses) and glasses.mean() / 255 < DARK:
                    absent = "clear glasses"
                for name, share in shares(labels, count).items():
                    if name != absent:
                        groups[name] = share > 0.5
                groups["face"] = np.logical_or.reduce([groups[name] for name in FACE])
            for name, cells in groups.items():
                released[name] += float((cells & mask & cover).sum())
                cells_of[name] += float((cells & mask).sum())
            if cover.any():
                sheet.append(_shown(large[row], mask, cover))
    print(f"{faces} faces, {faces_with} with covers; size {args.size}")
    for name, total in cells_of.items():
        print(f"{name:18} {total:8.0f} cells, released {100 * released[name] / max(total, 1):6.2f} %")
    if args.sheet is not None and sheet:
        _save(sheet, args.sheet)


def _shown(picture: NDArray[np.uint8], mask: NDArray[np.bool_], cover: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """A picture, beside it the same with all that is painted in green."""
    side = len(picture) // len(mask)
    painted = (mask & ~cover).repeat(side, 0).repeat(side, 1)
    other = picture.copy()
    other[painted] = other[painted] // 3 + np.array([0, 120, 0], np.uint8)
    return np.concatenate([picture, other], 1)[::2, ::2]


def _save(rows: list[NDArray[np.uint8]], path: Path) -> None:
    """Pictures in rows of six, at most 60."""
    chosen = rows[:: max(1, len(rows) // 60)][:60]
    while len(chosen) % 6:
        chosen.append(np.zeros_like(chosen[0]))
    lines = [np.concatenate(chosen[start : start + 6], 1) for start in range(0, len(chosen), 6)]
    Image.fromarray(np.concatenate(lines)).save(path)


if __name__ == "__main__":
    main()
