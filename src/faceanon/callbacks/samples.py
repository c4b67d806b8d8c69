"""Sample sheets during training, as files and in W&B."""

from __future__ import annotations

from pathlib import Path

import lightning as L
from lightning.pytorch.loggers import WandbLogger
from torch import Tensor

from faceanon.report.sheets import sheet


def save_samples(stage: L.LightningModule, rows: dict[str, Tensor]) -> Path:
    """Write the rows as one sheet into `samples/` of the log folder, and to W&B where it is on.

    Args:
        stage: The stage that draws them.
        rows: Pictures `(N, 3, S, S)` in [-1, 1] by name.
    """
    number = int(stage.trainer.fit_loop.total_batch_idx) + 1
    picture = sheet(rows)
    folder = Path(stage.trainer.log_dir or stage.trainer.default_root_dir) / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"batch_{number:07d}.png"
    picture.save(path)
    for logger in stage.trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.log_image("samples", [picture], step=stage.global_step)
    return path
