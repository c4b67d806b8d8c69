"""Does memory grow over a long clip? How much `faceanon anonymize` and `recover` hold, by quarters of their runs.

  python benchmarks/video_memory.py work --minutes 60 --rate 5

It draws ten seconds of 640 x 360 px with one person who does not exist, before a pattern that stands still, and repeats
them. Memory is what the system says of the process (Linux), twice a second.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

from faceanon.paths import checkpoints

WIDTH = 640
HEIGHT = 360
SIDE = 200  # pixels of the person
LOOP = 10  # seconds that repeat
PASSWORD = "the password of a memory test"  # nothing that it protects is secret


def draw_clip(target: Path, seconds: float, rate: int) -> int:
    """Write the clip; its number of frames."""
    path = sorted((checkpoints() / "photo128" / "pictures").glob("*.jpg"))[0]
    with Image.open(path) as picture:
        person = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    cells = np.random.default_rng(0).integers(60, 200, (9, 16, 3), dtype=np.uint8)
    background = Image.fromarray(cells).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    shots = []
    for index in range(LOOP * rate):
        turn = 2 * np.pi * index / (LOOP * rate)
        shot = background.copy()
        shot.paste(person.rotate(6 * np.sin(2 * turn), Image.Resampling.BICUBIC), (int(220 + 60 * np.sin(turn)), 80))
        shots.append(np.asarray(shot))
    frames = round(seconds * rate)
    with av.open(str(target), "w") as out:
        stream = out.add_stream("libx264", rate=rate, options={"crf": "20", "preset": "ultrafast"})
        stream.width = WIDTH
        stream.height = HEIGHT
        stream.pix_fmt = "yuv420p"
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(shots[index % len(shots)], "rgb24")
            frame.pts = index
            frame.time_base = Fraction(1, rate)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return frames


def resident(process: subprocess.Popen[bytes]) -> float:
    """Resident memory in MB of a running process."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def watched(verb: str, source: Path, target: Path) -> tuple[float, list[float]]:
    """Run a `faceanon` command; its seconds, and the highest memory in MB in each quarter of them.

    Raises:
        SystemExit: The command failed.
    """
    line = [sys.executable, "-m", "faceanon", verb, str(source), str(target), "--password-env", "FACEANON_CLIP"]
    begun = time.monotonic()
    seen = []
    with (target.parent / f"{verb}.log").open("wb") as log:
        environment = {**os.environ, "FACEANON_CLIP": PASSWORD}
        process = subprocess.Popen(line, env=environment, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            seen.append((time.monotonic() - begun, resident(process)))
            time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{verb} ended with {process.returncode}; see {target.parent / f'{verb}.log'}")
    taken = time.monotonic() - begun
    quarters = [0.0] * 4
    for second, megabytes in seen:
        part = min(3, int(4 * second / taken))
        quarters[part] = max(quarters[part], megabytes)
    return taken, quarters


def main() -> None:
    """Draw, anonymize, recover, and print memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder for the clips; it is made anew")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=5, help="frames a second")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    clip = options.work / "clip.mp4"
    frames = draw_clip(clip, 60 * options.minutes, options.rate)
    print(f"{frames} frames, {options.minutes:g} minutes", flush=True)
    hidden = options.work / "hidden.mp4"
    for verb, source, target in (("anonymize", clip, hidden), ("recover", hidden, options.work / "back.mp4")):
        taken, quarters = watched(verb, source, target)
        memory = ", ".join(f"{megabytes:.0f}" for megabytes in quarters)
        print(
            f"{verb}: {taken:.0f} s, {frames / taken:.1f} frames a second, at most {memory} MB by quarters", flush=True
        )


if __name__ == "__main__":
    main()
