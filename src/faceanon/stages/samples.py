"""Sample sheets during training, as files and in W&B."""

from __future__ import annotations

from pathlib import Path

import lightning as L
from lightning.pytorch.loggers import WandbLogger
from torch import Tensor

from faceanon.report.sheets import sheet
from faceanon.types import FaceBatch


def sample_faces(stage: L.LightningModule) -> FaceBatch:
    """The first eight validation faces, always the same."""
    loader = stage.trainer.datamodule.val_dataloader()  # type: ignore[attr-defined]
    first: FaceBatch = next(iter(loader))
    return first.map(lambda tensor: tensor[:8]).to(stage.device)


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
