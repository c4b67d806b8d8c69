"""How YuNet's crops of aligned photographs differ from them: python tools/networks/photo_framing.py FOLDER [COUNT].

FOLDER holds aligned faces, one a file: what a bundle's networks are trained on. Each is laid, turned and resized, in a
larger picture whose edges go on as the face's border does. The exact crop is the aligned picture's own square; the
detector's is what `faceanon anonymize` cuts. Prints the bundle's `framing`, which makes the medians vanish, and how far
the mesh of the crop is from the mesh of the aligned picture, before and after framing.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.landmarks.mesh import LEFT_EYE, RIGHT_EYE, FaceMesh
from faceanon.manifest import CropGeometry
from faceanon.photo.align import geometry_from_points, reframed
from faceanon.photo.crop_paste import crop
from faceanon.photo.file import load_photo
from faceanon.photo.yunet import YunetDetector

SIDE = 256
CANVAS = 720
# Sides of the face's square in the photo, and angles, taken in turn.
SIDES = (96, 160, 256, 400)
ANGLES = (0, -25, 10, 25, -10)


def photo_with_face(face: NDArray[np.uint8], side: float, angle: float) -> tuple[NDArray[np.uint8], CropGeometry]:
    """An aligned face in the middle of a photo `(720, 720, 3)`, and its exact square.

    Args:
        face: RGB `(S, S, 3)` uint8.
        side: Side of the square in the photo, in pixels.
        angle: Turned clockwise by so many degrees.
    """
    scale = side / face.shape[0]
    turn = math.radians(angle)
    across = np.array([math.cos(turn), math.sin(turn)]) * scale
    down = np.array([-math.sin(turn), math.cos(turn)]) * scale
    linear = np.stack([across, down], 1)
    middle = np.full(2, CANVAS / 2)
    # cv2 counts from pixels' middles; ours from their corners.
    offset = middle - linear @ np.full(2, face.shape[0] / 2) + linear @ np.full(2, 0.5) - 0.5
    if scale < 1:
        face = np.asarray(cv2.GaussianBlur(face, (0, 0), 0.4 / scale), np.uint8)
    moved = cv2.warpAffine(
        face,
        np.column_stack([linear, offset]),
        (CANVAS, CANVAS),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    axis = across / scale * side / 2
    return np.asarray(moved, np.uint8), CropGeometry(*middle.tolist(), *axis.tolist())


def offset(square: CropGeometry, exact: CropGeometry) -> tuple[float, float, float, float]:
    """Framing that turns `square` into `exact` (scale, right, down) and the angle between them in degrees."""
    away = complex(exact.center_x - square.center_x, exact.center_y - square.center_y)
    # One side of the square, as a complex number; division gives shares of the side, right and down.
    shares = away / (2 * complex(square.axis_x, square.axis_y))
    turn = complex(square.axis_x, square.axis_y) / complex(exact.axis_x, exact.axis_y)
    return exact.side / square.side, shares.real, shares.imag, math.degrees(math.atan2(turn.imag, turn.real))


def as_pixels(photo: NDArray[np.uint8], square: CropGeometry) -> NDArray[np.uint8]:
    """The crop `(256, 256, 3)` uint8 of a square of a photo."""
    return np.rint((crop(photo, square, SIDE).transpose(1, 2, 0) + 1) * 127.5).astype(np.uint8)


def mesh_errors(crops: list[NDArray[np.uint8]], originals: list[NDArray[np.uint8]]) -> NDArray[np.float64]:
    """Mean distance of a face's 468 points in two pictures, in distances between the eyes, `(N,)`."""
    mesh = FaceMesh()
    wanted, _ = mesh.points(np.stack(originals))
    found, _ = mesh.points(np.stack(crops))
    eyes = wanted[:, list(RIGHT_EYE)].mean(1) - wanted[:, list(LEFT_EYE)].mean(1)
    return np.asarray(np.linalg.norm(found - wanted, axis=2).mean(1) / np.linalg.norm(eyes, axis=1), np.float64)


def main() -> None:
    """Print the table."""
    paths = sorted(path for path in Path(sys.argv[1]).iterdir() if path.suffix in (".jpg", ".png"))
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 400
    paths = paths[:: max(1, len(paths) // count)][:count]
    detector = YunetDetector()
    rows = []
    squares = []
    for number, path in enumerate(tqdm(paths, desc="detecting", leave=False)):
        side = SIDES[number % len(SIDES)]
        photo, exact = photo_with_face(load_photo(path).pixels, side, ANGLES[number % len(ANGLES)])
        faces = detector.detect(photo)
        if not faces:
            continue
        # The border goes on as noise that may look like a face: the face is the one closest to the middle.
        face = min(faces, key=lambda face: np.hypot(*(face.points.mean(0) - CANVAS / 2)))
        square = geometry_from_points(face.points)
        rows.append(offset(square, exact))
        squares.append((path, side, ANGLES[number % len(ANGLES)], square))
    table = np.array(rows)
    scale, right, down, turn = np.median(table, axis=0)
    print(f"found {len(rows)} of {len(paths)} faces")
    print(f"framing: {{scale: {scale:.3f}, right: {right:.3f}, down: {down:.3f}}}; turned by {turn:.2f} degrees")
    for name, column in zip(("scale", "right", "down", "angle"), table.T, strict=True):
        low, high = np.quantile(column, (0.1, 0.9))
        print(f"{name:<8} 80 % of the faces lie from {low:.3f} to {high:.3f}")
    originals = []
    plain = []
    framed = []
    for path, side, angle, square in squares:
        photo, exact = photo_with_face(load_photo(path).pixels, side, angle)
        originals.append(as_pixels(photo, exact))
        plain.append(as_pixels(photo, square))
        framed.append(as_pixels(photo, reframed(square, scale, right, down)))
    for name, crops in (("without", plain), ("with", framed)):
        errors = mesh_errors(crops, originals)
        low, high = np.quantile(errors, (0.5, 0.9))
        print(f"mesh {name} framing: median {low:.3f}, 90 % below {high:.3f} of the eye distance")


if __name__ == "__main__":
    main()
