"""How much faster than the released trainer's pattern is a training step, and with how much memory?

  python examples/step_speed.py                                   # both stages, 256 px, batch 2: needs 24 GB
  python examples/step_speed.py --size 64 --narrow 2 --rounds 3   # the same layout on a small or busy machine

DBAF's paper preset on random networks in the public layout. Both sides make the same step (tests/bench holds losses and
gradients together): ours as `faceanon fit` does, the reference with the calls of faceanon.bench.reference_step. Rounds
go ours, reference, ours, ...; each is a process of its own on one thread, which makes a first step that is not counted,
then `--steps` counted ones. CPU time is the process's own, so that other processes hardly count. Ours is the mean over
16 batches: 15 without R1, one with it. Peak memory is what the process held at most, and that less what it held when
the networks were built. `step_cost.py` gives operations and tensor bytes, which hang on no machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from faceanon.backbones.dbaf import DBAF
from faceanon.bench.reference_bundle import network_table, write_bundle
from faceanon.bench.reference_pair import PARTS, Pair
from faceanon.optim import Ranger
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.types import FaceBatch

STAGES: dict[str, Any] = {"s1": DisentangleStage, "s2": AnonymizeStage}
INTERVAL, SEED = 16, 0


def peak() -> float:
    """Most memory that this process held so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(args: argparse.Namespace) -> None:
    """Make the steps of one side and print what they took as JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    stage = STAGES[args.stage](DBAF(str(args.bundle)), r1_interval=INTERVAL).train()
    pair = Pair(stage, PARTS[args.stage], lambda p: Ranger(p, lr=1e-4), lambda p: Ranger(p, lr=1e-4))
    coarse = torch.rand(args.batch, 3, 6, 6) * 2 - 1
    image = torch.nn.functional.interpolate(coarse, args.size, mode="bicubic").clamp(-1, 1)
    labels = torch.arange(args.batch)
    batch, start = FaceBatch(image, labels, labels), peak()
    kinds = {"plain": 1, "r1": 0} if args.side == "ours" else {"r1": 0}
    getattr(pair, args.side)(batch, SEED, 1)  # warms up
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(args.steps):
        for name, number in kinds.items():
            before = time.process_time()
            getattr(pair, args.side)(batch, SEED, number)
            times[name].append(time.process_time() - before)
    middle = {name: statistics.median(values) for name, values in times.items()}
    step = middle["r1"] if args.side == "reference" else ((INTERVAL - 1) * middle["plain"] + middle["r1"]) / INTERVAL
    print(json.dumps({"cpu": step, "times": times, "peak": peak(), "above": peak() - start}))


def run_child(args: argparse.Namespace, stage: str, side: str, bundle: Path) -> dict[str, Any]:
    """One side in a process of its own."""
    words = ["--child", side, "--stage", stage, "--bundle", str(bundle)]
    words += [f"--{name}={getattr(args, name)}" for name in ("size", "batch", "steps")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, *words], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{stage} {side}: {found['cpu']:.2f} s, {found['peak']:.0f} MiB at most", file=sys.stderr, flush=True)
    return found


def compare(args: argparse.Namespace, stage: str, bundle: Path) -> str:
    """A line of the table."""
    rounds = [[run_child(args, stage, side, bundle) for side in ("ours", "reference")] for _ in range(args.rounds)]
    middle = {
        name: [statistics.median(pair[side][name] for pair in rounds) for side in (0, 1)]
        for name in ("cpu", "peak", "above")
    }
    ratio = statistics.median(pair[1]["cpu"] / pair[0]["cpu"] for pair in rounds)
    cells = [stage, args.size, args.batch, f"{middle['cpu'][1]:.2f}", f"{middle['cpu'][0]:.2f}", f"**{ratio:.2f}**"]
    for name in ("peak", "above"):
        ours, theirs = middle[name]
        cells += [f"{theirs:.0f}", f"{ours:.0f}", f"{ours / theirs:.0%}"]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", nargs="+", choices=sorted(STAGES), default=sorted(STAGES))
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--narrow", type=int, default=1, help="divides the networks' widths")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1, help="counted steps a round")
    for name in ("--child", "--stage", "--bundle"):
        parser.add_argument(name, help=argparse.SUPPRESS, dest="side" if name == "--child" else name[2:])
    given = parser.parse_args()
    if given.side:
        child(given)
        return 0
    heads = "stage, px, batch, reference CPU s, ours CPU s, ratio, reference peak MiB, ours, share"
    heads += ", reference above the networks MiB, ours, share"
    print(f"| {' | '.join(heads.split(', '))} |\n|{'---|' * len(heads.split(', '))}")
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(Path(folder), network_table(given.size, given.narrow))
        for stage in given.stages:
            print(compare(given, stage, bundle), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
