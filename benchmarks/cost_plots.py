"""What training and testing cost against the batch, the size of a face and the number of methods, as one plot.

  python benchmarks/cost_plots.py docs/results/cost.svg
  python benchmarks/cost_plots.py again.svg --figures docs/results/cost.json    # draw kept figures once more

Figures go beside the plot, as JSON, after each part, so what is interrupted goes on with the next part.

Every point is processor time on one thread, so other programs beside it change little:

- a training step on photographs for each picture of its batch (`prepared_speed.py`, prepared batches);
- the codec's way there and back for each picture, by the picture's side (`codec_speed.py`);
- the test of several methods on the same faces, by their number: with originals that each method's test looks at
  anew, and with what the networks say of them kept for the next method. The methods are untrained: how good they are
  does not change what they cost.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from faceanon.data.prepared import shipped_faces, shipped_pictures
from faceanon.files import write_atomic
from faceanon.methods import before_training
from faceanon.metrics.cache import FeatureCache
from faceanon.metrics.evaluation import Evaluation
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

HERE = Path(__file__).parent
STAGES = {
    "DBAF, stage 1": "configs/dbaf_s1.yaml",
    "iFADIT, phase I": "configs/ifadit_s1.yaml",
    "Persona, stage 1": "configs/persona_s1.yaml",
}
BATCHES = (2, 4, 8, 16)
STEPS = 14
SIDES = (64, 96, 128, 192, 256)
METHODS = ("blur", "pixelate", "mask", "dbaf", "hford", "ifadit", "riddle", "rotation")
PEOPLE = 8


def printed(script: str, *words: str) -> str:
    """What another example prints."""
    line = [sys.executable, str(HERE / script), *words]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    return done.stdout


def number(pattern: str, text: str) -> float:
    """The number that a pattern finds in a text."""
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"nothing like {pattern!r} in: {text}")
    return float(found[1])


def by_batch() -> dict[str, list[float]]:
    """Seconds of a training step for each picture, by stage, for each of `BATCHES`."""
    figures: dict[str, list[float]] = {}
    for name, config in STAGES.items():
        figures[name] = []
        for batch in BATCHES:
            more = ("--more", f"--data.init_args.batch_size={batch}")
            text = printed("prepared_speed.py", config, "--batches", str(STEPS), *more)
            figures[name].append(number(r"([\d.]+) s prepared", text) / batch)
            print(f"{name}, batch {batch}: {figures[name][-1]:.3f} s a picture", flush=True)
    return figures


def by_side() -> dict[str, list[float]]:
    """Milliseconds of the codec for each picture, by direction, for each of `SIDES`."""
    figures: dict[str, list[float]] = {"encode": [], "decode": []}
    for side in SIDES:
        text = printed("codec_speed.py", "--size", str(side), "--rounds", "10")
        for name, times in figures.items():
            times.append(number(rf"{name}: ([\d.]+) ms", text))
        print(f"codec, {side} px: {figures['encode'][-1]:.1f} and {figures['decode'][-1]:.1f} ms", flush=True)
    return figures


def by_methods() -> dict[str, list[float]]:
    """Seconds that the tests of the first n of `METHODS` take together, by whether originals are kept."""
    torch.set_num_threads(1)
    bundle = Bundle("photo128_prior")
    rows = shipped_pictures(Bundle("photo128"), "train")[: 2 * PEOPLE]
    image = shipped_faces(Bundle("photo128"), rows, bundle.image_size)
    batches = [FaceBatch(image, torch.arange(len(rows)) // 2, torch.full((len(rows),), -1))]
    kept = FeatureCache()
    figures: dict[str, list[float]] = {"each for itself": [], "originals kept": []}
    # Of the first round nothing counts: much is built when it is first needed.
    _tested(METHODS[0], bundle, batches, None)
    for name in METHODS:
        for way, cache in (("each for itself", None), ("originals kept", kept)):
            before = figures[way][-1] if figures[way] else 0.0
            figures[way].append(before + _tested(name, bundle, batches, cache))
        print(f"tested {name}: {figures['each for itself'][-1]:.1f}, {figures['originals kept'][-1]:.1f} s", flush=True)
    return figures


def _tested(name: str, bundle: Bundle, batches: list, cache: FeatureCache | None) -> float:  # type: ignore[type-arg]
    """Processor time of one method's test, its own time included."""
    torch.manual_seed(0)
    backbone = before_training(name, bundle.folder)
    evaluation = Evaluation(bundle, cache=cache)
    begun = time.process_time()
    for batch in batches:
        evaluation.update(batch, backbone)
    evaluation.compute()
    return time.process_time() - begun


def draw(figures: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Three plots beside each other, as SVG."""
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    batch, side, methods = figure.subplots(1, 3)
    _lines(batch, BATCHES, figures["batch"], "pictures in a batch", "seconds a picture and step")
    _lines(side, SIDES, figures["side"], "side of a picture, px", "milliseconds a picture, codec")
    _lines(methods, range(1, len(METHODS) + 1), figures["methods"], "methods tested", "seconds together")
    with tempfile.TemporaryDirectory() as folder, rc_context({"svg.hashsalt": "faceanon"}):
        drawn = Path(folder) / "cost.svg"
        # Without the date, so that equal figures give an equal file.
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        write_atomic(path, drawn.read_bytes())


def _lines(axes: Axes, places: range | tuple[int, ...], lines: dict[str, list[float]], across: str, up: str) -> None:
    for name, values in lines.items():
        axes.plot(list(places), values, marker="o", label=name)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_xticks(list(places))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def main() -> None:
    """Measure, keep the figures beside the plot, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plot", type=Path, help="SVG to write; the figures go beside it, as JSON")
    parser.add_argument("--figures", type=Path, help="JSON that keeps the figures; what it has is not measured again")
    options = parser.parse_args()
    kept = options.figures or options.plot.with_suffix(".json")
    figures = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    for name, measure in (("methods", by_methods), ("side", by_side), ("batch", by_batch)):
        if name not in figures:
            figures[name] = measure()
            # After each part: what is interrupted goes on with the next one.
            write_atomic(kept, json.dumps(figures, indent=1).encode() + b"\n")
    draw(figures, options.plot)


if __name__ == "__main__":
    main()
