"""Lightning's CSV logger, but a resumed run continues its file."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.core.saving import save_hparams_to_yaml
from lightning.pytorch.loggers import CSVLogger as LightningCSVLogger
from torch import Tensor


class MetricsFile:
    """`metrics.csv` of a run: at any moment, a kill leaves all rows that were saved.

    Nothing is touched before the first row: Lightning asks for it before it has read the checkpoint.

    Args:
        folder: Of the run; made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "metrics.csv"
        self.metrics: list[dict[str, Any]] = []
        self.metrics_keys: list[str] = []
        self.hparams: dict[str, Any] = {}
        self.keep: int | None = None  # so many rows of an earlier file stay, in a resumed run
        self.rows = 0
        self._begun = False
        folder.mkdir(parents=True, exist_ok=True)

    def _begin(self) -> None:
        """Delete or shorten what an earlier process wrote."""
        self._begun = True
        if self.keep is None:
            self.path.unlink(missing_ok=True)
        elif self.path.exists():
            self.metrics_keys, rows = self._read()
            self._rewrite(rows[: self.keep])

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Add a row, which `save` writes."""
        row = {}
        for name, value in metrics.items():
            row[name] = value.item() if isinstance(value, Tensor) else value
        self.metrics.append({**row, "step": len(self.metrics) if step is None else step})

    def log_hparams(self, params: dict[str, Any]) -> None:
        """Write hyperparameters beside the file."""
        self.hparams.update(params)
        save_hparams_to_yaml(str(self.folder / "hparams.yaml"), self.hparams)

    def save(self) -> None:
        """Write the rows that were added since."""
        if not self._begun and (self.metrics or self.keep is not None):
            self._begin()
        if not self.metrics:
            return
        fresh = set().union(*self.metrics) - set(self.metrics_keys)
        # A column that comes new needs another head, so all rows are written again.
        if fresh or not self.path.exists():
            before = self._read()[1] if self.path.exists() else []
            self.metrics_keys = sorted({*self.metrics_keys, *fresh})
            self._rewrite([*before, *self.metrics])
        else:
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, self.metrics_keys).writerows(self.metrics)
            self.rows += len(self.metrics)
        self.metrics = []

    def _read(self) -> tuple[list[str], list[dict[str, Any]]]:
        with self.path.open(newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        return list(reader.fieldnames or []), rows

    def _rewrite(self, rows: list[dict[str, Any]]) -> None:
        """Replace the file by one of these rows, in one step."""
        temporary = self.path.with_name(f".{self.path.name}.new")
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.metrics_keys)
            writer.writeheader()
            writer.writerows(rows)
            file.flush()
            # The rows have to be on the disk before the name points to them.
            os.fsync(file.fileno())
        temporary.replace(self.path)
        self.rows = len(rows)


class CSVLogger(LightningCSVLogger):
    """As Lightning's, with the same arguments; `training.run_state.RunState` tells it from where a run resumes."""

    def continue_after(self, rows: int) -> None:
        """Keep so many rows of the file that is there, instead of deleting it; call it before anything is logged."""
        self.experiment.keep = rows

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:  # noqa: ANN401 - a `MetricsFile`, or Lightning's dummy on other ranks
        """The `MetricsFile` that rows are written to; made at the first call, and a dummy on all ranks but 0."""
        if self._experiment is None:
            self._experiment = MetricsFile(Path(self.log_dir))  # type: ignore[assignment]
        return self._experiment

    def saved_rows(self) -> int:
        """Write everything down; how many rows that makes."""
        self.save()
        rows: int = self.experiment.rows
        return rows
