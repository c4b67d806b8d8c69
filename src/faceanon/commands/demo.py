"""Train both stages briefly on the shipped bundle, test the result, change a photo and back, and write a report.

The demo uses photo128 and the synthetic photographs that ship with it. Both stages of Persona train for some minutes,
from the shipped model on, and are tested on synthetic persons that no training saw. Then the new model anonymizes and
recovers photographs, and so does the model that ships, for comparison. --from-scratch starts from nothing, which takes
hours to draw believable people.

  faceanon demo --out runs/demo
  faceanon demo --out runs/demo --batches 2000 --from-scratch
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faceanon.commands._typed import typed
from faceanon.errors import UserError
from faceanon.paths import checkpoints, configs

PHOTOGRAPHS = "photo128"
SHIPPED = "persona_photo128"
SHOWN = 4  # photographs of the sheet


@dataclass(frozen=True)
class DemoOptions:
    """Where the demo writes, and how long it trains.

    Args:
        out: Folder for logs, models and the report.
        batches: Batches of each stage.
        from_scratch: Whether training starts from nothing instead of the shipped model.
        seed: Of weights, keys and training faces.
        bundle: Name or folder.
    """

    out: Path
    batches: int
    from_scratch: bool
    seed: int
    bundle: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to write, and how long to train."""
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for logs, models and the report")
    parser.add_argument("--batches", type=int, default=40, help="batches of each stage (default: 40)")
    parser.add_argument("--from-scratch", action="store_true", help="start from nothing instead of the shipped model")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, keys and training faces")
    parser.add_argument("--bundle", default=PHOTOGRAPHS, help="bundle by name or folder (default: photo128)")


def run(args: argparse.Namespace) -> int:
    """Fit, fit, test, use; each prints its own progress bar.

    Raises:
        UserError: A number is out of range, or a training fails for a reason that the user can mend.
    """
    options = typed(DemoOptions, args)
    if options.batches < 1:
        raise UserError(f"--batches is {options.batches}; give 1 or more")
    # Else it would show when the first stage is prepared.
    if options.out.is_file():
        raise UserError(f"--out {options.out} is a file; name a folder to write to")
    from faceanon.training.cli import run as train

    first = options.out / "stage1"
    second = options.out / "stage2"
    report = options.out / "report"
    start = [] if options.from_scratch else [f"--model.init_args.init_from={checkpoints() / SHIPPED}"]
    print("[1/4] stage 1: the flow learns to draw the face of an identity code into a photograph", flush=True)
    train(["fit", *_stage("persona_s1", options, first), *start])
    print("[2/4] stage 2: the flow redraws strangers under keys, and learns whom not to draw", flush=True)
    again = [f"--model.init_args.init_from={first / 'model'}"]
    train(["fit", *_stage("persona_s2", options, second), *again])
    print("[3/4] test on synthetic persons that were not trained on", flush=True)
    model = [f"--model.init_args.init_from={second / 'model'}", f"--model.init_args.report={report}"]
    # The config's logger and callbacks are those of a training; a test writes its report and nothing else.
    quiet = ["--trainer.logger=false", "--trainer.callbacks=null"]
    train(["test", *_stage("persona_s2", options, second), *model, *quiet])
    print("[4/4] anonymize and recover photographs", flush=True)
    photos = _held_out(options)
    new = _use(second / "model", photos, options.out / "photographs")
    shipped = _use(checkpoints() / SHIPPED, photos, options.out / "shipped")
    print(f"photographs, anonymized, recovered, opened with a wrong password: {new.resolve()}")
    print(f"the same with the model that ships: {shipped.resolve()}")
    print(f"done; open {(report / 'report.html').resolve()}")
    return 0


def _stage(config: str, options: DemoOptions, folder: Path) -> list[str]:
    """Arguments that both stages share."""
    settings = {
        "seed_everything": options.seed,
        "model.init_args.seed": options.seed,
        "model.init_args.export": folder / "model",
        # At the end alone: so short a training has little to show before.
        "model.init_args.samples_every": max(1, options.batches),
        # The discriminator learns alone in a third of the batches at most, so that a short demo trains the flow too.
        "model.init_args.head_start": min(40, options.batches // 3),
        "model.init_args.backbone.init_args.bundle": options.bundle,
        "data.init_args.bundle": options.bundle,
        "data.init_args.seed": options.seed,
        "data.init_args.train_batches": options.batches,
        "data.init_args.cache": options.out / "prepared",
        "trainer.max_epochs": 1,
        "trainer.default_root_dir": folder,
        "trainer.logger.init_args.save_dir": folder,
    }
    overrides = []
    for name, value in settings.items():
        overrides.append(f"--{name}={value}")
    return ["--config", str(configs() / f"{config}.yaml"), *overrides]


def _held_out(options: DemoOptions) -> list[Path]:
    """The first photographs that no training saw."""
    from faceanon.data.prepared import PreparedFaces

    faces = PreparedFaces(bundle=options.bundle, cache=str(options.out / "prepared"), seed=options.seed)
    return faces.files("test")[:SHOWN]


def _use(model: Path, photos: Sequence[Path], folder: Path) -> Path:
    """Take photographs to files in a folder and back with a model; the sheet beside the folder that shows it."""
    from faceanon.pipeline.photo import Pipeline
    from faceanon.pipeline.sheet import there_and_back

    return there_and_back(Pipeline.load(model), photos, folder, folder.with_suffix(".png"))
