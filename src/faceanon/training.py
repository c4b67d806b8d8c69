"""LightningCLI in which what was typed wins over a checkpoint's hyperparameters."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import lightning as L
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from faceanon import __version__


class FaceAnonCLI(LightningCLI):
    """LightningCLI whose typed configuration is never overridden by `--ckpt_path`."""

    def parse_arguments(self, parser: LightningArgumentParser, args: object) -> None:
        """Keep what was typed, before Lightning merges a checkpoint's hyperparameters into it."""
        super().parse_arguments(parser, args)  # type: ignore[arg-type]
        self._given = self.config.clone()

    def before_instantiate_classes(self) -> None:
        """Put back what was typed."""
        given = self._given[self.subcommand].get("model")
        if given is not None:
            self.config[self.subcommand]["model"] = given


def run(arguments: Sequence[str]) -> FaceAnonCLI:
    """Parse `fit|validate|test|predict ...` and run it."""
    return FaceAnonCLI(
        L.LightningModule,
        L.LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        seed_everything_default=0,
        save_config_kwargs={"overwrite": True},
        parser_kwargs={"version": __version__},
        args=None if list(arguments) == sys.argv[1:] else list(arguments),  # Lightning warns when given both
    )
