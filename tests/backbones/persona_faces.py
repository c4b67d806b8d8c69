"""Photographs that ship, as Persona and its stages get them."""

import csv

import numpy as np
import torch

from faceanon.data.files import read_photo
from faceanon.paths import checkpoints
from faceanon.types import FaceBatch

SHIPPED = checkpoints() / "photo128"


def named_faces(names, side=128):
    """Pictures of the shipped bundle, `(B, 3, side, side)` in [-1, 1]."""
    pictures = np.stack([read_photo(SHIPPED / "pictures" / name, side)[0] for name in names])
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1


def held_out_faces(count=4, side=128):
    """The first pictures that no training saw."""
    with (SHIPPED / "pictures.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [row["file"] for row in rows if row["split"] == "test" and row["source"] == "faker"]
    return named_faces(names[:count], side)


def prepared(persona, faces):
    """A training batch with what a cache holds beside the pictures."""
    networks = persona.use.networks
    image = faces.numpy()
    unknown = torch.full((len(faces),), -1)
    return FaceBatch(
        faces,
        unknown,
        unknown,
        latents=torch.from_numpy(networks.encode(image)),
        mesh=torch.from_numpy(networks.points(image)[0][..., :2].copy()),
        embedding=torch.from_numpy(networks.embed(image)),
    )
