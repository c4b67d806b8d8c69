"""Train all methods alike, test them alike, and put them into one table.

  faceanon zoo --steps 600 --seeds 0 1 2 --out runs/zoo
  faceanon zoo --steps 600 --methods dbaf riddle blur --config configs/trainer/gpu.yaml
  faceanon zoo --steps 600 --ablations dbaf-4 hford-3 ifadit-5
  faceanon zoo --steps 600 --jobs 4
  faceanon zoo --bundle photo128_prior --out runs/zoo_photo128
  faceanon zoo --bundle photo128_prior --steps 600 --photos photos/faces --out runs/zoo_alike

Every trained method sees the same number of pictures of procedural faces: --steps batches of --batch, those with two
stages half of them in each. Its own config says the rest. Methods that need no training are tested once. All go through
the same `faceanon test`. --ablations trains what the papers' ablation tables list, in the same way; their models then
fill those tables' rows in `faceanon report tables`.

With a --bundle of photographs, such as photo128_prior or one that configs/prior_photo128.yaml exports, all train on the
photographs that ship with photo128, or on those in --photos, and are tested on those of photo128's test. Without
--steps each method is trained by its own configs in configs/photo128/, at the length that it needs until it draws
people; methods without such configs are left out and named, and of Persona the model that ships is tested. --ablations
are laid over the same configs. With --steps all have the same length again, and configs/features/ has what some stages
need there.

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
        steps: Training batches of a method; None for 600 on drawn faces, and for each method's own on photographs.
        seeds: Training seeds.
        out: Folder for everything.
        batch: Pictures in a batch; None for 16, or for each method's own.
        bundle: Name or folder.
        test_identities: Held-out persons in the test of procedural faces; None for 200.
        photos: Folders of photographs to train on; none for those that ship.
        config: Further configs that follow every stage's own.
        jobs: Methods trained at once.
    """

    methods: list[str] | None
    ablations: list[str] | None
    steps: int | None
    seeds: list[int]
    out: Path
    batch: int | None
    bundle: str
    test_identities: int | None
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
        help="what these tables of the papers ablate: dbaf-4 hford-3 ifadit-5",
    )
    parser.add_argument(
        "--steps",
        type=int,
        help="training batches of a method (default: 600 on drawn faces; on photographs each method's own)",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="training seeds (default: 0 1 2)")
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"), help="folder for everything (default: runs/zoo)")
    parser.add_argument(
        "--batch", type=int, help="pictures in a batch, a multiple of 4, together with --steps (default: 16)"
    )
    parser.add_argument("--bundle", default="synth64", help="bundle by name or folder (default: synth64)")
    parser.add_argument(
        "--test-identities", type=int, help="held-out persons in the test of procedural faces (default: 200)"
    )
    parser.add_argument(
        "--photos",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="aligned photographs to train on, for a bundle of photographs (default: those that ship with photo128)",
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
        UserError: Wrong numbers, no such method, photographs for a bundle of drawn faces, or runs with other settings
            in the folder.
        RunError: A training failed, or its process was killed.
    """
    options = typed(ZooOptions, args)

    from faceanon.studies.zoo.recipes import find_ablations, find_methods
    from faceanon.studies.zoo.run import run_zoo
    from faceanon.studies.zoo.train import ZooSettings

    if options.jobs < 1:
        raise UserError(f"--jobs {options.jobs}: give 1 or more")
    steps, batch = _length(options)
    test_identities = _test_identities(options)
    methods = []
    if options.methods or not options.ablations:
        methods = find_methods(options.methods, options.bundle, whole=steps is None)
    if steps is None and options.methods is None:
        _name_left_out({method.name for method in methods}, options.bundle)
    # A preset that stands in an ablation table and was named as well is trained once.
    given = {method.name for method in methods}
    for method in find_ablations(options.ablations or [], whole=steps is None):
        if method.name not in given:
            methods.append(method)
    settings = ZooSettings(steps, batch, options.bundle, test_identities, options.config, options.photos)
    run_zoo(methods, options.seeds, settings, options.out, options.jobs)
    return 0


def _length(options: ZooOptions) -> tuple[int | None, int | None]:
    """Batches of a method and pictures in a batch; None where each method's own configs say both.

    Raises:
        UserError: Numbers that cannot be, or that do not go together.
    """
    from faceanon.studies.zoo.photographs import of_photographs

    if options.steps is None and of_photographs(options.bundle):
        if options.batch is not None:
            raise UserError("--batch: without --steps each method's own configs say its batches; give both, or neither")
        return None, None
    steps = 600 if options.steps is None else options.steps
    batch = 16 if options.batch is None else options.batch
    # Training data come in whole groups of four, and a method of two stages needs a step for each.
    if steps < 2 or batch < 4 or batch % 4:
        raise UserError(f"--steps {steps} --batch {batch}: give 2 steps or more, and a batch that is a multiple of 4")
    return steps, batch


def _name_left_out(methods: set[str], bundle: str) -> None:
    """Say which methods are not trained, since nobody has found yet what they need on photographs."""
    from faceanon.studies.zoo.recipes import find_methods

    left_out = []
    for method in find_methods(None, bundle):
        if method.name not in methods:
            left_out.append(method.name)
    if left_out:
        print(f"[zoo] not yet trained on photographs, left out: {', '.join(left_out)}; --steps N tries them")


def _test_identities(options: ZooOptions) -> int:
    """Persons in the test, once it is clear that the options fit the bundle.

    Raises:
        UserError: They do not.
    """
    from faceanon.studies.zoo.photographs import of_photographs, test_persons

    if not of_photographs(options.bundle):
        if options.photos:
            raise UserError(
                f"--photos: bundle {options.bundle} has no codec, so it is not for photographs; leave it out"
            )
        if options.test_identities is None:
            return 200
        if options.test_identities < 1:
            raise UserError(f"--test-identities {options.test_identities}: give 1 or more")
        return options.test_identities
    if options.test_identities is not None:
        raise UserError("--test-identities: the test of photographs is that of photo128; leave it out")
    return test_persons()
