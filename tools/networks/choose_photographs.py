"""Choose the pictures that ship with the bundle photo128: python tools/networks/choose_photographs.py PHOTOFACES.

PHOTOFACES is a folder with `manifest.csv` and `aligned256/`: synthetic photographs in FFHQ's frame at 256 px. Every one
is measured (whom it looks like, skin, pose, mouth, eyes, its label), and of each source those are taken that lie
farthest from those taken before. `REJECTED` names the pictures that a person looked at and left out.

Test and validation pictures are among those that a training on the whole folder (and on the folders of `--also`) holds
out, so that a model trained on all of it has not seen them either.

With `--sheets FOLDER` the choice is drawn as contact sheets, to be looked at. Without it the pictures and their table
are written into the bundle.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from sklearn.decomposition import PCA  # type: ignore[import-untyped]
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.data.batches import hold_out
from faceanon.data.files import list_photos
from faceanon.landmarks.mesh import FaceMesh
from faceanon.paths import checkpoints
from faceanon.weights.bundle import Bundle

# Pixels of a shipped picture. Training reads it at 256 px, where the mesh is looked for, and shrinks it to 128: at 128
# it would be enlarged to twice its size first.
SIDE = 160
QUALITY = 88
MOST_BYTES = 2_500_000

# How many of each source go into a split. Those of openpeople are persons with several pictures, as pseudonyms need.
QUOTA = {
    "test": {"faker": 10, "sfhqt2i": 19, "vta": 3, "openpeople": 16},
    "val": {"sfhqt2i": 14, "vta": 2},
    "train": {"faker": 112, "sfhqt2i": 75, "vta": 8, "openpeople": 45},
}

# Whole persons of openpeople are held out for the test: the two that look least like the others.
TEST_PERSONS = ("P007", "P008")

# Shares and seed of `PreparedFaces`, by which it holds out pictures of a whole folder.
VAL_SHARE = 0.02
TEST_SHARE = 0.04
SEED = 0

# Two pictures above this cosine of the recogniser may pass for one person: they never go to different splits.
ALIKE = 0.6

# What a picture must be to be a candidate at all.
LEAST_CONFIDENCE = 0.99
LEAST_SOURCE_SIDE = 150  # px; less was enlarged to 256 px and is soft even at 160
MOST_OUTSIDE = 0.2

# Of each source the share of training pictures nearest to their neighbours; what lies farther out is mostly deformed,
# drawn or nearly black.
TYPICAL = 0.85
NEIGHBOURS = 5

# Sheets of the source on what generators get wrong ("bad-things"), on unnatural colours, and sheets without a label.
UNFIT_LABELS = ("bad-things", "Background-Color", "Eye-Color", "eye_color", "Makeup")

# Left out after a look at the contact sheets.
REJECTED = frozenset(
    [
        "sfhqt2i_00189.jpg",
        "sfhqt2i_00227.jpg",
        "sfhqt2i_00331.jpg",
        "sfhqt2i_00362.jpg",
        "sfhqt2i_00363.jpg",
        "sfhqt2i_00448.jpg",
        "sfhqt2i_00481.jpg",
        "sfhqt2i_00526.jpg",
        "sfhqt2i_00531.jpg",
        "sfhqt2i_00559.jpg",
        "sfhqt2i_00631.jpg",
        "sfhqt2i_00633.jpg",
        "sfhqt2i_00634.jpg",
        "sfhqt2i_00792.jpg",
        "sfhqt2i_00818.jpg",
        "sfhqt2i_00820.jpg",
        "sfhqt2i_00828.jpg",
        "sfhqt2i_00837.jpg",
        "sfhqt2i_00903.jpg",
        "sfhqt2i_00920.jpg",
        "sfhqt2i_00960.jpg",
        "sfhqt2i_01069.jpg",
        "sfhqt2i_01161.jpg",
        "sfhqt2i_01219.jpg",
        "sfhqt2i_01283.jpg",
        "sfhqt2i_01285.jpg",
        "sfhqt2i_01369.jpg",
        "sfhqt2i_01510.jpg",
        "sfhqt2i_01516.jpg",
        "vta_00054.jpg",
        "vta_00143.jpg",
        "vta_00144.jpg",
        "vta_00152.jpg",
        "vta_00153.jpg",
        "vta_00174.jpg",
        "vta_00214.jpg",
        "vta_00219.jpg",
        "vta_00257.jpg",
    ]
)

# Points of the mesh: inner lips, corners of the mouth, lids and corners of both eyes, cheeks.
LIP_TOP = 13
LIP_BOTTOM = 14
MOUTH = (61, 291)
LIDS = ((159, 145), (386, 374))
EYES = ((33, 133), (362, 263))
CHEEKS = (50, 280, 117, 346)
FOREHEAD = 151
BROWS = (105, 334)


@dataclass(frozen=True)
class Candidates:
    """Pictures with what was measured on them.

    Args:
        rows: Lines of the manifest.
        pixels: `(N, 160, 160, 3)` uint8.
        embedding: `(N, 256)` float32 of unit length.
        splits: Split that each may go to.
        features: `(N, F)` float32 in which near rows look alike.
    """

    rows: list[dict[str, str]]
    pixels: NDArray[np.uint8]
    embedding: NDArray[np.float32]
    splits: list[str]
    features: NDArray[np.float32]


def main() -> None:
    """Measure, choose, and draw sheets or write the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("photofaces", type=Path, help="folder with manifest.csv and aligned256/")
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="other folders that a full training joins")
    parser.add_argument("--sheets", type=Path, help="draw the choice into this folder and write nothing else")
    parser.add_argument("--out", type=Path, default=checkpoints() / "photo128")
    options = parser.parse_args()
    held_out = splits([options.photofaces / "aligned256", *options.also])
    candidates = measured(options.photofaces, held_out)
    chosen = choice(candidates)
    if options.sheets:
        draw_sheets(candidates, chosen, options.sheets)
    else:
        write(candidates, chosen, options.out)


