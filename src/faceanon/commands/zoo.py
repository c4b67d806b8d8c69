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
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from faceanon.commands._recipes import Method
    from faceanon.commands._zoo import Settings


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
    from faceanon.commands._recipes import find_ablations, find_methods
    from faceanon.commands._zoo import Settings, faces
    from faceanon.commands._zoo_jobs import run_at_once

    if args.steps < 2 or args.batch < 4 or args.batch % 4:
        raise UserError(f"--steps {args.steps} --batch {args.batch}: give 2 steps or more and a multiple of 4")
    if args.jobs < 1:
        raise UserError(f"--jobs {args.jobs}: give 1 or more")
    methods = find_methods(args.methods) if args.methods or not args.ablations else []
    given = {method.name for method in methods}
    methods += [method for method in find_ablations(args.ablations or []) if method.name not in given]
    settings = Settings(args.steps, args.batch, args.bundle, args.test_identities, [str(file) for file in args.config])
    settings.keep(args.out)
    seeds = {method.name: args.seeds if method.stages else [0] for method in methods}
    if args.jobs > 1:
        tasks = [(method, seed) for method in methods for seed in seeds[method.name]]
        run_at_once(tasks, args.jobs, args.out, settings)
    image = faces(settings)
    rows: dict[str, dict[str, Tensor]] = {}
    found: dict[str, dict[int, dict[str, float]]] = {}
    for method in methods:
        name = method.name
        found[name], rows[name] = _one(method, seeds[name], args.out, settings, image)
    _write(args.out, settings, found, {"original": image}, rows)
    print(f"[zoo] done; the table is {args.out / 'zoo.md'}")
    return 0


def _one(
    method: Method, seeds: list[int], out: Path, settings: Settings, image: Tensor
) -> tuple[dict[int, dict[str, float]], dict[str, Tensor]]:
    """Figures of a method by seed, and its rows of the sheets with the first seed."""
    from faceanon.commands._zoo import measure, prepare, test

    figures: dict[int, dict[str, float]] = {}
    rows: dict[str, Tensor] = {}
    for seed in seeds:
        model = prepare(method, seed, out, settings)
        figures[seed] = test(method, seed, model, out, settings)
        cost, drawn = measure(model, image)
        figures[seed] |= cost
        rows = rows or drawn
    return figures, rows


def _write(
    out: Path,
    settings: Settings,
    found: dict[str, dict[int, dict[str, float]]],
    original: dict[str, Tensor],
    rows: dict[str, dict[str, Tensor]],
) -> None:
    """Table, figures and sheets."""
    from dataclasses import asdict

    from faceanon.report.results import plain, run_meta
    from faceanon.report.sheets import png_bytes, sheet
    from faceanon.report.zoo import markdown, named, summary
    from faceanon.weights.bundle import Bundle
    from faceanon.weights.files import write_atomic

    bundle = Bundle(settings.bundle)
    columns = named(bundle.judge_name, bundle.recogniser_name)
    table = {name: summary(list(runs.values()), columns) for name, runs in found.items()}
    content: dict[str, Any] = {"schema": 1, "settings": asdict(settings), "meta": run_meta()}
    content["columns"] = [asdict(column) for column in columns]
    content["methods"] = {
        name: {"summary": table[name], "seeds": {str(seed): figures for seed, figures in runs.items()}}
        for name, runs in found.items()
    }
    write_atomic(out / "zoo.json", (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode())
    write_atomic(out / "zoo.md", (_head(settings) + markdown(table, columns)).encode())
    for name, drawn in rows.items():
        write_atomic(out / "sheets" / f"{name}.png", png_bytes(sheet(original | drawn)))
    hidden = {name: drawn["anonymized, key 1"] for name, drawn in rows.items()}
    write_atomic(out / "sheets" / "all.png", png_bytes(sheet(original | hidden)))


def _head(settings: Settings) -> str:
    return (
        f"Bundle {settings.bundle}; {settings.steps} batches of {settings.batch} for every trained method; "
        f"{settings.test_identities} persons in the test. Mean ± standard deviation over the training seeds.\n\n"
    )
