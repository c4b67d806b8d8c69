"""How near does the codec come to what convolutions reach on this machine? On one core, in turns.

  python benchmarks/codec_speed.py
  python benchmarks/codec_speed.py --size 128 --batch 8

The peak is the fastest of three plain 3 x 3 convolutions of 64 to 256 channels, in the codec's own numbers (bfloat16
where the processor has instructions for it, else float32). Operations are counted by torch. Printed are medians of the
processor's time over rounds in which codec and convolutions take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from bench.cases import Work
from bench.probe import count_flops
from faceanon.pipeline.process import keep_memory
from faceanon.weights.bundle import Bundle

SHAPES = ((64, 128), (128, 64), (256, 32))  # channels, and side of the map


def seconds(work: Callable[[], object]) -> float:
    """Processor time of a call."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


@torch.no_grad()
def main() -> None:
    """Print seconds, operations a second, and the share of the peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # As `faceanon anonymize` does. Else every map is fetched from the system anew, which takes a quarter of the time.
    if not keep_memory():
        print("this system keeps no freed memory; the codec takes longer")
    codec = Bundle("photo128").codec
    kind = next(codec.parameters()).dtype
    pictures = torch.rand(options.batch, 3, options.size, options.size) * 2 - 1
    latents = codec.encode(pictures)
    works: dict[str, Callable[[], object]] = {
        "encode": lambda: codec.encode(pictures),
        "decode": lambda: codec.decode(latents),
    }
    for channels, side in SHAPES:
        layer = nn.Conv2d(channels, channels, 3, padding=1).to(kind).to(memory_format=torch.channels_last)
        maps = torch.randn(1, channels, side, side).to(kind).contiguous(memory_format=torch.channels_last)
        works[f"convolution of {channels}"] = partial(layer, maps)
    counts = {name: count_flops(Work(work)) or 0.0 for name, work in works.items()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(options.rounds + 2):
        for name, work in works.items():
            taken = seconds(work)
            # The first two rounds build what is built once.
            if number >= 2:
                times[name].append(taken)
    rates = {name: counts[name] / statistics.median(times[name]) for name in works}
    peak = max(rate for name, rate in rates.items() if name.startswith("convolution"))
    print(f"{kind}, {options.batch} pictures of {options.size} px; the fastest convolution has {peak:.0f} GFLOP/s")
    for name in ("encode", "decode"):
        each = 1000 * statistics.median(times[name]) / options.batch
        print(f"{name}: {each:.1f} ms a picture, {rates[name]:.0f} GFLOP/s, {rates[name] / peak:.0%} of the peak")


if __name__ == "__main__":
    main()
