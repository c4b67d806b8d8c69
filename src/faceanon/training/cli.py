"""LightningCLI in which what was typed wins over a checkpoint's hyperparameters, and mistakes become one line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import lightning as L
import yaml
from jsonargparse import set_loader
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from faceanon import __version__
from faceanon.errors import UserError
from faceanon.training.acceleration import Acceleration
from faceanon.training.checkpoint_file import DamagedError, read_checkpoint
from faceanon.training.config_files import load_config
from faceanon.training.guard import FiniteGuard
from faceanon.training.orderly import in_order
from faceanon.training.precision import choose_precision
from faceanon.training.resume import go_on_with_logs, last_of_run, one_last, with_checkpoints
from faceanon.training.run_name import with_name
from faceanon.training.run_state import RunState
from faceanon.training.signals import GracefulStop
from faceanon.training.wandb_run import add_wandb

_NOISE = ("Does not validate", "Subtypes:", "Errors:", "Expected a <class 'NoneType'>", "Given value")
_SHARDED = (".metadata", "meta.pt", "checkpoint", "latest")  # of FSDP, and of DeepSpeed
_LIGHTNINGS_OWN = ("best", "hpc")


set_loader("yaml", load_config, (yaml.YAMLError,))


class OneLineParser(LightningArgumentParser):
    """Parser that raises `UserError` instead of printing five screens of usage and exiting."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise what is wrong as one line."""
        # An inner parser, whose errors jsonargparse itself catches.
        if not self.exit_on_error:
            super().error(message, ex)
        raise UserError(f"{_one_line(message)}; see --help") from ex


class FaceAnonCLI(LightningCLI):
    """LightningCLI whose typed configuration is never overridden by `--ckpt_path`.

    `--ckpt_path last` resumes the run of this configuration, if there is one: see `training.resume`.
    """

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """`--acceleration`, a callback beside `trainer.callbacks` that a later config can add; `--name`; `--wandb`."""
        parser.add_lightning_class_args(Acceleration, "acceleration")
        parser.add_argument(
            "--name",
            type=str | None,
            default=None,
            help="Name of the run: trainer defaults, and the folder of its logs, model and report below runs.",
        )
        parser.add_argument(
            "--wandb",
            type=str | None,
            default=None,
            help="Project of Weights & Biases to log to, beside the files; WANDB_MODE=offline needs no account.",
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: object) -> None:
        """Keep what was typed, before Lightning merges a checkpoint's hyperparameters into it."""
        try:
            self.config = parser.parse_args(with_name(parser, sys.argv[1:]))
        except UnicodeDecodeError as error:
            raise UserError(f"a config file is not UTF-8 text ({error}); save it as such") from error
        config = self.config[self.config.subcommand]
        self._last = None
        if config.get("ckpt_path") == "last":
            config["ckpt_path"] = self._last = last_of_run(config["trainer"], self.config.subcommand == "fit")
        self._checkpoint = _read_checkpoint(config.get("ckpt_path"))
        self._given = self.config.clone()

    def _parse_ckpt_path(self) -> None:
        """Leave a checkpoint's hyperparameters alone: Lightning imports whatever module they name."""

    def before_instantiate_classes(self) -> None:
        """Put back what was typed; what is no training logs beside the training's files, not over them."""
        config = self.config[self.subcommand]
        given = self._given[self.subcommand].get("model")
        if given is not None:
            config["model"] = given
        choose_precision(config["trainer"], sys.argv)
        add_wandb(config, str(self.subcommand))
        if self.subcommand == "fit":
            go_on_with_logs(config["trainer"], self._last, self._checkpoint)
            one_last(config["trainer"])
        else:
            log_apart(config["trainer"].get("logger"), str(self.subcommand))

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:  # noqa: ANN401 - as Lightning has it
        """Add what keeps a run's checkpoints.

        Raises:
            UserError: Lightning does not take the settings, or this machine has no such device.
        """
        own = with_checkpoints(dict(self._get(self.config_init, "trainer", default={})), self.subcommand == "fit")
        try:
            return super().instantiate_trainer(**own, **kwargs)
        # Lightning raises either for a setting that it does not take, such as a GPU on a machine that has none.
        except (MisconfigurationException, ValueError) as error:
            raise UserError(
                f"the trainer cannot be built: {_one_line(str(error))}; change trainer in the config"
            ) from error

    def after_instantiate_classes(self) -> None:
        """Refuse a checkpoint or data that do not fit the model, before anything is written."""
        if self._checkpoint is not None:
            self.model.on_load_checkpoint(self._checkpoint)
        # A method may take larger faces than its bundle's networks were made for.
        maker = getattr(self.model, "backbone", None) or getattr(self.model, "bundle", None)
        wanted = getattr(maker, "image_size", None)
        given = getattr(self.datamodule, "image_size", None)
        if wanted is not None and given is not None and wanted != given:
            raise UserError(f"the data give {given} px, the model takes {wanted} px; set data's image_size to it")


