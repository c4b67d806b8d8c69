"""Train the methods on photographs, test them alike, and put them into one table.

  faceanon zoo
  faceanon zoo --methods dbaf riddle blur --seeds 0 --config configs/trainer/gpu.yaml
  faceanon zoo --ablations dbaf-4 hford-4 ifadit-5 --jobs 4
  faceanon zoo --bundle runs/prior/model --photos photos/faces --out runs/zoo_own
  faceanon zoo --steps 600 --out runs/zoo_alike

Each method is trained by its own configs, on the photographs that ship or on those in --photos, and at the length that
they say until it draws people; with --steps all have the same length, those with two stages half of it in each. Methods
that need no training are tested once, and of Persona the model that ships. All go through the same `faceanon test`, on
the test of photo128. --ablations trains what the papers' ablation tables list, in the same way; their models then fill
those tables' rows in `faceanon report tables`. --bundle takes another prior, as configs/prior.yaml exports it.

What is finished is not repeated, so the same command resumes after an interrupt, and with more methods or seeds adds to
what is there. A training goes on from its last checkpoint: after Ctrl-C from the last batch, after a kill from up to
ten minutes before.

In --out: zoo.md (the table), zoo.json (its figures, those of every seed too), sheets/NAME.png and sheets/all.png (the
same eight faces by each method), and a folder for every method and seed.
Exit code: 0 done, 1 a training failed or was killed, 2 wrong usage or input, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from faceanon.commands._typed import typed
from faceanon.errors import UserError


@dataclass(frozen=True)
class ZooOptions:
    """What is trained, for how long, and where it goes.

    Args:
        methods: Presets; None for all of them, or for none where there are `ablations`.
        ablations: Tables of the papers whose ablations are trained; None for none.
        steps: Training batches of a method; None for each method's own.
        seeds: Training seeds.
        out: Folder for everything.
        bundle: Name or folder.
        photos: Folders of photographs to train on; none for those that ship.
        config: Further configs that follow every stage's own.
        jobs: Methods trained at once.
    """

    methods: list[str] | None
    ablations: list[str] | None
    steps: int | None
    seeds: list[int]
    out: Path
    bundle: str
    photos: list[str]
    config: list[str]
    jobs: int


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
        help="what these tables of the papers ablate: dbaf-4 hford-4 ifadit-5",
    )
    parser.add_argument(
        "--steps",
        type=int,
        help="training batches of a method (default: what its configs say)",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="training seeds (default: 0 1 2)")
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"), help="folder for everything (default: runs/zoo)")
    parser.add_argument(
        "--bundle", default="photo128_prior", help="prior that methods draw with, by name or folder (%(default)s)"
    )
    parser.add_argument(
        "--photos",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="aligned photographs to train on (default: those that ship)",
    )
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
        UserError: Wrong numbers, no such method, no such photographs, or runs with other settings in the folder.
        RunError: A training failed, or its process was killed.
    """
    options = typed(ZooOptions, args)

    from faceanon.studies.zoo.recipes import find_ablations, find_methods
    from faceanon.studies.zoo.run import run_zoo
    from faceanon.studies.zoo.train import ZooSettings

    if options.jobs < 1:
        raise UserError(f"--jobs {options.jobs}: give 1 or more")
    # A method of two stages needs a batch for each.
    if options.steps is not None and options.steps < 2:
        raise UserError(f"--steps {options.steps}: give 2 or more")
    methods = []
    if options.methods or not options.ablations:
        methods = find_methods(options.methods)
    # A preset that stands in an ablation table and was named as well is trained once.
    given = {method.name for method in methods}
    for method in find_ablations(options.ablations or []):
        if method.name not in given:
            methods.append(method)
    settings = ZooSettings(options.steps, options.bundle, options.config, options.photos)
    run_zoo(methods, options.seeds, settings, options.out, options.jobs)
    return 0
