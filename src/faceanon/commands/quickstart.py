"""Train both stages briefly on the embedded bundle, test the result, change a photo and back, and write a report.

What `make demo` runs. By default it stands on photo128 and the synthetic photographs that ship with it: stage 1 and
stage 2 of Persona go on from the shipped model for some minutes, are tested on synthetic persons that no training saw,
and the new model anonymizes and recovers a photograph. --from-scratch starts from nothing, which takes hours to draw
believable people. --bundle synth64 trains DBAF on procedural faces instead.

  faceanon quickstart --out runs/demo
  faceanon quickstart --out runs/demo --batches 2000 --from-scratch
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.errors import UserError
from faceanon.paths import checkpoints, configs

PHOTOGRAPHS = "photo128"
SHIPPED = "persona_photo128"
SHOWN = 4  # photographs of the sheet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to write, and how long to train."""
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for logs, models and the report")
    parser.add_argument("--batches", type=int, default=60, help="batches of each stage, photographs (default: 60)")
    parser.add_argument(
        "--from-scratch", action="store_true", help="start from nothing instead of the shipped model, photographs"
    )
    parser.add_argument("--groups", type=int, default=660, help="groups of four procedural faces (default: 660)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, keys and training faces")
    parser.add_argument("--bundle", default=PHOTOGRAPHS, help="bundle by name or folder (default: photo128)")
    parser.add_argument(
        "--test-identities", type=int, default=200, help="held-out persons in the test, procedural faces (default: 200)"
    )


def run(args: argparse.Namespace) -> int:
    """Fit, fit, test, use; each prints its own progress bar.

    Raises:
        UserError: A number is out of range, or a training fails for a reason that the user can mend.
    """
    if args.batches < 1:
        raise UserError(f"--batches is {args.batches}; give 1 or more")
    if args.bundle == "synth64":
        return _procedural_faces(args)
    return _photographs(args)


def _photographs(args: argparse.Namespace) -> int:
    from faceanon.training.cli import run as train

    first = args.out / "stage1"
    second = args.out / "stage2"
    report = args.out / "report"
    start = [] if args.from_scratch else [f"--model.init_args.init_from={checkpoints() / SHIPPED}"]
    print("[1/4] stage 1: learn to paint a face into a photograph", flush=True)
    train(["fit", *_photograph_stage("persona_s1", args, first), *start])
    print("[2/4] stage 2: paint strangers under keys", flush=True)
    again = [f"--model.init_args.init_from={first / 'model'}"]
    train(["fit", *_photograph_stage("persona_s2", args, second), *again])
    print("[3/4] test on synthetic persons that were not trained on", flush=True)
    model = [f"--model.init_args.init_from={second / 'model'}", f"--model.init_args.report={report}"]
    quiet = ["--trainer.logger=false", "--trainer.callbacks=null"]
    train(["test", *_photograph_stage("persona_s2", args, second), *model, *quiet])
    print("[4/4] anonymize and recover photographs", flush=True)
    sheet = _use(second / "model", args)
    print(f"photographs, anonymized, recovered, opened with a wrong password: {sheet.resolve()}")
    print(f"done; open {(report / 'report.html').resolve()}")
    return 0


def _photograph_stage(config: str, args: argparse.Namespace, folder: Path) -> list[str]:
    """Arguments that both stages on photographs share."""
    options = {
        "seed_everything": args.seed,
        "model.init_args.seed": args.seed,
        "model.init_args.export": folder / "model",
        "model.init_args.samples_every": max(1, args.batches),
        "model.init_args.backbone.init_args.bundle": args.bundle,
        "data.init_args.bundle": args.bundle,
        "data.init_args.seed": args.seed,
        "data.init_args.cache": args.out / "prepared",
        "trainer.max_epochs": 1,
        "trainer.limit_train_batches": args.batches,
        "trainer.default_root_dir": folder,
        "trainer.logger.init_args.save_dir": folder,
    }
    return ["--config", str(configs() / f"{config}.yaml"), *(f"--{name}={value}" for name, value in options.items())]


def _use(model: Path, args: argparse.Namespace) -> Path:
    """Take held-out photographs to files and back with the new model; the sheet that shows it."""
    from faceanon.data.prepared import PreparedFaces
    from faceanon.pipeline.photo import Pipeline
    from faceanon.pipeline.sheet import there_and_back

    faces = PreparedFaces(bundle=args.bundle, cache=str(args.out / "prepared"), seed=args.seed)
    photos = faces.files("test")[:SHOWN]
    return there_and_back(Pipeline.load(model), photos, args.out / "photos", args.out / "photographs.png")


def _procedural_faces(args: argparse.Namespace) -> int:
    from faceanon.training.cli import run as train

    first = args.out / "stage1"
    second = args.out / "stage2"
    report = args.out / "report"
    print("[1/3] stage 1: separate identity from attributes", flush=True)
    train(["fit", *_procedural_stage("dbaf_keyed_s1", args, first), "--trainer.max_epochs=2"])
    print("[2/3] stage 2: learn the key", flush=True)
    # Batches with wrong keys cost twice as much as the others; so short a training needs them less often.
    rare = ["--model.init_args.branches_every=4", f"--model.init_args.init_from={first / 'model'}"]
    train(["fit", *_procedural_stage("dbaf_keyed_s2", args, second), *rare])
    print("[3/3] test on persons never seen", flush=True)
    test = [
        "test",
        *_procedural_stage("dbaf_keyed_s2", args, second),
        f"--model.init_args.init_from={second / 'model'}",
    ]
    train([*test, f"--model.init_args.report={report}", "--trainer.logger=false", "--trainer.callbacks=null"])
    print(f"done; open {(report / 'report.html').resolve()}")
    return 0


def _procedural_stage(config: str, args: argparse.Namespace, folder: Path) -> list[str]:
    """Arguments that both stages on procedural faces share."""
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
