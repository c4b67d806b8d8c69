"""Does a run over a folder lose, double or spoil anything when it is killed again and again, and when the disk is full?

  python benchmarks/load_test.py work --photos 300 --kills 20
  python benchmarks/load_test.py work --photos 300 --kills 20 --disk 40    # OUT on a disk of 40 MB at first; needs root
  python benchmarks/load_test.py work --photos 300 --kills 0 --memory      # no kill: how its memory goes over time

It draws photographs of people who do not exist (PNG, JPEG and WebP of 240 to 2000 px, one to four persons each; some
without a face, some cut short, some empty) into work/in, runs `faceanon anonymize work/in work/out` as a process of its
own, kills it (SIGKILL) at random moments, and starts it again with the same words until it ends by itself. With --disk
the results first go to a small file system, which is full soon; it is made larger once the command has said so. Then
everything is counted: each photo has its result or is named as skipped, with the reason; no photo was finished twice;
every result opens, has the size of its photo and carries its manifest; no unfinished file is left; some of the results
give the faces back. The exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import collections
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from faceanon.errors import UserError
from faceanon.metrics.quality import psnr
from faceanon.paths import checkpoints
from faceanon.photo.file import load_photo, read_manifest
from faceanon.pipeline.many.journal import JOURNAL_NAME

FORMATS = (".png", ".jpg", ".webp")
UNFIT = {"empty": 0.02, "cut": 0.03, "text": 0.02, "faceless": 0.07}  # shares of photos; the rest shows people
SIDES = ((240, 0.45), (320, 0.35), (480, 0.2))  # of a person in pixels, and how often
LEAST_RECOVERED = 25.0  # dB over whole photos, of a recovered against its original
PASSWORD = "the password of a load test"  # nothing that it protects is secret


@dataclass
class Run:
    """What happened until a folder was done.

    Args:
        starts: How often the command was started.
        kills: How often it was killed before it ended.
        full: How often it ended because the disk was full.
        seconds: By the clock.
        memory: Seconds since a start and resident memory in MB, of the last start.
        said: What the last start printed.
    """

    starts: int = 0
    kills: int = 0
    full: int = 0
    seconds: float = 0.0
    memory: list[tuple[float, float]] = field(default_factory=list)
    said: str = ""


def draw_photos(folder: Path, count: int, seed: int = 0) -> dict[str, str]:
    """Photographs in `folder`; what each is ('people', or one of `UNFIT`) by its name.

    The same count and seed give the same photographs.
    """
    pictures = sorted((checkpoints() / "photo128" / "pictures").glob("*.jpg"))
    kinds = {}
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        kind = draw.choices(["people", *UNFIT], [1 - sum(UNFIT.values()), *UNFIT.values()])[0]
        path = folder / f"album{number % 7}" / f"{number:05}{draw.choice(FORMATS)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        kinds[path.relative_to(folder).as_posix()] = kind
        if kind == "empty":
            path.write_bytes(b"")
        elif kind == "text":
            path.write_text("this is no picture")
        elif kind == "faceless":
            _background(draw, draw.randint(240, 900), draw.randint(240, 900)).save(path)
        else:
            _people(draw, pictures).save(path, quality=92)
        if kind == "cut":
            # A third is lost, as in a transfer that broke off.
            path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    return kinds


def _background(draw: random.Random, width: int, height: int) -> Image.Image:
    noise = np.random.default_rng(draw.getrandbits(32)).integers(60, 190, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def _people(draw: random.Random, pictures: list[Path]) -> Image.Image:
    side = draw.choices([side for side, _ in SIDES], [share for _, share in SIDES])[0]
    across = draw.randint(1, 4)
    photo = _background(draw, across * side + draw.randint(0, 80), side + draw.randint(0, 120))
    for column, path in enumerate(draw.sample(pictures, across)):
        with Image.open(path) as picture:
            photo.paste(picture.convert("RGB").resize((side, side), Image.Resampling.BICUBIC), (column * side, 0))
    return photo


def command(verb: str, source: Path, target: Path, words: list[str]) -> subprocess.Popen[str]:
    """A `faceanon` command on a folder, started."""
    log = target.parent / f"{verb}.log"
    line = [sys.executable, "-m", "faceanon", verb, str(source), str(target), "--password-env", "FACEANON_LOAD", *words]
    with log.open("w", encoding="utf-8") as file:
        environment = {**os.environ, "FACEANON_LOAD": PASSWORD}
        return subprocess.Popen(line, env=environment, stdout=file, stderr=subprocess.STDOUT, text=True)


def resident(process: subprocess.Popen[str]) -> float:
    """Resident memory in MB of a running process (Linux)."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def run_until_done(
    source: Path, target: Path, kills: int, longest: float, enlarge: Callable[[], None], words: list[str]
) -> Run:
    """Anonymize a folder; kill the command up to `kills` times, each at most `longest` seconds after its start.

    Raises:
        UserError: If the command ends otherwise than done or with a full disk.
    """
    draw = random.Random(1)
    run = Run()
    begun = time.monotonic()
    while True:
        process = command("anonymize", source, target, words)
        run.starts += 1
        run.memory = []
        start = time.monotonic()
        # After the last kill it may take as long as it needs.
        moment = start + draw.uniform(0, longest) if run.kills < kills else float("inf")
        while process.poll() is None and time.monotonic() < moment:
            run.memory.append((time.monotonic() - start, resident(process)))
            time.sleep(0.2)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            run.kills += 1
            continue
        run.said = (target.parent / "anonymize.log").read_text(encoding="utf-8", errors="replace")
        if process.returncode == 2 and "space" in run.said.lower():
            run.full += 1
            if run.full > 1:
                raise UserError(f"the disk was full again: {run.said}")
            enlarge()
            continue
        if process.returncode not in (0, 3):  # 3: some of the files are odd on purpose
            raise UserError(f"exit code {process.returncode}: {run.said[-2000:]}")
        run.seconds = time.monotonic() - begun
        return run


