"""A clip of 1280 x 720 px at 25 frames a second with two people who do not exist, to measure videos on.

  python benchmarks/video_clip.py clip30.mp4 --frames 30

Both sway and nod before a pattern that stands still. The same number of frames gives the same clip.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

from faceanon.paths import checkpoints

RATE = 25
SIDE = 300  # pixels of a person


def main() -> None:
    """Write the clip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--frames", type=int, default=100)
    options = parser.parse_args()
    people = []
    for path in sorted((checkpoints() / "photo128" / "pictures").glob("*.jpg"))[:2]:
        with Image.open(path) as picture:
            people.append(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    cells = np.random.default_rng(0).integers(60, 200, (18, 32, 3), dtype=np.uint8)
    background = Image.fromarray(cells).resize((1280, 720), Image.Resampling.BICUBIC)
    with av.open(str(options.target), "w") as out:
        stream = out.add_stream("libx264", rate=RATE, options={"crf": "18"})
        stream.width = 1280
        stream.height = 720
        stream.pix_fmt = "yuv420p"
        for index in range(options.frames):
            shot = background.copy()
            for number, person in enumerate(people):
                second = index / RATE + number
                turned = person.rotate(6 * np.sin(2 * second), Image.Resampling.BICUBIC)
                left = 200 + 480 * number + 80 * np.sin(second)
                shot.paste(turned, (int(left), int(180 + 60 * np.cos(1.3 * second))))
            frame = av.VideoFrame.from_ndarray(np.asarray(shot), "rgb24")
            frame.pts = index
            frame.time_base = Fraction(1, RATE)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


if __name__ == "__main__":
    main()
