"""Is anything slower than at another commit? The same things in two checkouts, in turns: starts, photos, steps, a test.

  git worktree add ../before 047aed6
  python examples/two_commits.py ../before . --rounds 6
  python examples/two_commits.py ../before . --rounds 20 --cases start help

Every measurement is a process of its own on one thread, whose processor time counts: other work on the machine disturbs
it less than wall time. A round measures each case in both checkouts one after the other, the order changes every round,
and the table shows medians. What `group` and `face` do within a process is measured by `warm`, without the start.
Both checkouts need `checkpoints/dbaf_synth64` and the configs of DBAF; the first round is not counted.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

MODEL = "checkpoints/dbaf_synth64"
STEPS = 20  # batches of a training; the first ones build what is built once
BATCHES = 2  # of the test
INSIDE = ("warm", "stage1", "stage2", "test")


def spent() -> float:
    """Seconds of the processor that finished children have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def words(case: str, folder: Path, model_option: str) -> list[str]:
    """Arguments of Python for a case."""
    anonymize = ["-m", "faceanon", "anonymize"]
    tail = [str(folder / "out.png"), "--overwrite", model_option, MODEL, "--password-env", "TWO_COMMITS"]
    commands = {
        "start": ["-c", "import faceanon"],
        "help": ["-m", "faceanon", "--help"],
        "anonymize-help": [*anonymize, "--help"],
        "face": [*anonymize, str(folder / "face.png"), *tail, "--aligned"],
        "group": [*anonymize, str(folder / "group.png"), *tail],
    }
    for name in INSIDE:
        commands[name] = [str(Path(__file__).resolve()), "--inside", name, str(folder)]
    return commands[case]


CASES = ("start", "help", "anonymize-help", "face", "group", *INSIDE)


def median_of(work: Callable[[], object], times: int) -> float:
    """Processor seconds of a call, after one that does not count."""
    work()
    seconds = []
    for _ in range(times):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def warm(folder: Path) -> dict[str, float]:
    """Photos in a process that has the model already."""
    from faceanon.key import Secret
    from faceanon.pipeline import Pipeline

    pipeline = Pipeline.load(MODEL)
    secret = Secret.random(0)
    figures = {}
    for name, aligned, times in (("face", True, 20), ("group", False, 6)):
        photo = folder / f"{name}.png"
        hidden = pipeline.anonymize(photo, secret, aligned)
        figures[f"{name}, anonymized"] = median_of(lambda p=photo, a=aligned: pipeline.anonymize(p, secret, a), times)
        figures[f"{name}, recovered"] = median_of(lambda h=hidden, a=aligned: pipeline.recover(h, secret, a), times)
    return figures


def trained(case: str, folder: Path) -> dict[str, float]:
    """A step of a stage, or the evaluation of a test, as the command line runs it."""
    import lightning as L

    from faceanon import cli

    ends: list[float] = []
    around: list[float] = []

    class Clock(L.Callback):
        def on_train_batch_end(self, *args: object) -> None:
            ends.append(time.process_time())

        def on_test_start(self, *args: object) -> None:
            around.append(time.process_time())

        def on_test_end(self, *args: object) -> None:
            around.append(time.process_time())

    build = L.Trainer.__init__

    # Wrapped, since the command line reads its options off the signature.
    @functools.wraps(build)
    def with_clock(self: L.Trainer, **settings: object) -> None:
        build(self, **{**settings, "callbacks": [*(settings.get("callbacks") or []), Clock()]})

    L.Trainer.__init__ = with_clock
    common = [f"--trainer.default_root_dir={folder}", "--trainer.callbacks=[]", "--trainer.logger=false"]
    if case == "test":
        own = [f"--model.init_args.init_from={MODEL}", f"--model.init_args.report={folder / 'report'}"]
        own += [f"--trainer.limit_test_batches={BATCHES}", "--data.init_args.train_groups=8"]
        code = cli.main(["test", "--config", "configs/dbaf_keyed_s2.yaml", *own, *common])
        figures = {"evaluation": around[1] - around[0]}
    else:
        own = [f"--model.init_args.export={folder / 'model'}", "--model.init_args.samples_every=0"]
        own += [f"--trainer.limit_train_batches={STEPS}", "--trainer.limit_val_batches=0"]
        config = f"configs/dbaf_s{case[-1]}.yaml"
        code = cli.main(["fit", "--config", config, *own, "--data.init_args.train_groups=48", *common])
        steps = [after - before for before, after in pairwise(ends[2:])]
        figures = {"a step": statistics.median(steps)}
    if code:
        raise SystemExit(code)
    return figures


def inside(case: str, folder: Path) -> None:
    """Print the figures of a case that is measured within its process."""
    import torch

    torch.set_num_threads(1)
    figures = warm(folder) if case == "warm" else trained(case, folder)
    for name, value in figures.items():
        print(f"\nFIGURE {name}={value}")


def make_pictures(folder: Path) -> None:
    """A drawn face of 64 px and a group photo, from the package that runs this file."""
    from PIL import Image

    from faceanon.data.synthetic.crossed import SyntheticSet, held_out_roll
    from faceanon.photo.party import photo_party

    photo_party().save(folder / "group.png")
    face = SyntheticSet(held_out_roll("test", 1, 1, 0.0, 0), 64).photos.image[0]
    Image.fromarray(face.permute(1, 2, 0).numpy()).save(folder / "face.png")


def measure(tree: Path, case: str, folder: Path) -> dict[str, float]:
    """Processor seconds of one process, and what it measured within."""
    environment = dict(os.environ)
    # With bytecode, as an installed package has it.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "TWO_COMMITS": "correct horse battery"}
    # The option had another name once.
    command = (tree / "src/faceanon/commands/_files.py").read_text()
    option = "--model" if '"--model"' in command else "--checkpoint"
    before = spent()
    run = subprocess.run(
        [sys.executable, *words(case, folder, option)], cwd=tree, env=environment, capture_output=True, text=True
    )
    seconds = spent() - before
    if run.returncode:
        raise SystemExit(f"{case} in {tree} ended with {run.returncode}:\n{run.stdout[-1000:]}{run.stderr[-1000:]}")
    figures = {f"{case}, the whole process": seconds}
    for line in run.stdout.splitlines():
        if line.startswith("FIGURE "):
            name, _, value = line.removeprefix("FIGURE ").partition("=")
            figures[f"{case}: {name}"] = float(value)
    return figures


def main() -> None:
    """Measure in turns and print a table; with `--inside` one case, for the process that measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs="*", metavar="CHECKOUT", help="before, and after")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--inside", choices=INSIDE, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args.inside, args.trees[0])
        return
    if len(args.trees) != 2:
        parser.error("name two checkouts")
    trees = [tree.resolve() for tree in args.trees]
    found: dict[str, tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pictures(folder)
        for number in range(args.rounds + 1):
            for case in args.cases:
                # The order changes, so that neither checkout always finds what the other left in caches.
                for side in (0, 1) if number % 2 else (1, 0):
                    for figure, value in measure(trees[side], case, folder).items():
                        if number:
                            found.setdefault(figure, ([], []))[side].append(value)
            print(f"round {number} of {args.rounds}", file=sys.stderr, flush=True)
    print("| processor time | before | after | after / before |\n|---|---:|---:|---:|")
    for figure, sides in found.items():
        before, after = map(statistics.median, sides)
        print(f"| {figure} | {before:.3g} s | {after:.3g} s | {after / before:.3f} |")


if __name__ == "__main__":
    main()
