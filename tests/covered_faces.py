"""Shipped photographs, and medical masks drawn onto them: covers whose place is known."""

import csv

import cv2
import numpy as np
import torch

from faceanon.data.files import read_photo
from faceanon.landmarks.mesh import FaceMesh
from faceanon.paths import checkpoints

SHIPPED = checkpoints() / "photo128"
# The edge of a mask: from ear to ear over the nose, and back along the jaw.
EDGE = (234, 118, 100, 195, 329, 347, 454, 361, 397, 379, 400, 152, 176, 150, 172, 132)


def whole_faces(size, count=4):
    """Pictures of the shipped test split, `(count, size, size, 3)` uint8, at most four; nothing is in front."""
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [row["file"] for row in rows if row["split"] == "test" and row["source"] == "faker"]
    # The first ones have long hair, some of it in front of the face.
    chosen = names[6 : 6 + count]
    return np.stack([read_photo(SHIPPED / "pictures" / name, size)[0] for name in chosen])


def with_masks(faces):
    """The faces under light blue masks, and the pixels that the masks take `(B, S, S)` bool."""
    points, _ = FaceMesh().points(faces)
    worn = []
    taken = []
    for face, mesh in zip(faces, points, strict=True):
        shape = np.zeros(face.shape[:2], np.uint8)
        cv2.fillPoly(shape, [np.round(mesh[list(EDGE)]).astype(np.int32)], 1)
        rows = np.arange(len(face))[:, None]
        pleats = 1 - 0.15 * (np.sin(rows * 2 * np.pi / (len(face) / 12)) > 0.8)
        colour = np.array([150, 195, 220]) * pleats[..., None]
        soft = cv2.GaussianBlur(shape.astype(np.float32), (0, 0), len(face) / 200)[..., None]
        worn.append((face * (1 - soft) + colour * soft).round().astype(np.uint8))
        taken.append(shape > 0)
    return np.stack(worn), np.stack(taken)


def images(faces):
    """Pictures `(B, S, S, 3)` uint8 as `(B, 3, S, S)` in [-1, 1]."""
    return torch.from_numpy(faces).permute(0, 3, 1, 2).float() / 127.5 - 1
