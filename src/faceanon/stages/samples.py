"""Sample sheets during training, as files and in W&B, and the report of a test there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lightning as L
from lightning.pytorch.loggers import WandbLogger
from torch import Tensor

from faceanon.report.figures import explain
from faceanon.report.sheets import sheet
from faceanon.types import FaceBatch

SHOWN = 8  # faces of a sheet


def sample_faces(stage: L.LightningModule) -> FaceBatch:
    """The first validation faces, always the same."""
    loader = stage.trainer.datamodule.val_dataloader()  # type: ignore[attr-defined]
    first: FaceBatch = next(iter(loader))
    return first.map(lambda tensor: tensor[:SHOWN]).to(stage.device)


def save_samples(stage: L.LightningModule, rows: dict[str, Tensor], folder: Path) -> Path:
    """Write the rows as one sheet into a folder, and to W&B where it is on.

    Args:
        stage: The stage that draws them.
        rows: Pictures `(N, 3, S, S)` in [-1, 1] by name.
        folder: Made where it is missing. Not asked of the trainer here: its `log_dir` waits for every process.
    """
    number = int(stage.trainer.fit_loop.total_batch_idx) + 1
    picture = sheet(rows)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"batch_{number:07d}.png"
    picture.save(path)
    for logger in stage.trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.log_image("samples", [picture], step=stage.global_step)
    return path


def log_report(stage: L.LightningModule, figures: Mapping[str, float], folder: Path) -> None:
    """Send a test's figures as a table to W&B, and its report as an artifact; without W&B do nothing.

    Args:
        stage: The stage that was tested.
        figures: By name; NaN where nothing could be measured.
        folder: Of the report, which is there.
    """
    for logger in stage.trainer.loggers:
        if not isinstance(logger, WandbLogger):
            continue
        import wandb

        rows = []
        for name, value in figures.items():
            rows.append([name, explain(name).title, value])
        logger.log_table("report", columns=["name", "figure", "value"], data=rows)
        # The run's id in it tells the reports of two runs apart.
        artifact = wandb.Artifact(f"report-{logger.version}", type="report")
        artifact.add_dir(str(folder))
        logger.experiment.log_artifact(artifact)
