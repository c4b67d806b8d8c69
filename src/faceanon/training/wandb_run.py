"""`--wandb PROJECT`: a run that is logged to Weights & Biases beside its own files."""

from __future__ import annotations

from typing import Any

from jsonargparse import Namespace

from faceanon.errors import UserError
from faceanon.training.resume import listed

CLASS = "lightning.pytorch.loggers.WandbLogger"
Config = Any  # a namespace of jsonargparse, whose items are what stands in a YAML


def add_wandb(config: Config, command: str) -> None:
    """Put a W&B logger behind the loggers of a run that names a project.

    The first logger stays the first: its folder is the run's, where sheets and checkpoints are. The option is taken
    away, since the logger that stands for it is then part of the configuration, which is saved.

    Args:
        config: Of the command, which is changed: `wandb`, `name`, `trainer`.
        command: `fit`, `validate`, `test` or `predict`: its kind in W&B.

    Raises:
        UserError: The project has no name.
    """
    project = config.get("wandb")
    if project is None:
        return
    if not project.strip():
        raise UserError("--wandb: give the name of a project, such as faceanon")
    trainer = config["trainer"]
    folder = trainer.get("default_root_dir") or "."
    arguments = {"project": project, "save_dir": str(folder), "name": config.get("name"), "job_type": command}
    # jsonargparse's class has no types of its own.
    logger = Namespace(class_path=CLASS, init_args=Namespace(**arguments))  # type: ignore[no-untyped-call]
    trainer["logger"] = [*listed(trainer.get("logger")), logger]
    config["wandb"] = None
