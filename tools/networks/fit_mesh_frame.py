#!/usr/bin/env python3
"""The frame in which faces have one pose and one shape, from the meshes of photographs.

  python tools/networks/fit_mesh_frame.py OUT.safetensors --pictures FOLDER ...

Its points are the mean mesh of those photographs whose mouth is a little open, so that lips do not lie on each other.
It takes aligned photographs, and writes what `checkpoints/photo128_mesh/bundle.yaml` names as `frame`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from faceanon.data.files import list_photos, read_photo
from faceanon.files import save_tensors, sha256
from faceanon.landmarks.mesh import FaceMesh

SIDE = 128
READ_SIDE = 256
CLEAR = 0.5  # confidence of the mesh
LIPS = (13, 14)  # middles of the inner lips
OPEN = (0.8, 0.9)  # quantiles of how open the mouths are
CORNER = (0.126, 0.125)  # of the frame in FFHQ's, x and y: about the square that recognisers look at ...
LENGTH = 0.76  # ... and its side


def meshes(folders: list[Path]) -> NDArray[np.float32]:
    """`(N, 468, 2)` with pictures from 0 to 1."""
    finder = FaceMesh()
    found = []
    for folder in folders:
        photos = list_photos(folder)
        for start in range(0, len(photos), 32):
            pictures = [read_photo(photo.path, READ_SIDE)[0] for photo in photos[start : start + 32]]
            points, confidence = finder.points(np.stack(pictures))
            found.append(points[confidence >= CLEAR, :, :2] / READ_SIDE)
    return np.concatenate(found)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.safetensors")
    parser.add_argument("--pictures", type=Path, nargs="+", required=True, metavar="FOLDER")
    given = parser.parse_args()
    points = meshes(given.pictures)
    gap = np.linalg.norm(points[:, LIPS[0]] - points[:, LIPS[1]], axis=1)
    low, high = np.quantile(gap, OPEN)
    mean = points[(gap >= low) & (gap <= high)].mean(0)
    inside = (mean - np.array(CORNER)) / LENGTH
    outline = cv2.convexHull((inside * SIDE).astype(np.float32))[:, 0]
    hull = np.zeros((SIDE, SIDE), np.uint8)
    cv2.fillConvexPoly(hull, outline.round().astype(np.int32), 1)
    tensors = {"points": torch.from_numpy(inside * 2 - 1).float(), "hull": torch.from_numpy(hull).float()}
    save_tensors(given.out, tensors)
    print(f"{len(points)} faces; {given.out}, sha256 {sha256(given.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
