"""How `faceanon zoo` trains, tests and measures one method."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faceanon.errors import RunError, UserError
from faceanon.files import read_yaml, write_atomic
from faceanon.paths import checkpoints
from faceanon.studies.tables.spec import as_typed
from faceanon.studies.zoo.photographs import PRIOR, data_options, sheet_faces, stands_on
from faceanon.studies.zoo.recipes import Method, ZooStage

if TYPE_CHECKING:
    from torch import Tensor

FACES = 8
SPENT = "spent.json"  # what the parts of an unfinished training took


@dataclass(frozen=True)
class ZooSettings:
    """What is the same for all methods; kept beside the results.

    Args:
        steps: Training batches of a method, over all its stages; None where each method's own configs say them.
        bundle: Bundle by name or folder.
        overlays: Further configs, put behind that of every stage.
        photos: Folders of photographs to train on; none for those that ship.
    """

    steps: int | None
    bundle: str = PRIOR
    overlays: list[str] = field(default_factory=list)
    photos: list[str] = field(default_factory=list)

    def keep(self, folder: Path) -> None:
        """Write them into `folder`, or find them there.

        Raises:
            UserError: Others are there: their results and new ones would not compare.
        """
        path = folder / "settings.json"
        if path.is_file() and (before := json.loads(path.read_text())) != asdict(self):
            raise UserError(f"{folder} holds runs with other settings, {before}; use these, or another --out")
        write_atomic(path, (json.dumps(asdict(self), indent=2) + "\n").encode())


def prepare(method: Method, seed: int, out: Path, settings: ZooSettings) -> Path:
    """Train the method, or build it; what is there already is not repeated. Returns the model's folder.

    Args:
        method: Which.
        seed: Of its training.
        out: Holds a folder for every method and seed.
        settings: The zoo's.
    """
    if method.ships is not None:
        return checkpoints() / method.ships
    model = folder_of(method.name, seed, out) / "model"
    if not method.stages:
        from faceanon.backbones.presets import backbone_class
        from faceanon.models import save_backbone

        listed = method.listed
        arguments = {**listed.init_args, "bundle": bundle_of(method, settings)}
        save_backbone(backbone_class(listed.class_path)(**arguments), model)
        return model
    for number, stage in enumerate(method.stages):
        if settings.steps is None:
            batches = stage.batches(settings.overlays)
        else:
            # A remainder goes to the first stages.
            batches = settings.steps // len(method.stages) + (number < settings.steps % len(method.stages))
        folder = _place(stage, seed, out)
        # Written last, so it tells that the training came to its end.
        if not (folder / "cost.json").is_file():
            print(f"[zoo] {method.name}, seed {seed}: {stage.name}, {batches} batches", flush=True)
            _fit(method, stage, seed, folder, settings, batches, model if number else None)
        model = folder / "model"
    return model


def folder_of(name: str, seed: int, out: Path) -> Path:
    """Folder of the training of a method with a seed."""
    return out / name / f"seed{seed}"


def _place(stage: ZooStage, seed: int, out: Path) -> Path:
    return folder_of(stage.owner, seed, out) / stage.name


def _fit(
    method: Method, stage: ZooStage, seed: int, place: Path, settings: ZooSettings, batches: int, start: Path | None
) -> None:
    """Train one stage, from its last checkpoint where it was stopped before, and note what it cost when it is done.

    Raises:
        RunError: It was stopped; the same command goes on.
    """
    from faceanon.training.cli import run as train
    from faceanon.training.signals import StoppedError

    data = data_options(bundle_of(method, settings), settings.photos, batches)
    options: dict[str, Any] = {
        "seed_everything": seed,
        "model.init_args.seed": seed,
        "model.init_args.export": place / "model",
        "model.init_args.samples_every": 0,
        "trainer.limit_val_batches": 0,
        "trainer.logger.init_args.save_dir": place,
        # Lightning warns of epochs that are shorter than this.
        "trainer.log_every_n_steps": min(10, batches),
        # Starts anew where there is none.
        "ckpt_path": "last",
    }
    options |= {} if start is None else {"model.init_args.init_from": start}
    overrides = []
    for name, value in (options | data).items():
        overrides.append(f"--{name}={value}")
    with _clock(place) as spent:
        try:
            train(["fit", *_words(method, stage, place, settings), *overrides])
        except StoppedError as stop:
            # Not with the option that `faceanon fit` needs: the zoo gives it by itself.
            raise RunError(f"{stop.happened}; the same command goes on from there", stop.code) from None
    cost = {"batches": batches, **spent}
    write_atomic(place / "cost.json", (json.dumps(cost, indent=2) + "\n").encode())
    (place / SPENT).unlink()
    # Optimizers are several times as large as the model, which is written beside them.
    for folder in place.glob("*/checkpoints"):
        shutil.rmtree(folder)


@contextmanager
def _clock(place: Path) -> Iterator[dict[str, float]]:
    """Count time, and add it to what earlier parts of a training took; what a kill cut short is lost."""
    path = place / SPENT
    spent = {"seconds": 0.0, "cpu_seconds": 0.0}
    if path.is_file():
        spent = json.loads(path.read_text())
    wall = time.monotonic()
    processor = time.process_time()
    try:
        yield spent
    finally:
        spent["seconds"] += time.monotonic() - wall
        spent["cpu_seconds"] += time.process_time() - processor
        write_atomic(path, (json.dumps(spent) + "\n").encode())


def test(method: Method, seed: int, model: Path, out: Path, settings: ZooSettings) -> dict[str, float]:
    """`faceanon test`, unless its results are there; figures by name, with those of cost.

    Args:
        method: Which.
        seed: Of its training.
        model: Its folder.
        out: Holds a folder for every method and seed, and the features of the originals for all of them.
        settings: The zoo's.
    """
    from faceanon.models import CARD
    from faceanon.results import FILE_NAME, load_results
    from faceanon.training.cli import run as train

    folder = folder_of(method.name, seed, out)
    report = folder / "report"
    if not (report / FILE_NAME).is_file():
        print(f"[zoo] {method.name}: test of {model}", flush=True)
        options: dict[str, Any] = {
            "model.init_args.init_from": model,
            "model.init_args.report": report,
            "model.init_args.features": out / "features",
            "model.init_args.trainable": "null",
            "trainer.logger": "false",
        }
        options |= data_options(bundle_of(method, settings), settings.photos, None)
        if method.stages:
            stage = method.stages[-1]
        else:
            stage = ZooStage("test", method.name)
            card = read_yaml(model / CARD)
            method_of_card = {"class_path": card["class_path"], "init_args": card["init_args"]}
            options["model.init_args.backbone"] = json.dumps(method_of_card)
            if "frame" in card:
                options["model.init_args.frame"] = json.dumps(card["frame"])
        words = _words(method, stage, folder, settings)
        overrides = []
        for name, value in options.items():
            overrides.append(f"--{name}={value}")
        train(["test", *words, *overrides])
    figures = dict(load_results(report).figures)
    costs = []
    for trained in method.stages:
        costs.append(json.loads((_place(trained, seed, out) / "cost.json").read_text()))
    if costs:
        figures["cost/train_cpu_minutes"] = sum(cost["cpu_seconds"] for cost in costs) / 60
    return figures


def _words(method: Method, stage: ZooStage, place: Path, settings: ZooSettings) -> list[str]:
    """Configs and arguments that training and test share."""
    words = ["--config", str(stage.file)]
    words += as_typed(stage.settings)
    # Behind the stage's config and before the zoo's own options, since what comes last wins.
    for overlay in settings.overlays:
        words += ["--config", overlay]
    bundle = bundle_of(method, settings)
    options: dict[str, Any] = {
        "data.init_args.image_size": _image_size(bundle),
        "trainer.default_root_dir": place,
        "trainer.callbacks": "null",
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
    }
    if method.stages:
        options["model.init_args.backbone.init_args.bundle"] = bundle
    for name, value in options.items():
        words.append(f"--{name}={value}")
    return words


def bundle_of(method: Method, settings: ZooSettings) -> str:
    """The bundle that a method stands on."""
    return stands_on(method.listed, settings.bundle)


def _image_size(bundle: str) -> int:
    from faceanon.weights.bundle import Bundle

    return Bundle(bundle).image_size


def faces(settings: ZooSettings) -> Tensor:
    """The eight faces of all sheets: the first test picture of as many persons, `(8, 3, S, S)`."""
    return sheet_faces(FACES, _image_size(settings.bundle))


def measure(model: Path, image: Tensor) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Cost of a model in use, and what it makes of the faces under keys that are always the same, by label.

    Returns:
        Figures, and rows `(8, 3, S, S)`: the anonymized, and where there is a way back the recovered, both from
        8-bit pictures, and what a wrong key opens.
    """
    import torch

    from faceanon.metrics.saved import saved
    from faceanon.metrics.versions import bring_back, codes_or_none, open_wrongly, saved_drawing
    from faceanon.models import load_backbone

    backbone, _ = load_backbone(model)
    first, second, wrong = backbone.sample_key(3 * len(image), torch.Generator().manual_seed(0)).chunk(3)
    with torch.no_grad():
        # Networks that are built on first use.
        backbone.anonymize(image[:1], first[:1])
        # Processor time: the machine may be at other work as well.
        start = time.process_time()
        hidden = saved_drawing(backbone, image, first)
        spent = time.process_time() - start
        rows = {"anonymized, key 1": hidden, "anonymized, key 2": saved_drawing(backbone, image, second)}
        if backbone.reversible:
            rows["recovered"] = saved(bring_back(backbone, hidden, first, codes_or_none(backbone, image)))
            rows["wrong key"] = saved(open_wrongly(backbone, hidden, wrong))
    size = sum(item.numel() for item in backbone.parameters()) / 1e6
    return {"cost/milliseconds_per_face": 1000 * spent / len(image), "cost/parameters_millions": size}, rows
