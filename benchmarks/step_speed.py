"""How much faster than the released trainer's pattern is a training step, and with how much memory?

  python benchmarks/step_speed.py                                   # both stages, 256 px, batch 2: needs 18 GB free
  python benchmarks/step_speed.py --stages s2 --rounds 1 --warmup 0 # the quickest look at that
  python benchmarks/step_speed.py --size 64 --narrow 2 --rounds 3   # the same layout on a small or busy machine

DBAF's paper preset on random networks in the public layout. Both sides make the same step (a test holds losses and
gradients together): ours as `faceanon fit` does, the reference with the calls of bench.reference_step. Rounds
go ours, reference, ours, ...; each is a process of its own on one thread, which makes `--warmup` steps that are not
counted, then `--steps` counted ones. CPU time is the process's own, so that other processes hardly count. Ours is the
mean over 16 batches: 15 without R1, one with it. Peak memory is what the process held at most in its steps, and that
less what it held when the networks were built. `step_cost.py` gives operations and tensor bytes, which hang on no
machine. A stage that needs more memory than is free (or than `--memory` allows) is refused before anything runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench.probe import Memory
from bench.public import network_table, write_bundle
from bench.reference_pair import PARTS, Pair
from bench.settings import Settings
from faceanon.backbones.dbaf import DBAF
from faceanon.optim import Ranger
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.types import FaceBatch

STAGES: dict[str, Any] = {"s1": DisentangleStage, "s2": AnonymizeStage}
INTERVAL, SEED = 16, 0


def needed(stage: str, size: int, narrow: int, batch: int) -> float:
    """About what the reference's process takes at most, in GB: by step_cost.py, the parser is not narrowed."""
    drawn = {"s1": 3.0, "s2": 7.5}[stage] * batch * (size / 256) ** 2
    return 2.0 + drawn * (0.3 + 0.7 / narrow)


def free() -> float:
    """GB that new processes may take; all there is where the system does not say."""
    for line in Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1e6
    return float("inf")


def check_memory(given: argparse.Namespace) -> None:
    """End with one line where a stage needs more than there is."""
    allowed = free() if given.memory is None else given.memory
    for stage in given.stages:
        wanted = needed(stage, given.size, given.narrow, given.batch)
        if wanted > allowed:
            raise SystemExit(
                f"step_speed.py: {stage} at {given.size} px, batch {given.batch} takes about {wanted:.0f} GB, and "
                f"{allowed:.1f} GB are free; give a smaller --size or --batch, a larger --narrow, or leave {stage} out"
            )


def child(args: argparse.Namespace) -> None:
    """Make the steps of one side and print what they took as JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    backbone = DBAF(str(args.bundle), cid_form="levels", maar_form="cbam")  # as the released trainer has it
    stage = STAGES[args.stage](backbone, r1_interval=INTERVAL).train()
    pair = Pair(stage, PARTS[args.stage], lambda p: Ranger(p, lr=1e-4), lambda p: Ranger(p, lr=1e-4))
    coarse = torch.rand(args.batch, 3, 6, 6) * 2 - 1
    image = torch.nn.functional.interpolate(coarse, args.size, mode="bicubic").clamp(-1, 1)
    labels = torch.arange(args.batch)
    _ = stage.bundle.recogniser, stage.bundle.parser, stage.bundle.perceptual  # else built in the first step
    batch, memory = FaceBatch(image, labels, labels), Memory(Settings())
    memory.reset()
    kinds = {"plain": 1, "r1": 0} if args.side == "ours" else {"r1": 0}
    for _ in range(args.warmup):
        getattr(pair, args.side)(batch, SEED, 1)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(args.steps):
        for name, number in kinds.items():
            before = time.process_time()
            getattr(pair, args.side)(batch, SEED, number)
            times[name].append(time.process_time() - before)
    middle = {name: statistics.median(values) for name, values in times.items()}
    step = middle["r1"] if args.side == "reference" else ((INTERVAL - 1) * middle["plain"] + middle["r1"]) / INTERVAL
    peak, start = memory.peak() or 0.0, memory.start or 0.0
    print(json.dumps({"cpu": step, "times": times, "peak": peak, "above": peak - start}))


def run_child(args: argparse.Namespace, stage: str, side: str, bundle: Path) -> dict[str, Any]:
    """One side in a process of its own."""
    words = ["--child", side, "--stage", stage, "--bundle", str(bundle)]
    words += [f"--{name}={getattr(args, name)}" for name in ("size", "batch", "steps", "warmup")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__, *words], env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        killed = " (killed, perhaps for want of memory)" if done.returncode == -9 else ""
        raise SystemExit(f"step_speed.py: {stage} {side} ended with {done.returncode}{killed}")
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
    parser.add_argument("--warmup", type=int, default=1, help="steps before them; 0 where one takes minutes")
    parser.add_argument("--memory", type=float, metavar="GB", help="what a process may take (default: what is free)")
    for name in ("--child", "--stage", "--bundle"):
        parser.add_argument(name, help=argparse.SUPPRESS, dest="side" if name == "--child" else name[2:])
    given = parser.parse_args()
    if given.side:
        child(given)
        return 0
    check_memory(given)
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
