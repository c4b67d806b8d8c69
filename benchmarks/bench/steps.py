"""Training steps as `faceanon fit` makes them: Lightning's loop, held before every batch until it is asked for."""

from __future__ import annotations

import importlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, Dataset

from bench.cases import Case, Work, register
from bench.public import random_bundle
from bench.settings import LIGHTNING, Settings
from faceanon.backbones.base import Backbone
from faceanon.backbones.presets import backbone_class
from faceanon.data.prepared import shipped_faces, shipped_pictures
from faceanon.files import read_yaml
from faceanon.paths import configs
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.stages.anonymize_terms import AnonymizeWeights
from faceanon.stages.backbone_stage import BackboneStage
from faceanon.stages.disentangle import DisentangleWeights
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle

PHOTOGRAPHS = 128
_STAGES: dict[str, tuple[type[BackboneStage[Any]], type]] = {
    "s1": (DisentangleStage, DisentangleWeights),
    "s2": (AnonymizeStage, AnonymizeWeights),
}


@dataclass(frozen=True)
class Recipe:
    """A stage to measure.

    Args:
        preset: Method, as the files in configs/ name it.
        stage: `s1` or `s2`.
        size: Side of the faces in px; 128 stands on the prior that ships, other sizes are the papers' setting on random
            networks.
        batch: Faces a batch.
    """

    preset: str
    stage: str
    size: int
    batch: int


