"""What the rows of a paper's table need trained at full scale: by configs/paper, on photographs of one's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from faceanon.errors import RunError
from faceanon.models import CARD
from faceanon.paths import configs
from faceanon.studies.tables.spec import AblationTraining, PaperTable, as_typed


def recipes(table: PaperTable) -> dict[str, tuple[AblationTraining, ...]]:
    """Trainings by the name of the row that they fill: an ablation's own, a method's by configs of its name."""
    found = {}
    for row in table.rows:
        if row.full:
            found[row.ours[0]] = row.full
        elif (configs() / f"paper/{row.ours[0]}_s2.yaml").is_file():
            stages = (f"paper/{row.ours[0]}_s1", f"paper/{row.ours[0]}_s2")
            found[row.ours[0]] = tuple(AblationTraining(stage) for stage in stages)
    return found


def train(table: PaperTable, photos: Path, bundle: str, further: Sequence[str], out: Path) -> list[str]:
    """Train what is not there yet; a training that was stopped goes on from its last checkpoint.

    Args:
        table: The table.
        photos: Folder of aligned photographs to train on.
        bundle: By name or folder.
        further: Config files behind each training's own.
        out: Folder of the models.

    Returns:
        `NAME=MODEL` of each row.

    Raises:
        RunError: A training failed or was stopped.
    """
    methods = []
    for name, trainings in recipes(table).items():
        # Until an ablation changes something, it is trained as the whole method is, and that is done once.
        owner = trainings[0].config.removeprefix("paper/").rsplit("_", 1)[0]
        model = None
        for training in trainings:
            if training.set:
                owner = name
            place = out / owner / training.config.rsplit("_", 1)[1]
            if not (place / "model" / CARD).is_file():
                _fit(training, photos, bundle, further, place, model)
            model = place / "model"
        methods.append(f"{name}={model}")
    return methods


def _fit(
    training: AblationTraining, photos: Path, bundle: str, further: Sequence[str], place: Path, start: Path | None
) -> None:
    """`faceanon fit` in a process of its own, which may start others on further GPUs."""
    words = ["fit", "--config", str(configs() / f"{training.config}.yaml")]
    words += as_typed(training.set)
    for file in further:
        words += ["--config", file]
    words += [
        f"--model.init_args.backbone.init_args.bundle={bundle}",
        f"--data.init_args.root={photos}",
        f"--model.init_args.export={place / 'model'}",
        f"--trainer.default_root_dir={place}",
        f"--trainer.logger.init_args.save_dir={place}",
        "--ckpt_path=last",
    ]
    if start is not None:
        words.append(f"--model.init_args.init_from={start}")
    print(f"[tables] {training}: {place}", flush=True)
    done = subprocess.run([sys.executable, "-m", "faceanon", *words], check=False)
    if done.returncode:
        raise RunError(
            f"{training} in {place} did not end well; the same command goes on from there", max(1, done.returncode)
        )
