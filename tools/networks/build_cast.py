"""Build the cast, the invented people whose faces Persona puts on: python tools/networks/build_cast.py OUT FOLDER ...

`checkpoints/photo_seers/cast.csv` names their photographs: each of another person who does not exist, seen from the
front in soft light, without glasses and without hair over the face, and none of the bundle's test split. They were
chosen by eye among those that figures let through: a mesh that is about symmetric, open eyes, light that hardly changes
across the face, nobody twice. Each was put on two faces and looked at. FOLDER holds the photographs, aligned as
FFHQ's are and 256 px wide. OUT gets `cast.safetensors`, which `faceanon.landmarks.cast` reads.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial import Delaunay
from torch import Tensor
from torch.nn import functional as F

from faceanon.backbones.persona import Persona
from faceanon.files import save_tensors
from faceanon.landmarks.cast import FILE, SIDE
from faceanon.landmarks.drawings import LEFT_CHEEK, MOUTH_CORNERS, NOSE_TIP, OUTLINE, RIGHT_CHEEK, pupils
from faceanon.landmarks.swap import aligned, appearance_of
from faceanon.paths import checkpoints

AROUND = 8  # pixels that are kept around a face
QUALITY = 86  # of the WebP pictures
LEFT_EYE_CORNERS = (33, 133)  # the outer one first
RIGHT_EYE_CORNERS = (263, 362)
MIDDLE = (NOSE_TIP, 10, 152)  # points on the middle line of a face: nose, forehead, chin


def read_pictures(folders: list[Path]) -> NDArray[np.uint8]:
    """The photographs of the list, `(N, 256, 256, 3)` RGB."""
    pictures = []
    with (checkpoints() / "photo_seers" / "cast.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            found = [folder / row["file"] for folder in folders if (folder / row["file"]).is_file()]
            if not found:
                raise SystemExit(f"{row['file']} lies in none of the folders: name the one that holds it")
            picture = cv2.imread(str(found[0]))
            if picture is None or picture.shape != (SIDE, SIDE, 3):
                raise SystemExit(f"{found[0]} is no picture of {SIDE} x {SIDE} px: align it first")
            pictures.append(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))
    return np.stack(pictures).astype(np.uint8)


def persons_in(pictures: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Identity codes `(N, 64)` and embeddings `(N, E)` of the persons, as Persona sees them at 128 px."""
    method = Persona().eval()
    faces = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1
    codes = []
    embeddings = []
    with torch.no_grad():
        for part in torch.split(F.avg_pool2d(faces, 2), 16):
            codes.append(method.encode(part).identity)
            embeddings.append(method.bundle.recogniser(part))
    return torch.cat(codes), torch.cat(embeddings)


def mean_mesh(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean `(468, 3)` of meshes `(N, 468, 3)`, all turned as the first one is, which is seen from the front."""
    everything = np.ones(points.shape[1], bool)
    mean: NDArray[np.float32] = np.mean([aligned(mesh, points[0], everything) for mesh in points], 0)
    return mean


def triangles_of(mean: NDArray[np.float32]) -> NDArray[np.int32]:
    """A net of triangles `(T, 3)` over the 468 points, of the mean mesh `(468, 3)`."""
    net: NDArray[np.int32] = Delaunay(mean[:, :2]).simplices.astype(np.int32)
    return net


def mirrored_points(mean: NDArray[np.float32]) -> NDArray[np.int16]:
    """Which of the 468 points lies where another one does in a mirror, `(468,)`, of the mean mesh `(468, 3)`.

    A face is about symmetric, so it is the nearest point of that mesh's mirror image, each point taken once.
    """
    # Eyes, cheeks, corners of the mouth and the middle line say how the mirror image lies on the mesh.
    left = [*LEFT_EYE_CORNERS, LEFT_CHEEK, MOUTH_CORNERS[0], *MIDDLE]
    right = [*RIGHT_EYE_CORNERS, RIGHT_CHEEK, MOUTH_CORNERS[1], *MIDDLE]
    image = mean * np.array([-1, 1, 1], np.float32)
    known = np.zeros(len(mean), bool)
    known[left + right] = True
    target = mean.copy()
    target[left + right] = mean[right + left]
    image = aligned(image, target, known)
    gaps = np.linalg.norm(image[:, None] - mean[None], axis=-1)
    partners: NDArray[np.int16] = linear_sum_assignment(gaps)[1].astype(np.int16)
    return partners


def main() -> None:
    """Look at the photographs, cut the faces out, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the file")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders of aligned photographs")
    arguments = parser.parse_args()
    pictures = read_pictures(arguments.folders)
    points, _ = Persona().mesh.solid(pictures)
    cut = []
    shifted = []
    looks = []
    tones = []
    brows = []
    for picture, mesh in zip(pictures, points, strict=True):
        outline = mesh[list(OUTLINE), :2]
        left, top = np.floor(outline.min(0) - AROUND).clip(0).astype(int)
        right, bottom = np.ceil(outline.max(0) + AROUND).clip(None, SIDE).astype(int)
        part = cv2.cvtColor(picture[top:bottom, left:right], cv2.COLOR_RGB2BGR)
        cut.append(cv2.imencode(".webp", part, [cv2.IMWRITE_WEBP_QUALITY, QUALITY])[1].ravel())
        shifted.append(mesh - np.array([left, top, 0], np.float32))
        looks.append(pupils(picture, mesh[:, :2]) - np.array([left, top], np.float32))
        appearance = appearance_of(picture, mesh)
        tones.append(appearance.tone)
        brows.append(appearance.brows)
    codes, embeddings = persons_in(pictures)
    mean = mean_mesh(points)
    tensors = {
        "pictures": torch.from_numpy(np.concatenate(cut)),
        "starts": torch.tensor([0, *np.cumsum([len(part) for part in cut])], dtype=torch.int32),
        "points": torch.from_numpy(np.stack(shifted)).half(),
        "pupils": torch.from_numpy(np.stack(looks)).half(),
        "codes": codes.half(),
        "embeddings": embeddings.half(),
        "tones": torch.from_numpy(np.stack(tones)).half(),
        "brows": torch.tensor(brows).half(),
        "triangles": torch.from_numpy(triangles_of(mean)).short(),
        "mirrored": torch.from_numpy(mirrored_points(mean)),
    }
    digest = save_tensors(arguments.out / FILE, tensors)
    print(f"{len(pictures)} people, sha256 {digest}")


if __name__ == "__main__":
    main()
