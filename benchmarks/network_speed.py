"""What share of this machine do the StyleGAN2 and e4e networks use, against the public ones on theirs?

  python benchmarks/network_speed.py                                          # forward cases, batch 4
  python benchmarks/network_speed.py --cases g256_fwd d256_fwdbwd_r1 --batch 1
  python benchmarks/network_speed.py --keep-memory --threads 2

Networks of the public size at 256 px, random weights, float32, CPU. Every round measures this machine's peak (the
larger of a 2048 x 2048 matmul and a 3 x 3 convolution) and then the case, by CPU time, so that other work disturbs both
alike. GFLOP are those of the public network: one that computes less counts as faster. `gain` is our share of the peak
over the public network's share of the peak of the machine it was measured on. `--reference` takes another
machine's figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.stylegan2 import Discriminator, Generator
from faceanon.pipeline.process import keep_memory

SIZE = 256
HEAD = "| case | batch | GFLOP per CPU-second | peak here | share | public share | gain |\n" + "|---" * 7 + "|"
FORWARD = ("g256_fwd", "d256_fwd", "e4e_fwd", "encode_edit_decode")


def forward(work: Callable[[], object]) -> Callable[[], object]:
    """The work without gradients."""
    return torch.no_grad()(work)


def penalised(net: Discriminator, image: Tensor) -> None:
    """One forward pass, logistic loss and R1, backward."""
    image = image.clone().requires_grad_()
    logits = net(image)
    (grad,) = torch.autograd.grad(logits.sum(), image, create_graph=True)
    (F.softplus(-logits).mean() + 5 * grad.square().sum((1, 2, 3)).mean()).backward()  # type: ignore[no-untyped-call]


def make_case(name: str, batch: int) -> Callable[[], object]:
    """The call to be measured, named as in the reference file."""
    torch.manual_seed(0)
    codes, image = torch.randn(batch, 14, 512), torch.randn(batch, 3, SIZE, SIZE)
    if name.startswith("g256"):
        generator = Generator(SIZE).eval()
        if name == "g256_fwd":
            return forward(lambda: generator.synthesis(codes))
        if name == "g256_fwdbwd_wplus":
            generator.requires_grad_(False)
            codes.requires_grad_()
        return lambda: generator.synthesis(codes).square().mean().backward()  # type: ignore[no-untyped-call]
    if name.startswith("d256"):
        critic = Discriminator(SIZE)
        if name == "d256_fwd":
            return forward(lambda: critic(image))
        if name == "d256_fwdbwd":
            return lambda: F.softplus(-critic(image)).mean().backward()  # type: ignore[no-untyped-call]
        return lambda: penalised(critic, image)
    encoder = Encoder4Editing(SIZE).eval()
    if name == "e4e_fwd":
        return forward(lambda: encoder(image))
    decoder = Generator(SIZE).eval()
    return forward(lambda: decoder.synthesis(encoder(image)[0] + codes[:1]))


def make_peaks() -> list[tuple[float, Callable[[], object]]]:
    """GFLOP and call of what this machine does fastest."""
    matrix = torch.randn(2048, 2048)
    x, weight = (torch.randn(*shape) for shape in ((1, 256, 128, 128), (256, 256, 3, 3)))
    x = x.contiguous(memory_format=torch.channels_last)
    return [
        (2 * 2048**3 / 1e9, forward(lambda: matrix @ matrix)),
        (2 * 9 * 256**2 * 128**2 / 1e9, forward(lambda: F.conv2d(x, weight, padding=1))),
    ]


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call, all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(work: Callable[[], object], gflop: float, rounds: int) -> tuple[float, float]:
    """Medians of GFLOP per CPU-second: of the work, and of the machine's peak in the same rounds."""
    peaks = make_peaks()
    for _, call in [(0, work), *peaks]:
        call()
    rates, tops = [], []
    for _ in range(rounds):
        tops.append(max(size / cpu_seconds(call) for size, call in peaks))
        rates.append(gflop / cpu_seconds(work))
    return statistics.median(rates), statistics.median(tops)


def public_peak(reference: dict[str, Any]) -> float:
    """GFLOP per CPU-second of the fastest matmul or convolution on the reference's machine."""
    if "peak_gflop_per_cpu_s" in reference:
        return float(reference["peak_gflop_per_cpu_s"])
    return max(float(item["gflop_per_cpu_s"]) for run in reference["peak_runs"] for item in run.values())


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=FORWARD, help="names from the reference file")
    parser.add_argument("--batch", type=int, default=4, choices=(1, 4))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reference", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--keep-memory", action="store_true", help="glibc keeps freed memory, as in faceanon anonymize")
    args = parser.parse_args()
    if args.keep_memory and not keep_memory():
        parser.error("--keep-memory needs glibc, and an environment that does not set how malloc works; leave it out")
    torch.set_num_threads(args.threads)
    reference = json.loads(args.reference.read_text())
    table = {(case["case"], case["batch"]): case for case in reference["cases"]}
    print(HEAD)
    for name in args.cases:
        if (name, args.batch) not in table:
            parser.error(f"{name} at batch {args.batch} is not in {args.reference.name}; it has {sorted(table)}")
        case = table[name, args.batch]
        rate, peak = measure(make_case(name, args.batch), case["gflop"], args.rounds)
        share, public = rate / peak, case["gflop_per_cpu_s"] / public_peak(reference)
        cells = f"{rate:.1f} | {peak:.1f} | {share:.1%} | {public:.1%} | {share / public:.2f}"
        print(f"| {name} | {args.batch} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