# --- measuring


def splits(folders: list[Path]) -> dict[str, str]:
    """Split of every picture that a training on these folders holds out, by file name of the first folder."""
    names = []
    for number, folder in enumerate(folders):
        names += [f"{number}/{photo.name}" for photo in list_photos(folder, layout="flat")]
    val, test = hold_out(names, round(VAL_SHARE * len(names)), round(TEST_SHARE * len(names)), SEED)
    found = {name.removeprefix("0/"): "val" for name in val}
    found.update({name.removeprefix("0/"): "test" for name in test})
    return found


def measured(folder: Path, held_out: dict[str, str]) -> Candidates:
    """Every fit picture of the folder with its features."""
    with (folder / "manifest.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if is_fit(row)]
    bundle = Bundle("photo128")
    mesh = FaceMesh()
    pixels = []
    embeddings = []
    meshes = []
    confidences = []
    for row in tqdm(rows, desc="measuring", unit="picture"):
        with Image.open(folder / "aligned256" / row["file"]) as image:
            full = image.convert("RGB")
        seen = np.array(full.resize((bundle.image_size, bundle.image_size), Image.Resampling.BICUBIC))
        points, confidence = mesh.points(np.asarray(full)[None])
        with torch.no_grad():
            picture = torch.from_numpy(seen).permute(2, 0, 1).float() / 127.5 - 1
            embeddings.append(bundle.recogniser(picture[None])[0].numpy())
        pixels.append(np.asarray(full.resize((SIDE, SIDE), Image.Resampling.BICUBIC)))
        meshes.append(points[0] * SIDE / full.width)
        confidences.append(confidence[0])
    found = np.flatnonzero(np.array(confidences) >= LEAST_CONFIDENCE)
    kept = [rows[number] for number in found]
    embedding = np.stack(embeddings)[found]
    drawn = np.stack(pixels)[found]
    named = [split_of(row, held_out) for row in kept]
    return Candidates(kept, drawn, embedding, named, features(kept, drawn, embedding, np.stack(meshes)[found]))


def is_fit(row: dict[str, str]) -> bool:
    """Whether a line of the manifest is a candidate, by what its source says of it."""
    sharp = int(row["crop_side_px"]) >= LEAST_SOURCE_SIDE
    inside = float(row["outside_share"]) <= MOST_OUTSIDE
    labelled = row["source"] != "sfhqt2i" or not any(label in row["label"] for label in UNFIT_LABELS)
    return row["source"] in QUOTA["train"] and sharp and inside and labelled


def split_of(row: dict[str, str], held_out: dict[str, str]) -> str:
    """Split that a line of the manifest may go to; a person's pictures go to one."""
    if row["identity"]:
        return "test" if row["identity"] in TEST_PERSONS else "train"
    return held_out.get(row["file"], "train")


def features(
    rows: list[dict[str, str]],
    pixels: NDArray[np.uint8],
    embedding: NDArray[np.float32],
    mesh: NDArray[np.float32],
) -> NDArray[np.float32]:
    """What tells pictures apart, each group scaled to its weight: `(N, F)`.

    Args:
        rows: Lines of the manifest.
        pixels: `(N, 160, 160, 3)` uint8.
        embedding: `(N, 256)` of unit length.
        mesh: `(N, 468, 2)` in pixels.
    """
    eye_distance = np.linalg.norm(mesh[:, EYES[1][1]] - mesh[:, EYES[0][0]], axis=1)
    groups = [
        (1.0, PCA(12, whiten=True, random_state=0).fit_transform(embedding)),
        (1.5, standardised(skin(pixels, mesh))),
        (1.2, standardised(pose(rows))),
        (1.5, standardised(expression(mesh) / eye_distance[:, None])),
        (0.7, PCA(8, whiten=True, random_state=0).fit_transform(thumbnails(pixels))),
        (1.0, labels(rows)),
    ]
    # Divided by the root of its width, a group of many columns counts as much as one of few.
    scaled = [weight * values / np.sqrt(values.shape[1]) for weight, values in groups]
    return np.concatenate(scaled, axis=1).astype(np.float32)


def standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns `(N, F)` with mean 0 and standard deviation 1, outliers cut at three deviations."""
    centred = values - values.mean(0)
    return np.asarray((centred / values.std(0)).clip(-3, 3))


def skin(pixels: NDArray[np.uint8], mesh: NDArray[np.float32]) -> NDArray[np.float64]:
    """Luminance of the skin and how red it is, `(N, 2)`: the median over small squares of forehead and cheeks."""
    found = []
    for picture, points in zip(pixels, mesh, strict=True):
        patches = []
        for point in (*CHEEKS, FOREHEAD):
            x, y = points[point].round().astype(int).clip(3, SIDE - 4)
            patches.append(picture[y - 3 : y + 4, x - 3 : x + 4].reshape(-1, 3))
        red, green, blue = np.median(np.concatenate(patches), axis=0)
        found.append([0.299 * red + 0.587 * green + 0.114 * blue, red - green])
    return np.array(found)


def pose(rows: list[dict[str, str]]) -> NDArray[np.float64]:
    """Yaw and pitch from the five points, `(N, 2)`: where the nose lies between eyes and mouth."""
    found = []
    for row in rows:
        x = {name: float(row[f"{name}_x"]) for name in ("leye", "reye", "nose", "lmouth", "rmouth")}
        y = {name: float(row[f"{name}_y"]) for name in ("leye", "reye", "nose", "lmouth", "rmouth")}
        eyes = (y["leye"] + y["reye"]) / 2
        mouth = (y["lmouth"] + y["rmouth"]) / 2
        yaw = (x["nose"] - x["leye"]) / (x["reye"] - x["leye"])
        pitch = (y["nose"] - eyes) / (mouth - eyes)
        found.append([yaw, pitch])
    return np.array(found)


def expression(mesh: NDArray[np.float32]) -> NDArray[np.float64]:
    """Opening and width of the mouth, lift of its corners, opening of eyes, lift of brows, `(N, 5)` in pixels."""
    lips = (mesh[:, LIP_TOP] + mesh[:, LIP_BOTTOM]) / 2
    corners = (mesh[:, MOUTH[0]] + mesh[:, MOUTH[1]]) / 2
    lids = [np.linalg.norm(mesh[:, top] - mesh[:, bottom], axis=1) for top, bottom in LIDS]
    brows = [mesh[:, lid[0], 1] - mesh[:, brow, 1] for lid, brow in zip(LIDS, BROWS, strict=True)]
    columns = [
        np.linalg.norm(mesh[:, LIP_TOP] - mesh[:, LIP_BOTTOM], axis=1),
        np.linalg.norm(mesh[:, MOUTH[0]] - mesh[:, MOUTH[1]], axis=1),
        lips[:, 1] - corners[:, 1],
        np.mean(lids, axis=0),
        np.mean(brows, axis=0),
    ]
    return np.stack(columns, axis=1).astype(np.float64)


def thumbnails(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Colour layout, `(N, 192)`: means of 8 x 8 blocks; hats, hair and background show in them."""
    blocks = pixels.reshape(len(pixels), 8, SIDE // 8, 8, SIDE // 8, 3).mean((2, 4))
    return np.asarray(blocks.reshape(len(pixels), -1) / 255)


def labels(rows: list[dict[str, str]]) -> NDArray[np.float64]:
    """The source's label of each picture as one column a label, `(N, L)`; prompts count by age and sex alone."""
    names = [label_of(row) for row in rows]
    known = sorted(set(names))
    columns = np.zeros((len(rows), len(known)))
    for number, name in enumerate(names):
        columns[number, known.index(name)] = np.sqrt(len(known))
    return columns


def label_of(row: dict[str, str]) -> str:
    """The label of a picture; of a prompt, which holds more words than there are pictures, the kind of person."""
    if row["source"] != "vta":
        return row["label"]
    kind = re.search(r"year_old|month_old", row["label"])
    return f"vta {kind.group() if kind else ''}"


# --- choosing


def choice(candidates: Candidates) -> dict[int, str]:
    """Split of every chosen candidate, by its position.

    The small splits choose first: whoever looks like one of theirs does not train.
    """
    chosen: dict[int, str] = {}
    # The two held-out splits have few pictures to choose from: there even the outliers stay.
    for split, quota in QUOTA.items():
        elsewhere = candidates.embedding[list(chosen)]
        found: list[int] = []
        for source, count in quota.items():
            own = own_candidates(candidates, source, split)
            if split == "train":
                own = own[nearest_share(candidates.features[own])]
            order = own[farthest_first(candidates.features[own])]
            # Pictures are passed over after the ranking, so that one more rejection moves no other picture.
            left = [int(number) for number in order if candidates.rows[number]["file"] not in REJECTED]
            apart = [number for number in left if not is_alike(candidates.embedding[number], elsewhere)]
            taken = by_turns(candidates, apart, count)
            if len(taken) < count:
                raise SystemExit(f"{source} has {len(taken)} fit pictures for {split}, {count} wanted: lower QUOTA")
            found += taken
        chosen.update(dict.fromkeys(found, split))
    return chosen


def own_candidates(candidates: Candidates, source: str, split: str) -> NDArray[np.int64]:
    """Positions of the candidates of one source that may go to a split."""
    pairs = zip(candidates.rows, candidates.splits, strict=True)
    fits = [row["source"] == source and own == split for row, own in pairs]
    return np.flatnonzero(fits)


def is_alike(embedding: NDArray[np.float32], others: NDArray[np.float32]) -> bool:
    """Whether a person, `(256,)`, may pass for one of others, `(N, 256)`."""
    return bool((others @ embedding > ALIKE).any())


def nearest_share(points: NDArray[np.float32]) -> NDArray[np.int64]:
    """Rows of `(N, F)` without the share whose neighbours are farthest away."""
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    to_neighbours = np.sort(distance, axis=1)[:, 1 : NEIGHBOURS + 1].mean(1)
    return np.flatnonzero(to_neighbours <= np.quantile(to_neighbours, TYPICAL))


def farthest_first(points: NDArray[np.float32]) -> NDArray[np.int64]:
    """Order of all rows `(N, F)`: the most central, then always the one farthest from all before it."""
    first = int(np.linalg.norm(points - np.median(points, axis=0), axis=1).argmin())
    order = [first]
    distance = np.linalg.norm(points - points[first], axis=1)
    while len(order) < len(points):
        distance[order] = -1
        following = int(distance.argmax())
        order.append(following)
        distance = np.minimum(distance, np.linalg.norm(points - points[following], axis=1))
    return np.array(order)


def by_turns(candidates: Candidates, order: list[int], count: int) -> list[int]:
    """The first `count` of an order in which every named person comes in turn, and unnamed ones as they stand."""
    turns: dict[str, int] = {}
    ranked = []
    for position, number in enumerate(order):
        person = candidates.rows[number]["identity"]
        turn = 0
        if person:
            turn = turns.get(person, 0)
            turns[person] = turn + 1
        ranked.append((turn, position, number))
    return [number for _, _, number in sorted(ranked)[:count]]


# --- results


def draw_sheets(candidates: Candidates, chosen: dict[int, str], folder: Path) -> None:
    """Contact sheets of 6 x 6 chosen pictures with their names, as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = sorted(chosen, key=lambda number: candidates.rows[number]["file"])
    side = 110
    for sheet, start in enumerate(range(0, len(numbers), 36)):
        canvas = Image.new("RGB", (6 * side, 6 * (side + 12)), "white")
        pen = ImageDraw.Draw(canvas)
        for place, number in enumerate(numbers[start : start + 36]):
            left = place % 6 * side
            top = place // 6 * (side + 12)
            canvas.paste(Image.fromarray(candidates.pixels[number]).resize((side, side)), (left, top + 12))
            name = candidates.rows[number]["file"].removesuffix(".jpg")
            pen.text((left + 2, top), f"{name} {chosen[number]}", "black")
        canvas.quantize(128).save(folder / f"sheet_{sheet}.png")


def write(candidates: Candidates, chosen: dict[int, str], folder: Path) -> None:
    """Write `pictures/*.jpg` and `pictures.csv` into a folder; its former pictures go."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.jpg"):
        old.unlink()
    lines = []
    total = 0
    for number in sorted(chosen, key=lambda number: candidates.rows[number]["file"]):
        row = candidates.rows[number]
        buffer = io.BytesIO()
        Image.fromarray(candidates.pixels[number]).save(buffer, "JPEG", quality=QUALITY, optimize=True)
        content = buffer.getvalue()
        (pictures / row["file"]).write_bytes(content)
        total += len(content)
        lines.append(table_row(row, chosen[number], content))
    if total > MOST_BYTES:
        raise SystemExit(f"the pictures take {total} bytes, more than {MOST_BYTES}: lower QUALITY")
    with (folder / "pictures.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(lines)
    print(f"{len(lines)} pictures, {total / 1e6:.2f} MB, {SIDE} px, JPEG quality {QUALITY}, in {pictures}")


def table_row(row: dict[str, str], split: str, content: bytes) -> dict[str, str]:
    """One line of `pictures.csv`; a picture of nobody known is a person of its own."""
    stem = Path(row["file"]).stem
    return {
        "file": row["file"],
        "person": f"{row['source']}_{row['identity']}" if row["identity"] else stem,
        "split": split,
        "source": row["source"],
        "licence": row["licence"],
        "sha256": hashlib.sha256(content).hexdigest(),
    }


if __name__ == "__main__":
    main()
