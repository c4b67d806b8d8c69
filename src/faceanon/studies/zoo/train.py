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
from faceanon.files import write_atomic
from faceanon.paths import checkpoints, configs
from faceanon.studies.zoo.photographs import (
    batches_of,
    data_options,
    of_photographs,
    sheet_faces,
    stage_words,
    stands_on,
)
from faceanon.studies.zoo.recipes import Method, ZooStage

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 4
MOST_GROUPS = 4000
FACES = 8
SPENT = "spent.json"  # what the parts of an unfinished training took
PLAIN = "riddle_s2"  # whose test serves methods without a stage; nothing of its training is used


@dataclass(frozen=True)
class ZooSettings:
    """What is the same for all methods; kept beside the results.

    Args:
        steps: Training batches of a method, over all its stages; None where each method's own configs say them.
        batch: Pictures in a batch; None likewise.
        bundle: Bundle by name or folder.
        test_identities: Held-out persons in the test.
        overlays: Further configs, put behind that of every stage.
        photos: Folders of photographs to train on, for a bundle of photographs; none for those that ship.
    """

    steps: int | None
    batch: int | None = 16
    bundle: str = "synth64"
    test_identities: int = 200
    overlays: list[str] = field(default_factory=list)
    photos: list[str] = field(default_factory=list)

    @property
    def photographs(self) -> bool:
        """Whether methods train on photographs instead of procedural faces."""
        return of_photographs(self.bundle)

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
            batches = batches_of(stage, settings.overlays)
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
    return folder_of(stage.owner, seed, out) / stage.folder


def _fit(
    method: Method, stage: ZooStage, seed: int, place: Path, settings: ZooSettings, batches: int, start: Path | None
) -> None:
    """Train one stage, from its last checkpoint where it was stopped before, and note what it cost when it is done.

    Raises:
        RunError: It was stopped; the same command goes on.
    """
    from faceanon.training.cli import run as train
    from faceanon.training.signals import StoppedError

    data: dict[str, Any]
    if settings.photographs:
        epochs = 1
        an_epoch = batches
        data = data_options(bundle_of(method, settings), settings.photos, batches)
    else:
        assert settings.batch is not None  # only trainings on photographs say their own
        # Faces of an epoch are drawn into memory, so a long training takes several epochs.
        epochs = -(-batches * settings.batch // (GROUP * MOST_GROUPS))
        # Epochs are of one length, so a training may have a few batches more than were asked for.
        an_epoch = -(-batches // epochs)
        data = {
            "data.init_args.train_groups": an_epoch * settings.batch // GROUP,
            "data.init_args.seed": seed,
            "trainer.max_epochs": epochs,
        }
    options: dict[str, Any] = {
        "seed_everything": seed,
        "model.init_args.seed": seed,
        "model.init_args.export": place / "model",
        "model.init_args.samples_every": 0,
        "trainer.limit_val_batches": 0,
        "trainer.logger.init_args.save_dir": place,
        # Lightning warns of epochs that are shorter than this.
        "trainer.log_every_n_steps": min(10, an_epoch),
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
    cost: dict[str, float] = {"batches": epochs * an_epoch}
    if settings.batch is not None:
        cost["batch"] = settings.batch
    cost |= spent
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
        if settings.photographs:
            options |= data_options(bundle_of(method, settings), settings.photos, None)
            # Protocols that ship are of other pictures.
            options["model.init_args.protocol"] = "null"
        if method.tested_by is not None:
            stage = method.tested_by
        elif method.stages:
            stage = method.stages[-1]
        else:
            stage = ZooStage(PLAIN, (), PLAIN)
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
    options: dict[str, Any] = {}
    # Of a method without a config of its own, its preset takes the place of the config's backbone.
    borrowed = not method.stages and method.tested_by is None
    if borrowed:
        options = {"model.init_args.backbone": configs() / f"backbone/{method.listed.name}.yaml"}
    bundle = bundle_of(method, settings)
    options["model.init_args.backbone.init_args.bundle"] = bundle
    words = []
    if settings.photographs:
        words = stage_words(stage, borrowed)
    else:
        for file in stage.files:
            words += ["--config", str(file)]
        options |= {
            "data": "faceanon.data.synthetic.datamodule.SyntheticFaces",
            "data.init_args.test_identities": settings.test_identities,
        }
    options |= {
        "data.init_args.image_size": _image_size(bundle),
        "trainer.default_root_dir": place,
        "trainer.callbacks": "null",
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
    }
    if settings.batch is not None:
        options["data.init_args.batch_size"] = settings.batch
    # Behind the stage's configs and before the zoo's own options, since what comes last wins.
    for overlay in settings.overlays:
        words += ["--config", overlay]
    overrides = []
    for name, value in options.items():
        overrides.append(f"--{name}={value}")
    return [*words, *overrides]


def bundle_of(method: Method, settings: ZooSettings) -> str:
    """The bundle that a method stands on."""
    return stands_on(method.listed, settings.bundle)


def _image_size(bundle: str) -> int:
    from faceanon.weights.bundle import Bundle

    return Bundle(bundle).image_size


def faces(settings: ZooSettings) -> Tensor:
    """The eight faces of all sheets: the first test picture of as many persons, `(8, 3, S, S)`."""
    if settings.photographs:
        return sheet_faces(FACES, _image_size(settings.bundle))

    from faceanon.data.synthetic.datamodule import SyntheticFaces

    data = SyntheticFaces(_image_size(settings.bundle), test_identities=FACES, photos=1, batch_size=FACES)
    data.setup("test")
    image: Tensor = next(iter(data.test_dataloader())).image
    return image


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
