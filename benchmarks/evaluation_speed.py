"""What testing one more method costs: originals asked for every figure, once a batch, or not at all.

    python benchmarks/evaluation_speed.py --method blur --people 8 --rounds 3

One method is tested in turns, in one process: with the networks asked about the originals for every figure, with each
asked once a batch, as the first of several methods (the cache is empty) and as a further one (it knows all originals).
The figures must be equal in every bit. The method's own time does not count. Ratios are medians over rounds, of
processor time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.data.prepared import shipped_faces, shipped_pictures
from faceanon.methods import trained, untrained
from faceanon.metrics.cache import CachedOriginals, FeatureCache
from faceanon.metrics.evaluation import Evaluation
from faceanon.metrics.versions import Versions
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

WAYS = ("every figure", "once a batch", "first method", "further method")


class Forgetful(CachedOriginals):
    """Asks a network as often as it is asked."""

    def tensors(self, network: str, compute: Callable[[Tensor], list[Tensor]], what: str = "output") -> list[Tensor]:
        """As `CachedOriginals.tensors`."""
        return compute(self.image)


def timed(
    backbone: Backbone, bundle: Bundle, batches: list[FaceBatch], cache: FeatureCache | None
) -> tuple[float, dict[str, float]]:
    """Seconds of processor time for one test without the method's own, and the figures."""
    evaluation, own = Evaluation(bundle, cache=cache), 0.0
    make = evaluation.maker.make

    def counted(method: Backbone, image: Tensor, indices: list[int]) -> Versions:
        nonlocal own
        begin = time.process_time()
        made = make(method, image, indices)
        own += time.process_time() - begin
        return made

    start = time.process_time()
    with patch.object(evaluation.maker, "make", counted):
        for batch in batches:
            evaluation.update(batch, backbone)
    figures = evaluation.compute()
    return time.process_time() - start - own, figures


def same(figures: dict[str, float], others: dict[str, float]) -> bool:
    """Equal in every bit; NaN is NaN."""
    equal = [
        value == others[name] or (value != value and others[name] != others[name]) for name, value in figures.items()
    ]
    return figures.keys() == others.keys() and all(equal)


def measure(backbone: Backbone, bundle: Bundle, batches: list[FaceBatch], rounds: int) -> dict[str, list[float]]:
    """Seconds by way; one round more than asked for warms up."""
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    expected: dict[str, float] | None = None
    for _ in range(rounds + 1):
        kept = FeatureCache()
        for way in WAYS:
            with patch("faceanon.metrics.evaluation.CachedOriginals", Forgetful if way == WAYS[0] else CachedOriginals):
                seconds, figures = timed(backbone, bundle, batches, kept if "method" in way else None)
            expected = expected or figures
            if not same(figures, expected):
                raise SystemExit(f"asking {way} changed a figure")
            spent[way].append(seconds)
    return {way: times[1:] for way, times in spent.items()}


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="blur", help="preset that needs no training, or a model's folder")
    parser.add_argument("--bundle", default="photo128_pictures")
    parser.add_argument("--people", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    bundle = Bundle(args.bundle)
    folder = Path(args.method)
    backbone = trained(folder) if folder.is_dir() else untrained(args.method, bundle.folder)
    rows = shipped_pictures(Bundle("photo128"), "train")[: 2 * args.people]
    image = shipped_faces(Bundle("photo128"), rows, bundle.image_size)
    faces = FaceBatch(image, torch.arange(len(rows)) // 2, torch.full((len(rows),), -1))
    batches = []
    for start in range(0, len(rows), args.batch):
        chosen = slice(start, start + args.batch)
        batches.append(FaceBatch(faces.image[chosen], faces.identity[chosen], faces.attribute[chosen]))
    spent = measure(backbone, bundle, batches, args.rounds)
    print(f"{args.method}: {2 * args.people} pictures, {args.rounds} rounds; all figures equal, bit for bit")
    for way in WAYS:
        ratio = statistics.median(a / b for a, b in zip(spent[way], spent[WAYS[0]], strict=True))
        seconds = statistics.median(spent[way]) / args.people / 2
        print(f"{way:>16}: {ratio:.2f} of the first way ({seconds * 1e3:.0f} ms of processor time a picture)")


if __name__ == "__main__":
    main()