def check(source: Path, target: Path, kinds: dict[str, str]) -> list[str]:
    """What is wrong with the results of a folder; one line a fault."""
    faults = []
    rows = collections.defaultdict(list)
    with (target / "faceanon.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows[row["source"]].append(row)
    expected = {"faceanon.csv"}
    for name, kind in kinds.items():
        if name not in rows:
            faults.append(f"{name}: lost, it is not in the table")
            continue
        done = rows[name][0]["status"] == "done"
        if done != (kind == "people"):
            faults.append(f"{name} ({kind}): {rows[name][0]['status']}, {rows[name][0]['note']}")
        if done:
            expected.add(rows[name][0]["target"])
            faults += _check_result(source / name, target / rows[name][0]["target"])
        elif not rows[name][0]["note"]:
            faults.append(f"{name}: skipped without a reason")
    for path in target.rglob("*"):
        name = path.relative_to(target).as_posix()
        if path.is_file() and name not in expected and path.name != JOURNAL_NAME:
            faults.append(f"{name}: nobody asked for this file")
    done_events: collections.Counter[str] = collections.Counter()
    for line in (target / JOURNAL_NAME).read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event.get("event") == "done":
            done_events[event["source"]] += 1
    for name, count in done_events.items():
        if count > 1:
            faults.append(f"{name}: finished {count} times")
    return faults


def _check_result(original: Path, result: Path) -> list[str]:
    try:
        photo = load_photo(result)
        manifest = read_manifest(photo)
        with Image.open(original) as before:
            size = before.size
        if photo.pixels.shape[1::-1] != size:
            return [f"{result}: {photo.pixels.shape[1::-1]} px, not {size}"]
        if manifest.faces == 0:
            return [f"{result}: its manifest holds no face"]
    except (OSError, UserError, ValueError) as error:
        return [f"{result}: {error}"]
    return []


def check_way_back(source: Path, target: Path, scratch: Path, kinds: dict[str, str], most: int) -> list[str]:
    """Recover a few results; one line for each that differs from its original."""
    people = []
    for name, kind in kinds.items():
        if kind == "people":
            people.append(name)
    some = random.Random(2).sample(people, min(most, len(people)))
    shutil.rmtree(scratch, ignore_errors=True)
    for name in list(some):
        # `check` has told of those that are missing.
        if not (target / name).with_suffix(".png").exists():
            some.remove(name)
            continue
        copy = scratch / "hidden" / Path(name).with_suffix(".png")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile((target / name).with_suffix(".png"), copy)
    process = command("recover", scratch / "hidden", scratch / "back", [])
    if process.wait() != 0:
        return [(scratch / "recover.log").read_text(encoding="utf-8")]
    faults = []
    for name in some:
        before = load_photo(source / name).pixels.astype(float) / 255
        after = load_photo((scratch / "back" / name).with_suffix(".png")).pixels.astype(float) / 255
        quality = float(psnr(torch.tensor(((before - after) ** 2).mean())))
        if quality < LEAST_RECOVERED:
            faults.append(f"{name}: comes back with {quality:.1f} dB only")
    return faults


def small_disk(target: Path, megabytes: int) -> Callable[[], None]:
    """A small file system at `target`; gives what makes it large enough for everything."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(target)], check=True)

    def enlarge() -> None:
        subprocess.run(["mount", "-o", "remount,size=90%", str(target)], check=True)

    return enlarge


def quarters(memory: list[tuple[float, float]]) -> list[float]:
    """Highest memory in MB in each quarter of a run, its start included in the first."""
    highest = [0.0] * 4
    for second, megabytes in memory:
        part = min(3, int(4 * second / memory[-1][0]))
        highest[part] = max(highest[part], megabytes)
    return highest


def main() -> int:
    """Run, count, and print; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder for photos and results; `out` in it is removed first")
    parser.add_argument("--photos", type=int, default=300)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--longest", type=float, default=25.0, help="seconds from a start to its kill, at most")
    parser.add_argument("--disk", type=int, metavar="MB", help="size of the disk at first (Linux, as root)")
    parser.add_argument("--memory", action="store_true", help="print the memory of the last start over time")
    parser.add_argument("--back", type=int, default=20, help="how many results are recovered and compared")
    parser.epilog = "What stands after -- is passed on to `faceanon anonymize`."
    # argparse gives nothing that follows options to a list of positionals.
    own = sys.argv[1:]
    words = []
    if "--" in own:
        words = own[own.index("--") + 1 :]
        own = own[: own.index("--")]
    options = parser.parse_args(own)
    source = options.work / "in"
    target = options.work / "out"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    kinds = draw_photos(source, options.photos)
    print(f"{len(kinds)} files: {dict(collections.Counter(kinds.values()))}", flush=True)
    enlarge: Callable[[], None] = lambda: None  # noqa: E731
    if options.disk is not None:
        enlarge = small_disk(target, options.disk)
    try:
        run = run_until_done(source, target, options.kills, options.longest, enlarge, words)
        print(run.said.strip().splitlines()[-1])
        print(f"{run.starts} starts, {run.kills} kills, {run.full} time(s) a full disk, {run.seconds:.0f} s")
        if options.memory:
            print(f"highest memory by quarters of the last start: {[round(x) for x in quarters(run.memory)]} MB")
        faults = check(source, target, kinds)
        faults += check_way_back(source, target, options.work / "back", kinds, options.back)
    finally:
        if options.disk is not None:
            subprocess.run(["umount", str(target)], check=True)
    for fault in faults:
        print(f"wrong: {fault}")
    print(f"{len(faults)} fault(s)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