def log_apart(loggers: Any, folder: str) -> None:  # noqa: ANN401 - whatever stands in a config
    """Give CSV loggers without a version the subfolder `folder`: Lightning's deletes the metrics.csv that it finds."""
    for logger in loggers if isinstance(loggers, list) else [loggers]:
        if str(getattr(logger, "class_path", "")).endswith(".CSVLogger") and not logger.init_args.get("version"):
            logger.init_args["version"] = folder


def run(arguments: Sequence[str]) -> FaceAnonCLI:
    """Parse `fit|validate|test|predict ...` and run it.

    Raises:
        UserError: A mistake in arguments, configuration or files, also where jsonargparse wrapped it in its own error.
        RunError: The run failed or was stopped: see `training.failures` and `training.signals`.
    """
    typed = sys.argv
    # Lightning warns when given arguments besides sys.argv, and starts the other processes of DDP with sys.argv.
    sys.argv = [typed[0], *arguments]
    try:
        # The averaged copy and the encoder stay in eval mode on purpose.
        warnings.filterwarnings("ignore", r"Found \d+ module\(s\) in eval mode")
        # Lightning's own, torch >= 2.9.
        warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)")
        warnings.filterwarnings("ignore", r"Precision .* is not supported by the model summary")
        with in_order():
            return FaceAnonCLI(
                L.LightningModule,
                L.LightningDataModule,
                subclass_mode_model=True,
                subclass_mode_data=True,
                auto_configure_optimizers=False,
                seed_everything_default=0,
                trainer_defaults={"callbacks": [RunState(), FiniteGuard(), GracefulStop()]},
                # A resumed run finds the config.yaml that it wrote before.
                save_config_kwargs={"overwrite": True},
                parser_class=OneLineParser,
                parser_kwargs={"version": __version__, "prog": "faceanon"},
            )
    finally:
        sys.argv = typed


def _one_line(message: str) -> str:
    """What jsonargparse has to say, without the alternatives that nobody meant."""
    lines = []
    for written in message.splitlines():
        line = written.strip().removeprefix("- ")
        if line and not line.startswith(_NOISE):
            lines.append(line)
    return " ".join(lines)


def _read_checkpoint(path: str | Path | None) -> dict[str, Any] | None:
    """The content of `--ckpt_path`; None where none is given, or where it is one that only Lightning can find or read.

    Raises:
        UserError: There is no such file, or it is damaged.
    """
    if path is None or str(path) in _LIGHTNINGS_OWN or str(path).startswith("registry"):
        return None
    if not Path(path).exists():
        raise UserError(f"--ckpt_path: there is no {path}; give a .ckpt that an earlier run saved")
    if Path(path).is_dir():
        if not any((Path(path) / name).exists() for name in _SHARDED):
            raise UserError(f"--ckpt_path: {path} is a folder and no sharded checkpoint; give the .ckpt itself")
        return None
    try:
        # Tensors stay on the disk: Lightning reads the file itself when the run begins.
        return read_checkpoint(Path(path), mapped=True)
    except DamagedError as error:
        raise UserError(f"--ckpt_path: {error}; give one that a run saved, or `last` for the newest whole") from error
