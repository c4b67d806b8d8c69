"""What the `name` of a run stands for: trainer defaults before its configs, and one folder for what it writes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from lightning.pytorch.cli import LightningArgumentParser

from faceanon.errors import UserError
from faceanon.paths import configs

RUNS = "runs"
Config = Any  # a namespace of jsonargparse, whose items are what stands in a YAML


def trainer_defaults() -> Path:
    """The trainer settings that every run with a name starts from."""
    return configs() / "trainer" / "default.yaml"


def with_name(parser: LightningArgumentParser, words: Sequence[str]) -> list[str]:
    """The words of a command, and those that a `name` in its configs or options stands for.

    A name puts the trainer defaults before the first config, where everything else wins over them, and appends an
    option for whatever neither a config nor an option of the run gives. So what is printed or saved as this run's
    config holds all of it. Without a name the words stay as they are.

    Args:
        parser: Of the command line.
        words: `fit`, `validate`, `test` or `predict`, and what follows it.

    Raises:
        UserError: A mistake in the configs or options, or a name that is no folder below another.
    """
    command = words[0]
    defaults = ["--config", str(trainer_defaults())]
    asked = []
    for word in words[1:]:
        if not word.startswith("--print_config"):
            asked.append(word)
    # Without the parser's own defaults, so that a setting of null is told from none.
    given = parser.parse_args([command, *defaults, *asked], defaults=False)[command]
    name = given.get("name")
    if name is None:
        return list(words)
    _check(name)
    options = []
    for setting, value in _of_name(name, given).items():
        options.append(f"--{setting}={value}")
    return [command, *defaults, *words[1:], *options]


def _check(name: str) -> None:
    """Refuse what would lead out of the folder of runs.

    Raises:
        UserError: It would, or it is empty.
    """
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute():
        raise UserError(f"name: {name!r} names no folder for a run; give a word such as dbaf_s1")


def _of_name(name: str, given: Config) -> dict[str, str]:
    """Settings that a name stands for and that are not given.

    Args:
        name: Of the run.
        given: Settings of its configs and options.
    """
    trainer = given["trainer"]
    root = Path(trainer.get("default_root_dir") or RUNS)
    wanted = {}
    logger = trainer.get("logger")
    # None and booleans have no class; a list of loggers is somebody's own.
    if str(getattr(logger, "class_path", "")).endswith(".CSVLogger"):
        wanted["trainer.logger.init_args.name"] = name
        # No version of its own: the run's folder is the one that the name says.
        wanted["trainer.logger.init_args.version"] = ""
    for argument, folder in (("export", "model"), ("report", "report")):
        if _takes(given.get("model"), argument):
            wanted[f"model.init_args.{argument}"] = str(root / name / folder)
    options = {}
    for setting, value in wanted.items():
        if not _is_given(given, setting):
            options[setting] = value
    # The class asks for a folder, so the trainer defaults hold an empty one.
    if "trainer.logger.init_args.name" in wanted and not logger.init_args.get("save_dir"):
        options["trainer.logger.init_args.save_dir"] = str(root)
    return options


def _is_given(given: Config, setting: str) -> bool:
    """Whether a setting stands in a config or among the options, be it as null."""
    for part in setting.split("."):
        if part not in given:
            return False
        given = given[part]
        if given is None:
            return True
    return True


def _takes(model: Config, argument: str) -> bool:
    """Whether the class of a stage has an argument, one that it hands on to its base included."""
    module, _, leaf = str(getattr(model, "class_path", "")).rpartition(".")
    if not module:
        return False
    for kind in getattr(importlib.import_module(module), leaf).__mro__:
        if "__init__" not in vars(kind):
            continue
        parameters = inspect.signature(kind.__init__).parameters
        if argument in parameters:
            return True
        handed_on = []
        for one in parameters.values():
            if one.kind is inspect.Parameter.VAR_KEYWORD:
                handed_on.append(one)
        # Without `**kwargs` this class hands nothing on, so its bases' arguments cannot be given.
        if not handed_on:
            return False
    return False
