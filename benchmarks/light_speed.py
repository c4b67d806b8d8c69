"""Time and memory of cold commands, there and back, beside `deface` as another user would pick it.

    python benchmarks/light_speed.py PHOTO_FILM_OR_FOLDER --rounds 5 --deface /path/to/venv/bin/deface
    python benchmarks/light_speed.py party --engines torch light openvino

The programs take turns in every round, so that whatever else the machine does meets all of them. Each is a process of
its own from a cold start. What is printed are seconds, peak memory, and ratios to `deface` round by round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from faceanon.paths import is_video


def timed(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds and peak memory in MB of a process; it has to succeed."""
    start = time.perf_counter()
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    process = os.posix_spawnp(words[0], words, environment, file_actions=null)
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        sys.exit(f"{' '.join(words)} failed")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    """Measure, and print one line a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="photo, film, or folder of photos")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--deface", help="the program, in an environment of its own; left out when not given")
    parser.add_argument("--engines", nargs="+", default=["torch", "light"], help="light, torch or openvino")
    options = parser.parse_args()
    environment = {**os.environ, "FACEANON_PASSWORD": "a password that is long enough"}
    ending = ""
    if not options.source.is_dir():
        ending = ".mp4" if is_video(options.source.name) else ".png"
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            commands = {}
            for engine in options.engines:
                hidden = Path(folder) / f"{engine}{number}{ending}"
                back = hidden.with_name(f"{engine}{number}_back{ending}")
                how = ["--provider", "openvino"] if engine == "openvino" else ["--engine", engine]
                how += ["--password-env", "FACEANON_PASSWORD"]
                start = [sys.executable, "-m", "faceanon"]
                commands[engine] = [*start, "anonymize", str(options.source), str(hidden), *how]
                commands[f"{engine} back"] = [*start, "recover", str(hidden), str(back), *how]
            if options.deface is not None:
                copies = Path(folder) / f"deface{number}"
                copies.mkdir()
                photos = sorted(options.source.iterdir()) if options.source.is_dir() else [options.source]
                links = []
                for photo in photos:
                    # It writes beside its input.
                    (copies / photo.name).symlink_to(photo.resolve())
                    links.append(str(copies / photo.name))
                commands["deface"] = [options.deface, *links]
            for name, words in commands.items():
                found.setdefault(name, []).append(timed(words, environment))
    for name, rounds in found.items():
        seconds = [second for second, _ in rounds]
        line = f"{name}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
        line += f", {max(memory for _, memory in rounds):.0f} MB"
        if "deface" in found:
            ratios = [second / other for second, (other, _) in zip(seconds, found["deface"], strict=True)]
            line += f", {statistics.median(ratios):.2f} times deface ({min(ratios):.2f} to {max(ratios):.2f})"
        print(line)


if __name__ == "__main__":
    main()
