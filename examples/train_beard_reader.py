"""Train what reads beards off photographs: python examples/train_beard_reader.py OUT --root FOLDER ...

OUT gets `beard.safetensors`. FOLDER holds aligned photographs of people who do not exist.
`checkpoints/photo_seers/beards.csv`, or what --labels names, says of each file whether there is a beard (0 none, 1
stubble, a moustache or a goatee, 2 a full beard, empty where nobody could tell), who is shown, whether the skin is
dark, whether the picture was drawn at random (others were looked for, since beards are few) and a number of the person.
All labels were given by eye. Every picture is learnt as it is and in other light, blurred, soft and noisy. Before the
weights are saved, the script prints what folds tell that share no person.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import Delaunay
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from faceanon.data.files import read_photo
from faceanon.files import save_tensors
from faceanon.landmarks.beard import FILE, SIDE, anchors, features
from faceanon.landmarks.drawings import NOSE_TIP
from faceanon.landmarks.geometry import turn
from faceanon.landmarks.mesh import FaceMesh
from faceanon.paths import checkpoints

LABELS = "beards.csv"
ROWS = 18  # of spots, from the nose's tip to a little below the chin
COLUMNS = 28
FRONTAL = 0.08  # turn up to which a face helps to say where the spots lie
MIDDLE = (10, 152, NOSE_TIP, 168)  # points on the middle line of a face
WAYS = ("light", "blur", "soft", "noise")  # of altering a picture
FOLDS = 8
COMPONENTS = 300  # the strongest of the features; the weights lie within them
STRENGTH = 1 / 3  # inverse of the weights' penalty
FLAGGED = 0.02  # share of bare faces that lie above .5

Array = NDArray[np.float32]
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Faces:
    """Labelled pictures.

    Args:
        pictures: `(N, 128, 128, 3)`.
        meshes: `(N, 468, 2)` in pixels.
        beard: `(N,)` of 0, 1 and 2.
        person: `(N,)`.
        drawn: `(N,)` bool, whether the picture was drawn at random.
        dark: `(N,)` bool, whether the skin is dark.
        who: `(N,)` of "man", "woman", "child" and "".
    """

    pictures: Pixels
    meshes: Array
    beard: NDArray[np.int64]
    person: NDArray[np.int64]
    drawn: NDArray[np.bool_]
    dark: NDArray[np.bool_]
    who: NDArray[np.str_]


def read_faces(labels: Path, folders: list[Path]) -> Faces:
    """The labelled pictures, without those of which nobody could tell."""
    with labels.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["beard"]]
    pictures = []
    for row in rows:
        found = [folder / row["file"] for folder in folders if (folder / row["file"]).is_file()]
        if not found:
            raise SystemExit(f"{row['file']} lies in none of the folders: name the one that holds it")
        pictures.append(read_photo(found[0], SIDE)[0])
    stacked = np.stack(pictures)
    return Faces(
        stacked,
        FaceMesh().points(stacked)[0],
        np.array([int(row["beard"]) for row in rows]),
        np.array([int(row["person"]) for row in rows]),
        np.array([row["random"] == "1" for row in rows]),
        np.array([row["dark"] == "1" for row in rows]),
        np.array([row["who"] for row in rows]),
    )


def laid_out(meshes: Array) -> dict[str, NDArray[np.generic]]:
    """Where the spots of a face lie, as `landmarks.beard.Layout`."""
    frontal = np.array([abs(turn(mesh)) < FRONTAL for mesh in meshes])
    mean = meshes[frontal].mean(0)
    # The mean face is made its own mirror image: each point goes with the one nearest to its image.
    middle = mean[list(MIDDLE), 0].mean()
    mirrored = mean * (-1, 1) + (2 * middle, 0)
    partner = np.linalg.norm(mean[:, None] - mirrored[None], axis=-1).argmin(1)
    mean = (mean + mirrored[partner]) / 2
    known = anchors(mean.astype(np.float32))
    outer = known[len(mean) :]
    across = np.linspace(-1, 1, COLUMNS) * (np.ptp(outer[:, 0]) / 2 - 3) + middle
    down = np.linspace(known[NOSE_TIP, 1] - 1, outer[:, 1].max() - 1, ROWS)
    places = np.stack(np.meshgrid(across, down), -1).reshape(-1, 2)
    triangles = Delaunay(known)
    number = triangles.find_simplex(places)
    frames = triangles.transform[number]
    two = np.einsum("nij,nj->ni", frames[:, :2], places - frames[:, 2])
    shares = np.concatenate([two, 1 - two.sum(1, keepdims=True)], 1).astype(np.float32)
    shares = shares.reshape(ROWS, COLUMNS, 3)
    points = triangles.simplices[number].astype(np.int16).reshape(ROWS, COLUMNS, 3)
    inside = (number >= 0).reshape(ROWS, COLUMNS)
    half = inside & inside[:, ::-1]
    half[:, COLUMNS // 2 :] = False
    return {
        "left_points": points[half],
        "left_shares": shares[half],
        "right_points": points[:, ::-1][half],
        "right_shares": shares[:, ::-1][half],
    }


def altered(picture: Pixels, way: str, random: np.random.Generator) -> Pixels:
    """A picture in another light, less sharp or noisier."""
    changed = picture.astype(np.float32)
    if way == "light":
        down, right = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1) - 0.5
        angle = random.uniform(0, 2 * np.pi)
        slope = random.uniform(0.3, 1.2) * (np.cos(angle) * right + 0.6 * np.sin(angle) * down)
        changed = changed * np.exp(slope + random.uniform(-0.6, 0.25))[..., None]
        changed = 255 * (changed.clip(0, 255) / 255) ** random.uniform(0.75, 1.4)
        changed = changed * np.exp(random.normal(0, 0.06, 3))
    elif way == "noise":
        noise = random.normal(0, random.uniform(2, 9), changed.shape)
        changed = _as_jpeg(changed + noise, int(random.integers(30, 70)))
    else:
        softest = 1.4 if way == "blur" else 0.9
        sharp = cv2.GaussianBlur(changed, (0, 0), random.uniform(softest - 0.5, softest))
        changed = _as_jpeg(sharp, int(random.integers(45, 90)))
    return changed.clip(0, 255).astype(np.uint8)


def _as_jpeg(picture: Array, quality: int) -> Array:
    """A picture as a JPEG file of some quality shows it."""
    data = cv2.imencode(".jpg", picture.clip(0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    seen = cv2.imdecode(data, cv2.IMREAD_COLOR)
    assert seen is not None
    return seen.astype(np.float32)


def moved(mesh: Array, random: np.random.Generator) -> Array:
    """The points of a face, a little beside their places."""
    middle = mesh.mean(0)
    size = random.uniform(0.97, 1.03)
    place: Array = (middle + (mesh - middle) * size + random.normal(0, 0.7, 2)).astype(np.float32)
    return place


def learned(values: Array, hairy: NDArray[np.bool_]) -> Pipeline:
    """A regression on values `(N, V, F)` of N pictures in V versions, which together count once."""
    versions = values.shape[1]
    parts = make_pipeline(
        StandardScaler(), PCA(COMPONENTS, random_state=0), LogisticRegression(C=STRENGTH, max_iter=2000)
    )
    everything = values.reshape(-1, values.shape[-1])
    shares = np.full(len(everything), 1 / versions)
    fitted: Pipeline = parts.fit(everything, hairy.repeat(versions), logisticregression__sample_weight=shares)
    return fitted


def folded(parts: Pipeline) -> tuple[Array, float]:
    """The regression as one weight a feature, and a start."""
    scaler, components, regression = (step for _, step in parts.steps)
    inner = regression.coef_[0] @ components.components_
    weights = inner / scaler.scale_
    start = float(regression.intercept_[0] - inner @ components.mean_ - weights @ scaler.mean_)
    return weights.astype(np.float32), start


def report(faces: Faces, scores: NDArray[np.float64], threshold: float) -> None:
    """Print what scores `(N, V)`, of persons who were not learnt, tell."""
    bare = (faces.beard == 0) & faces.drawn
    above = scores > threshold
    for which, name in ((1, "stubble, moustache or goatee"), (2, "full beard")):
        some = (faces.beard == which) & faces.drawn
        area = roc_auc_score(some[some | bare], scores[some | bare, 0])
        print(f"{name}, {some.sum()} pictures drawn at random: AUC {area:.3f}, {above[some, 0].mean():.2f} above .5")
    groups = {name: faces.who == name for name in ("woman", "child", "man")} | {"dark skin": faces.dark}
    for name, group in groups.items():
        some = bare & group
        print(f"bare, {name}, {some.sum()} pictures: {above[some, 0].mean():.3f} above .5")
    for number, way in enumerate(WAYS, 1):
        shares = [float(above[some, number].mean()) for some in (bare, faces.beard == 1, faces.beard == 2)]
        print(f"{way}: above .5 of bare, some and full beards: " + ", ".join(f"{share:.3f}" for share in shares))


def main() -> None:
    """Read, examine on folds, learn everything, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the file")
    parser.add_argument("--root", nargs="+", type=Path, required=True, help="folders of aligned photographs")
    parser.add_argument("--labels", type=Path, default=checkpoints() / "photo_seers" / LABELS)
    options = parser.parse_args()
    faces = read_faces(options.labels, options.root)
    layout = laid_out(faces.meshes)
    random = np.random.default_rng(1)
    values = []
    for picture, mesh in zip(faces.pictures, faces.meshes, strict=True):
        versions = [features(picture, mesh, layout)]
        for way in WAYS:
            versions.append(features(altered(picture, way, random), moved(mesh, random), layout))
        values.append(np.stack(versions))
    stacked = np.stack(values)
    hairy = faces.beard > 0
    scores = np.zeros(stacked.shape[:2])
    for known, new in GroupKFold(FOLDS).split(hairy, groups=faces.person):
        weights, start = folded(learned(stacked[known], hairy[known]))
        scores[new] = stacked[new] @ weights + start
    # .5 is where scores of persons who were not learnt leave so many bare faces above.
    threshold = float(np.quantile(scores[(faces.beard == 0) & faces.drawn, 0], 1 - FLAGGED))
    report(faces, scores, threshold)
    weights, start = folded(learned(stacked, hairy))
    tensors = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in layout.items()}
    tensors |= {"weights": torch.from_numpy(weights), "start": torch.tensor(start - threshold)}
    print(options.out / FILE, save_tensors(options.out / FILE, tensors))


if __name__ == "__main__":
    main()
