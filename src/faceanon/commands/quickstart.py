"""Train both stages of the default model briefly on the embedded bundle, test it, and write a report.

What `make demo` runs: stage 1 and stage 2 start from nothing but the shipped bundle of procedural faces, take about ten
minutes on two cores, and end with one page that shows this run's figures beside those of the model that ships with
faceanon, which trained longer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.paths import configs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to write, and how long to train."""
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for logs, models and the report")
    parser.add_argument("--groups", type=int, default=660, help="groups of four training faces (default: 660)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, keys and training faces")
    parser.add_argument("--bundle", default="synth64", help="bundle by name or folder (default: synth64)")
    parser.add_argument("--test-identities", type=int, default=200, help="held-out persons in the test (default: 200)")


def run(args: argparse.Namespace) -> int:
    """Fit, fit, test; each prints its own progress bar."""
    from faceanon.training import run as train

    first, second, report = args.out / "stage1", args.out / "stage2", args.out / "report"
    print("[1/3] stage 1: separate identity from attributes", flush=True)
    train(["fit", *_stage("dbaf_keyed_s1", args, first), "--trainer.max_epochs=2"])
    print("[2/3] stage 2: learn the key", flush=True)
    # Batches with wrong keys cost twice as much as the others; so short a training needs them less often.
    rare = ["--model.init_args.branches_every=4", f"--model.init_args.init_from={first / 'model'}"]
    train(["fit", *_stage("dbaf_keyed_s2", args, second), *rare])
    print("[3/3] test on persons never seen", flush=True)
    test = ["test", *_stage("dbaf_keyed_s2", args, second), f"--model.init_args.init_from={second / 'model'}"]
    train([*test, f"--model.init_args.report={report}", "--trainer.logger=false", "--trainer.callbacks=null"])
    print(f"done; open {(report / 'report.html').resolve()}")
    return 0


def _stage(config: str, args: argparse.Namespace, folder: Path) -> list[str]:
    """Arguments that every stage shares."""
    options = {
        "seed_everything": args.seed,
        "model.init_args.seed": args.seed,
        "model.init_args.export": folder / "model",
        "model.init_args.backbone.init_args.bundle": args.bundle,
        "data.init_args.train_groups": args.groups,
        "data.init_args.seed": args.seed,
        "data.init_args.test_identities": args.test_identities,
        "trainer.default_root_dir": folder,
        "trainer.logger.init_args.save_dir": folder,
    }
    return ["--config", str(configs() / f"{config}.yaml"), *(f"--{name}={value}" for name, value in options.items())]