class Repeated(Dataset[FaceBatch]):
    """One batch, again and again: loading is a case of its own."""

    def __init__(self, batch: FaceBatch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        # More than anybody measures: the end of an epoch would fall into a sample.
        return 1_000_000

    def __getitem__(self, index: int) -> FaceBatch:
        return self.batch


def faces(count: int, size: int) -> FaceBatch:
    """So many of the photographs that ship, two a person."""
    bundle = Bundle("photo128")
    rows = shipped_pictures(bundle, "train")[:count]
    number = torch.arange(count)
    return FaceBatch(shipped_faces(bundle, rows, size), number // 2, torch.full((count,), -1))


def build_stage(recipe: Recipe, **changes: Any) -> BackboneStage[Any]:  # noqa: ANN401 - a stage's settings
    """The stage that the preset's config describes, on weights that exist.

    Args:
        recipe: What.
        changes: Settings of the stage that differ from the config.
    """
    name = f"{recipe.preset}_{recipe.stage}"
    if recipe.size != PHOTOGRAPHS:
        name = f"paper/{name}"
    config = read_yaml(configs() / f"{name}.yaml")["model"]["init_args"]
    method = _method(config.pop("backbone"))
    if recipe.size != PHOTOGRAPHS:
        method["init_args"]["bundle"] = str(random_bundle(recipe.size))
    kind, weights = _STAGES[recipe.stage]
    backbone: Backbone = backbone_class(method["class_path"])(**method["init_args"])
    for name in ("optimizer_g", "optimizer_d"):
        if name in config:
            config[name] = _optimizer(config[name])
    config["weights"] = weights(**config.get("weights", {}))
    # A measured training leaves nothing behind.
    for name in ("export", "report"):
        config.pop(name, None)
    stage = kind(backbone=backbone, **{**config, "samples_every": 0, **changes})
    # Random weights need no statistics, and there is no datamodule to take them from.
    stage.initialised = True
    return stage


def _method(described: Any) -> dict[str, Any]:  # noqa: ANN401 - as a config has it
    """Class and arguments of a stage's backbone: of a file, of a file with changes, or as they stand there."""
    if isinstance(described, str):
        described = {"base": described, "init_args": {}}
    if "base" not in described:
        return {"class_path": described["class_path"], "init_args": dict(described["init_args"])}
    preset = read_yaml(configs() / described["base"])
    return {"class_path": preset["class_path"], "init_args": {**preset["init_args"], **described["init_args"]}}


def _optimizer(described: dict[str, Any]) -> Callable[..., Any]:
    """As jsonargparse makes it of a config: a function of the parameters."""
    module, _, name = described["class_path"].rpartition(".")
    return partial(getattr(importlib.import_module(module), name), **described.get("init_args", {}))


class StepGate(Callback):
    """Holds the training before every batch until it is let through.

    Attributes:
        wishes: Contexts in which the next batch shall run; None ends the training.
        done: One entry for every batch that has ended: None, or what went wrong.
    """

    def __init__(self) -> None:
        self.wishes: SimpleQueue[AbstractContextManager[object] | None] = SimpleQueue()
        self.done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._inside = ExitStack()

    def on_train_batch_start(self, trainer: L.Trainer, stage: L.LightningModule, batch: FaceBatch, index: int) -> None:
        """Wait; at the end leave the loop before the batch, as Lightning itself does where a stage's hook gives -1."""
        # The hook runs in the training's thread, so the context is entered where the work is done.
        if (wish := self.wishes.get()) is None:
            trainer.should_stop = True
            raise StopIteration
        self._inside.enter_context(wish)

    def on_train_batch_end(
        self, trainer: L.Trainer, stage: L.LightningModule, outputs: object, batch: FaceBatch, index: int
    ) -> None:
        """Tell the measuring side that a step is done."""
        self._inside.close()
        self.done.put(None)


class SteppedTraining:
    """A training that makes one step whenever it is told to, in a thread of its own.

    Args:
        stage: What trains.
        batch: What it sees, every time.
        settings: Device and precision.
        folder: For what Lightning may write.
        per_call: Steps of one call, for stages whose batches differ in turns.
        kwargs: Further arguments of the Trainer.
    """

    def __init__(
        self,
        stage: L.LightningModule,
        batch: FaceBatch,
        settings: Settings,
        folder: Path,
        per_call: int = 1,
        **kwargs: Any,  # noqa: ANN401 - the Trainer's own
    ) -> None:
        self.gate = StepGate()
        self.per_call = per_call
        self.threads = settings.threads
        options: dict[str, Any] = {"accelerator": "gpu" if settings.cuda else "cpu", "devices": 1, "logger": False}
        options |= {"precision": LIGHTNING[settings.precision], "max_epochs": 1, "default_root_dir": folder}
        options |= {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = L.Trainer(**{**options, "callbacks": [self.gate], **kwargs})
        # The data set gives whole batches already.
        loader = DataLoader(Repeated(batch), batch_size=None)
        # A daemon, so that a training that hangs cannot keep the process.
        self.thread = threading.Thread(target=self._run, args=(trainer, stage, loader), daemon=True)
        self.thread.start()

    def _run(self, trainer: L.Trainer, stage: L.LightningModule, loader: DataLoader[FaceBatch]) -> None:
        # A new thread starts with all cores.
        torch.set_num_threads(self.threads)
        try:
            trainer.fit(stage, train_dataloaders=loader)
        except BaseException as error:  # told to whoever waits for the batch
            self.gate.done.put(error)

    def step(self, context: AbstractContextManager[object] | None = None) -> None:
        """Train on one batch, within `context` in the thread that computes.

        Raises:
            BaseException: Whatever the training raised.
        """
        self.gate.wishes.put(nullcontext() if context is None else context)
        if (error := self.gate.done.get()) is not None:
            raise error

    def call(self) -> None:
        """All steps of one call."""
        for _ in range(self.per_call):
            self.step()

    def under(self, context: AbstractContextManager[object]) -> None:
        """One call with `context` around each step's work."""
        for _ in range(self.per_call):
            self.step(context)

    def close(self) -> None:
        """Let the training end, and wait up to 30 s for its thread."""
        self.gate.wishes.put(None)
        self.thread.join(timeout=30)


def step(settings: Settings, recipe: Recipe) -> Work:
    """Steps of a stage; one call goes through all kinds of batches that take turns, R1 not among them."""
    stack = ExitStack()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    # The lazy R1 falls due every 16th batch: a median would miss it, so it is measured alone (discriminator-r1).
    stage = build_stage(recipe, r1_gamma=0.0)
    turns = int(getattr(stage, "branches_every", 1))
    training = SteppedTraining(stage, faces(recipe.batch, recipe.size), settings, folder, turns)
    stack.callback(training.close)
    return Work(training.call, recipe.batch * turns, training.under, stack.close)


def _cases() -> Iterator[Case]:
    uses = frozenset({"device", "precision"})
    for number in (1, 2):
        small = Recipe("dbaf", f"s{number}", PHOTOGRAPHS, 4)
        about = f"DBAF's stage {number} on photographs, 128 px, batch 4, the shipped prior"
        yield Case(f"stage{number}", about, partial(step, recipe=small), uses=uses)
    for number in (1, 2):
        public = Recipe("dbaf", f"s{number}", 256, 2)
        about = f"DBAF's stage {number} with its discriminator, 256 px, batch 2, random networks of the public size"
        build = partial(step, recipe=public)
        yield Case(f"stage{number}-256", about, build, uses=uses, usual=False, heavy=True)


register(*_cases())
