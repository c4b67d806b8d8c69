"""How many faces of photographs detectors find: detector_recall.py FACES.json FOLDER NEGATIVES [OTHER...].

FACES.json names the faces of FOLDER's pictures, `{picture: {"faces": [[x1, y1, x2, y2], ...], "open": [...]}}`: boxes
under "open" count neither as faces nor as errors. NEGATIVES holds pictures without a face. Each OTHER is `NAME=FILE`,
what another program found, as examples/centerface_boxes.py writes it. Prints one row a detector: recall from 12, 20 and
40 px on, other boxes of 12 px and more, pictures without a face in which one is found, and the time of a photo whose
longer side has 1000 px or more, in one thread.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.ops import box_iou

from faceanon.photo.detect import Detector, MtcnnConfig, MtcnnDetector
from faceanon.photo.file import load_photo
from faceanon.photo.yunet import YunetDetector

Boxes = NDArray[np.float64]  # (N, 4): x1, y1, x2, y2 in pixels
SAME = 0.3  # intersection over union of a face and its detection; boxes of tiny faces differ much between networks
SIZES = (12, 20, 40)
ENDINGS = (".jpg", ".png")
LARGE = 1000  # px; photos whose longer side has as many are timed


def sizes(boxes: Boxes) -> NDArray[np.float64]:
    """Sides of squares of the boxes' areas, in pixels, `(N,)`."""
    sides = np.clip(boxes[:, 2:] - boxes[:, :2], 0, None)
    return np.asarray(np.sqrt(sides[:, 0] * sides[:, 1]), np.float64)


def overlaps(some: Boxes, others: Boxes) -> NDArray[np.float64]:
    """Intersection over union `(N, M)`."""
    return np.asarray(box_iou(torch.from_numpy(some), torch.from_numpy(others)).numpy(), np.float64)


def found_faces(faces: Boxes, boxes: Boxes) -> NDArray[np.bool_]:
    """Which faces have a box of their own, `(N,)`; the best pairs are matched first."""
    shares = overlaps(faces, boxes)
    pairs = sorted(np.argwhere(shares > SAME).tolist(), key=lambda pair: -shares[pair[0], pair[1]])
    found = np.zeros(len(faces), bool)
    taken = set()
    for face, box in pairs:
        if not found[face] and box not in taken:
            found[face] = True
            taken.add(box)
    return found


def wrong_boxes(boxes: Boxes, faces: Boxes, unsure: Boxes) -> int:
    """How many boxes of 12 px and more lie on nothing that may be a face."""
    large = boxes[sizes(boxes) >= SIZES[0]]
    known = np.concatenate([faces, unsure])
    return int((overlaps(large, known).max(1, initial=0) <= SAME).sum())


def searched(paths: list[Path], find: Callable[[NDArray[np.uint8]], Boxes]) -> tuple[dict[str, Boxes], float]:
    """What a detector finds in pictures, by folder and name, and its mean seconds for a large photo."""
    found = {}
    seconds = []
    for path in paths:
        image = load_photo(path).pixels
        start = time.perf_counter()
        boxes = find(image)
        if max(image.shape) >= LARGE:
            seconds.append(time.perf_counter() - start)
        found[f"{path.parent.name}/{path.name}"] = boxes
    return found, float(np.mean(seconds))


def of_detector(detector: Detector) -> Callable[[NDArray[np.uint8]], Boxes]:
    """Boxes alone of what a detector finds."""
    return lambda image: np.array([face.box for face in detector.detect(image)], np.float64).reshape(-1, 4)


def joined(some: Boxes, others: Boxes) -> Boxes:
    """All of the first boxes, and those of the second that lie elsewhere."""
    return np.concatenate([some, others[overlaps(others, some).max(1, initial=0) <= SAME]])


def row(name: str, found: dict[str, Boxes], reference: dict[str, tuple[Boxes, Boxes]], seconds: float) -> str:
    """A line of the table."""
    hits = []
    sides = []
    wrong = 0
    for picture, (faces, unsure) in reference.items():
        boxes = found[picture]
        hits.append(found_faces(faces, boxes))
        sides.append(sizes(faces))
        wrong += wrong_boxes(boxes, faces, unsure)
    hit = np.concatenate(hits)
    side = np.concatenate(sides)
    cells = []
    for least in SIZES:
        chosen = hit[side >= least]
        cells.append(f"{chosen.mean():.3f} ({int(chosen.sum())} of {len(chosen)})")
    negatives = [boxes for picture, boxes in found.items() if picture not in reference]
    fooled = sum(bool((sizes(boxes) >= SIZES[0]).any()) for boxes in negatives)
    return " | ".join([f"| {name}", *cells, str(wrong), f"{fooled} of {len(negatives)}", f"{seconds:.2f} |"])


def read_reference(file: Path, folder: Path) -> dict[str, tuple[Boxes, Boxes]]:
    """Faces and open cases of each picture, by folder and name."""
    reference = {}
    for picture, boxes in json.loads(file.read_text(encoding="utf-8")).items():
        faces = np.array(boxes["faces"], np.float64).reshape(-1, 4)
        unsure = np.array(boxes["open"], np.float64).reshape(-1, 4)
        reference[f"{folder.name}/{picture}"] = (faces, unsure)
    return reference


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    folder = Path(sys.argv[2])
    reference = read_reference(Path(sys.argv[1]), folder)
    paths = [
        path for place in (folder, Path(sys.argv[3])) for path in sorted(place.iterdir()) if path.suffix in ENDINGS
    ]
    yunet = YunetDetector()
    large = {f"{path.parent.name}/{path.name}" for path in paths if max(load_photo(path).pixels.shape) >= LARGE}
    print("| detector | recall, 12 px and more | 20 px | 40 px | other boxes | negatives | s a photo |")
    print("|---" * 7 + "|")
    ours, ours_seconds = searched(paths, of_detector(yunet))
    print(row("YuNet, several views that agree (the default)", ours, reference, ours_seconds), flush=True)
    # 0.9 is OpenCV's default, 0.6 that of the network's authors.
    for threshold in (0.5, 0.6, 0.9):
        found, seconds = searched(paths, lambda image, least=threshold: yunet.view(image, 1.0, least)[:, :4])  # type: ignore[misc]
        print(row(f"YuNet, one view, {threshold}", found, reference, seconds), flush=True)
    mtcnn, seconds = searched(paths, of_detector(MtcnnDetector(MtcnnConfig(min_face=12))))
    print(row("MTCNN, from 12 px", mtcnn, reference, seconds), flush=True)
    both = {picture: joined(boxes, mtcnn[picture]) for picture, boxes in ours.items()}
    print(row("YuNet, several views, and MTCNN", both, reference, ours_seconds + seconds), flush=True)
    for other in sys.argv[4:]:
        name, file = other.split("=", 1)
        known = json.loads(Path(file).read_text(encoding="utf-8"))
        boxes = {picture: np.array(one["boxes"], np.float64).reshape(-1, 5)[:, :4] for picture, one in known.items()}
        seconds = float(np.mean([known[picture]["seconds"] for picture in large]))
        print(row(name, boxes, reference, seconds), flush=True)


if __name__ == "__main__":
    main()
