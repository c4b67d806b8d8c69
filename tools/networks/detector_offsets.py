"""How far MTCNN's crops of procedural faces are from the exact ones: python tools/networks/detector_offsets.py [COUNT].

Each face is drawn at 256 px in the middle of a picture of twice that side, whose edges go on as the face's border does.
The exact crop is the face's own square, which is what training sees; the detector's is what `faceanon anonymize` cuts.
Prints medians, and the quantiles between which 80 % of the faces lie: the numbers to set `jitter` by.
"""

import math
import sys

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.data.streams import stream
from faceanon.data.synthetic.factors import sample_attributes, sample_identity
from faceanon.data.synthetic.render import render
from faceanon.photo.align import geometry_from_points
from faceanon.photo.detect import MtcnnDetector

SIDE, MARGIN = 256, 128
NAMES = ("scale - 1", "shift right / side", "shift down / side", "rotation in degrees")


def offsets(count: int, occlusion: float = 0.3, seed: int = 0) -> NDArray[np.float64]:
    """Scale - 1, shift right, shift down (shares of the side), rotation (degrees) per face that was found, `(N, 4)`."""
    generator, detector = stream("detector offsets", seed), MtcnnDetector()
    persons, attributes = sample_identity(count, generator), sample_attributes(count, generator, occlusion)
    found = []
    for row in tqdm(range(count), desc="detecting", leave=False):
        image = render(persons[row : row + 1], attributes[row : row + 1], SIDE).image[0]
        pixels = ((image.permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()
        faces = detector.detect(np.pad(pixels, ((MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)), mode="edge"))
        if faces:
            crop, middle = geometry_from_points(faces[0].points), MARGIN + SIDE / 2
            turn = math.degrees(math.atan2(crop.axis_y, crop.axis_x))
            shift = (crop.center_x - middle) / SIDE, (crop.center_y - middle) / SIDE
            found.append((crop.side / SIDE - 1, *shift, turn))
    return np.array(found).reshape(-1, len(NAMES))


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    table = offsets(count)
    print(f"found {len(table)} of {count} faces")
    if not len(table):
        return
    print(f"{'':<22}{'median':>9}{'10 %':>9}{'90 %':>9}{'90 % of |x|':>13}")
    for name, column in zip(NAMES, table.T, strict=True):
        low, middle, high = np.quantile(column, (0.1, 0.5, 0.9))
        print(f"{name:<22}{middle:>9.3f}{low:>9.3f}{high:>9.3f}{np.quantile(np.abs(column), 0.9):>13.3f}")


if __name__ == "__main__":
    main()
