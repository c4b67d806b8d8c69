"""Train all methods alike, test them alike, and put them into one table.

  faceanon zoo --steps 600 --seeds 0 1 2 --out runs/zoo
  faceanon zoo --steps 600 --methods dbaf riddle blur --config configs/trainer/gpu.yaml
  faceanon zoo --steps 600 --ablations dbaf-4 hford-3 ifadit-5
  faceanon zoo --steps 600 --jobs 4

Every trained method sees the same number of pictures of procedural faces: --steps batches of --batch, those with two
stages half of them in each. Its own config says the rest. Methods that need no training are tested once. All go
through the same `faceanon test`. --ablations trains what the papers' ablation tables list, in the same way; their
models then fill those tables' rows in `faceanon report --table`. What is finished is not repeated, so the same command
goes on after an interrupt, and with more methods or seeds adds to what is there.

In --out: zoo.md (the table), zoo.json (its figures, those of every seed too), sheets/NAME.png and sheets/all.png (the
same eight faces by each method), and a folder for every method and seed.
Exit code: 0 done, 1 a training failed or was killed, 2 wrong usage or input, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to train, for how long, and where to write."""
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help="presets of configs/backbone/ (default: all, none with --ablations)",
    )
    parser.add_argument(
        "--ablations",
        nargs="+",
        metavar="TABLE",
        help="what these tables of the papers ablate: dbaf-4 hford-3 ifadit-5",
    )
    parser.add_argument("--steps", type=int, default=600, help="training batches of a method (default: 600)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="training seeds (default: 0 1 2)")
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"), help="folder for everything (default: runs/zoo)")
    parser.add_argument("--batch", type=int, default=16, help="pictures in a batch, a multiple of 4 (default: 16)")
    parser.add_argument("--bundle", default="synth64", help="bundle by name or folder (default: synth64)")
    parser.add_argument("--test-identities", type=int, default=200, help="held-out persons in the test (default: 200)")
    parser.add_argument("--config", nargs="+", default=[], metavar="FILE", help="further configs behind every stage's")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="methods trained and tested at once, in processes that share the cores (default: 1). Small networks "
        "leave cores idle: as many jobs as cores is fastest where memory holds them, some 2 GB each",
    )


def run(args: argparse.Namespace) -> int:
    """Train, test, write.

    Raises:
        UserError: Wrong numbers, no such method, or runs with other settings in the folder.
        RunError: A training failed, or its process was killed.
    """
    from faceanon.studies.zoo.recipes import find_ablations, find_methods
    from faceanon.studies.zoo.run import run_zoo
    from faceanon.studies.zoo.train import Settings

    if args.steps < 2 or args.batch < 4 or args.batch % 4:
        raise UserError(f"--steps {args.steps} --batch {args.batch}: give 2 steps or more and a multiple of 4")
    if args.jobs < 1:
        raise UserError(f"--jobs {args.jobs}: give 1 or more")
    methods = find_methods(args.methods) if args.methods or not args.ablations else []
    given = {method.name for method in methods}
    methods += [method for method in find_ablations(args.ablations or []) if method.name not in given]
    settings = Settings(args.steps, args.batch, args.bundle, args.test_identities, [str(file) for file in args.config])
    run_zoo(methods, args.seeds, settings, args.out, args.jobs)
    return 0
