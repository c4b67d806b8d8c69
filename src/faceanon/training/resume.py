"""What `faceanon fit` adds to a trainer's configuration so that `--ckpt_path last` resumes a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.utilities import rank_zero_info

from faceanon.errors import UserError
from faceanon.training.checkpoint_file import newest_or_refuse
from faceanon.training.checkpoints import RunCheckpoint, SafeCheckpointIO
from faceanon.training.run_state import KEY

_LIGHTNINGS = (
    "lightning.pytorch.loggers.CSVLogger",
    "lightning.pytorch.loggers.csv_logs.CSVLogger",
)
_OURS = "faceanon.training.csv_logger.CSVLogger"
Config = Any  # a namespace of jsonargparse, whose items are what stands in a YAML


def listed(entry: object) -> list[Any]:
    """A list of what may be a list, one thing or nothing."""
    # `logger: true` and `false` are Lightning's words for its usual one and for none.
    if entry is None or isinstance(entry, bool):
        return []
    if isinstance(entry, list | tuple):
        return list(entry)
    return [entry]


def _is(entry: Config, name: str) -> bool:
    return str(getattr(entry, "class_path", "")).endswith(f".{name}")


def last_of_run(trainer: Config, fit: bool = True) -> str | None:
    """The newest whole checkpoint that the run of this configuration left; None where there is none yet.

    Says in one line where one had to be passed over, and where there is none.

    Args:
        trainer: The configuration of the trainer.
        fit: Whether it may start anew.

    Raises:
        UserError: All are damaged, or there is none and `fit` is false.
    """
    folders = list(run_folders(trainer))
    path, line = newest_or_refuse(folders)
    if path is None:
        line = f"no checkpoint yet in {', '.join(map(str, folders)) or 'the log folder'}"
        if not fit:
            raise UserError(f"--ckpt_path last: {line}; train first, or give a .ckpt")
        line += ": starting anew"
    if line:
        rank_zero_info(line)
    if path is None:
        return None
    return str(path)


def run_folders(trainer: Config) -> Iterable[Path]:
    """Folders in which a run of this configuration keeps its checkpoints; several where its version is not given."""
    for callback in listed(trainer.get("callbacks")):
        if _is(callback, "RunCheckpoint") and callback.init_args.get("dirpath"):
            return [Path(callback.init_args["dirpath"])]
    root = Path(trainer.get("default_root_dir") or ".")
    loggers = listed(trainer.get("logger"))
    # No logger says where: these are Lightning's own places.
    if not loggers or not hasattr(loggers[0], "init_args"):
        return [root / "checkpoints", *sorted(root.glob("lightning_logs/*/checkpoints"))]
    given = loggers[0].init_args
    if _is(loggers[0], "WandbLogger"):
        name = given.get("project")
        version = given.get("id") or given.get("version")
    else:
        name = given.get("name")
        version = given.get("version")
    base = Path(given.get("save_dir") or given.get("dir") or root) / str(name or "")
    if version is None:
        return sorted(base.glob("*/checkpoints"))
    # As Lightning's loggers name their folders.
    return [base / (version if isinstance(version, str) else f"version_{version}") / "checkpoints"]


def go_on_with_logs(trainer: Config, path: str | None, checkpoint: dict[str, Any] | None) -> None:
    """Let the loggers of a resumed run write where they wrote before.

    Args:
        trainer: The configuration, which is changed: a logger without a version gets that of the checkpoint's folder,
            W&B the id of the checkpoint's run, and Lightning's CSV logger becomes the one that can be resumed.
        path: The checkpoint that was asked for as `last`, or None.
        checkpoint: Content of the checkpoint that is resumed, or None.
    """
    state = (checkpoint or {}).get(KEY) or {}
    runs = iter(state.get("wandb", []))
    for number, logger in enumerate(listed(trainer.get("logger"))):
        # Lightning's own deletes the file of the run that is resumed.
        if getattr(logger, "class_path", None) in _LIGHTNINGS:
            logger.class_path = _OURS
        if _is(logger, "WandbLogger"):
            run = next(runs, None)
            if run and not (logger.init_args.get("id") or logger.init_args.get("version")):
                logger.init_args["id"] = run
        # The first logger's version names the run's folder: VERSION/checkpoints/FILE.
        elif path is not None and number == 0 and "init_args" in logger and logger.init_args.get("version") is None:
            logger.init_args["version"] = Path(path).parent.parent.name


def one_last(trainer: Config) -> None:
    """A `ModelCheckpoint` beside ours leaves `last.ckpt` to it."""
    for callback in listed(trainer.get("callbacks")):
        if _is(callback, "ModelCheckpoint") and not callback.init_args.get("dirpath"):
            callback.init_args["save_last"] = None


def with_checkpoints(trainer: dict[str, Any], fit: bool) -> dict[str, Any]:
    """Arguments of a trainer with `RunCheckpoint` and `SafeCheckpointIO`, where it has none of their kind.

    Args:
        trainer: Its arguments, instantiated.
        fit: Whether it is to train.
    """
    plugins = listed(trainer.get("plugins"))
    callbacks = listed(trainer.get("callbacks"))
    if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
        plugins.append(SafeCheckpointIO())
    # None is Lightning's usual setting, which is on.
    wanted = fit and trainer.get("enable_checkpointing") is not False and not trainer.get("barebones")
    if wanted and not any(isinstance(callback, RunCheckpoint) for callback in callbacks):
        callbacks.append(RunCheckpoint())
    return {"plugins": plugins, "callbacks": callbacks}
