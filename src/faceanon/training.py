"""LightningCLI in which what was typed wins over a checkpoint's hyperparameters, and mistakes become one line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import lightning as L
import torch
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from faceanon import __version__
from faceanon.errors import UserError

_NOISE = ("Does not validate", "Subtypes:", "Errors:", "Expected a <class 'NoneType'>", "Given value")
_LIGHTNINGS_OWN = ("best", "last", "hpc")


class OneLineParser(LightningArgumentParser):
    """Parser that raises `UserError` instead of printing five screens of usage and exiting."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise what is wrong as one line."""
        if not self.exit_on_error:  # an inner parser, whose errors jsonargparse itself catches
            super().error(message, ex)
        raise UserError(f"{_one_line(message)}; see --help") from ex


class FaceAnonCLI(LightningCLI):
    """LightningCLI whose typed configuration is never overridden by `--ckpt_path`."""

    def parse_arguments(self, parser: LightningArgumentParser, args: object) -> None:
        """Keep what was typed, before Lightning merges a checkpoint's hyperparameters into it."""
        super().parse_arguments(parser, args)  # type: ignore[arg-type]
        self._checkpoint = _read_checkpoint(self.config[self.config.subcommand].get("ckpt_path"))
        self._given = self.config.clone()

    def before_instantiate_classes(self) -> None:
        """Put back what was typed; what is no training logs beside the training's files, not over them."""
        config = self.config[self.subcommand]
        given = self._given[self.subcommand].get("model")
        if given is not None:
            config["model"] = given
        if self.subcommand != "fit":
            log_apart(config["trainer"].get("logger"), str(self.subcommand))

    def after_instantiate_classes(self) -> None:
        """Refuse a checkpoint or data that do not fit the model, before anything is written."""
        if self._checkpoint is not None:
            self.model.on_load_checkpoint(self._checkpoint)
        wanted = getattr(getattr(self.model, "bundle", None), "image_size", None)
        given = getattr(self.datamodule, "image_size", None)
        if wanted is not None and given is not None and wanted != given:
            raise UserError(
                f"the data give {given} px, the bundle is made for {wanted} px; set data's image_size to it"
            )


def log_apart(loggers: Any, folder: str) -> None:  # noqa: ANN401 - whatever stands in a config
    """Give CSV loggers without a version the subfolder `folder`: Lightning's deletes the metrics.csv that it finds."""
    for logger in loggers if isinstance(loggers, list) else [loggers]:
        if str(getattr(logger, "class_path", "")).endswith(".CSVLogger") and not logger.init_args.get("version"):
            logger.init_args["version"] = folder


def run(arguments: Sequence[str]) -> FaceAnonCLI:
    """Parse `fit|validate|test|predict ...` and run it.

    Raises:
        UserError: A mistake in arguments, configuration or files, also where jsonargparse wrapped it in its own error.
    """
    typed = sys.argv
    # Lightning warns when given arguments besides sys.argv, and starts the other processes of DDP with sys.argv.
    sys.argv = [typed[0], *arguments]
    try:
        # The averaged copy and the encoder stay in eval mode on purpose.
        warnings.filterwarnings("ignore", r"Found \d+ module\(s\) in eval mode")
        warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)")  # Lightning's own, torch >= 2.9
        return FaceAnonCLI(
            L.LightningModule,
            L.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            auto_configure_optimizers=False,
            seed_everything_default=0,
            save_config_kwargs={"overwrite": True},
            parser_class=OneLineParser,
            parser_kwargs={"version": __version__, "prog": "faceanon"},
        )
    except UserError:
        raise
    except Exception as error:
        mistake = next((cause for cause in _causes(error) if isinstance(cause, UserError)), None)
        if mistake is None:
            raise
        raise mistake from error
    finally:
        sys.argv = typed


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(message: str) -> str:
    """What jsonargparse has to say, without the alternatives that nobody meant."""
    lines = [line.strip().removeprefix("- ") for line in message.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_NOISE))


def _read_checkpoint(path: str | Path | None) -> dict[str, Any] | None:
    """The content of `--ckpt_path`; None where none is given, or where it is one that only Lightning can find or read.

    Raises:
        UserError: There is no such file, or it is damaged.
    """
    if path is None or str(path) in _LIGHTNINGS_OWN or str(path).startswith("registry"):
        return None
    if not Path(path).exists():
        raise UserError(f"--ckpt_path: there is no {path}; give a .ckpt that an earlier run saved")
    if Path(path).is_dir():  # sharded
        return None
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return {"state_dict": content["state_dict"], **content}
    except Exception as error:  # rubbish makes the unpickler raise whatever it stumbles over
        raise UserError(f"--ckpt_path: {path} is damaged or no checkpoint; give one that a run saved") from error
