"""A folder of photos through `Trainer.predict`: processes of one or several machines, each with its share."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader

from faceanon.errors import NoRoomError, UserError
from faceanon.pipeline.many.folder import FolderRun
from faceanon.pipeline.many.journal import PART_NAME, Journal
from faceanon.pipeline.steps import Outcome

SHARE = 256  # photos in one step: the threads run dry only at its end

Report = Callable[[Outcome | UserError], bool]


class FolderStage(LightningModule):
    """Anonymize or recover a folder: of n processes the k-th takes every n-th photo from the k-th on.

    The first process owns the journal, each other writes a part beside it. Salt, list of photos and album are the first
    one's.

    Args:
        run: The run, as every process has planned it.
        journal: Opened by the first process, None in the others.
        report: Is told each result of this process; returns whether to continue.
    """

    def __init__(self, run: FolderRun, journal: Journal | None, report: Report) -> None:
        super().__init__()
        self.run = run
        self.journal = journal
        self.report = report
        self._stopped = False

    def setup(self, stage: str) -> None:
        """Agree on what is to be done."""
        names = []
        for source, _ in self.run.todo:
            names.append(self.run.plan.name(source))
        head, names, album = self.trainer.strategy.broadcast((self.run.head, names, self.run.album))
        jobs = {}
        for job in self.run.plan.jobs:
            jobs[self.run.plan.name(job[0])] = job
        self.run.adopt(head)
        self.run.use(album)
        self.run.todo = [jobs[name] for name in names]
        if self.journal is None:
            self.journal = Journal(self.run.plan.target / PART_NAME.format(self.global_rank), head)

    def predict_dataloader(self) -> DataLoader[list[int]]:
        """Numbers of this process's photos, in batches; an empty one where there are fewer photos than processes.

        Lightning's own sampler for `predict` deals out alike, but refuses a process without any.
        """
        own = range(self.global_rank, len(self.run.todo), self.trainer.world_size)
        batches = [list(own[start : start + SHARE]) for start in range(0, len(own), SHARE)] or [[]]
        return DataLoader(batches, batch_size=None, collate_fn=list)  # type: ignore[arg-type]

    def predict_step(self, batch: list[int], batch_idx: int) -> int:
        """Do the photos of these numbers, unless this process has been told to stop; how many that were."""
        assert self.journal is not None
        if self._stopped:
            return 0
        jobs = []
        for number in batch:
            jobs.append(self.run.todo[number])
        try:
            with closing(self.run.work(self.journal, jobs)) as results:
                for _, result in results:
                    if not self.report(result):
                        self._stopped = True
                        break
        except NoRoomError as error:
            # Not raised: the other processes would wait for this one's summary.
            self.report(error)
            self._stopped = True
        return len(batch)


def folder_trainer(devices: int, nodes: int, device: str) -> Trainer:
    """A trainer whose `predict` starts the other processes by giving this one's command again.

    Args:
        devices: Processes on each machine.
        nodes: Machines.
        device: `cpu` or `cuda`.

    Raises:
        UserError: If there are no such devices.
    """
    # Lightning's lines on devices and samplers tell nothing to whoever anonymizes photos.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    try:
        return Trainer(
            accelerator="gpu" if device == "cuda" else "cpu",
            devices=devices,
            num_nodes=nodes,
            # It opens the process group through which summaries are gathered.
            strategy=DDPStrategy(),
            # `predict_dataloader` deals the photos out itself.
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except MisconfigurationException as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"cannot start {devices} processes on {device}: {reason}") from error


def is_first(trainer: Trainer) -> bool:
    """Whether this is the process that starts all others; known before it does."""
    environment = getattr(trainer.strategy, "cluster_environment", None)
    assert isinstance(environment, ClusterEnvironment)
    return environment.node_rank() == 0 and environment.local_rank() == 0


def run_shares(trainer: Trainer, run: FolderRun, report: Report, summary: Callable[[], object]) -> list[Any]:
    """Do a run over a folder with all processes of `trainer`.

    Returns:
        In the first process every process's summary, with all lines in `run.lines`; nothing in the others.

    Raises:
        UserError: If the run cannot be resumed, see `FolderRun.open`.
    """
    first = is_first(trainer)
    stage = FolderStage(run, run.open() if first else None, report)
    try:
        with warnings.catch_warnings():
            # Workers, pytrees: nothing that a user could change.
            warnings.filterwarnings("ignore", module="lightning")
            trainer.predict(stage, return_predictions=False)
        assert stage.journal is not None
        if not first:
            # Before the others are told, so that the first may take it.
            stage.journal.close()
        summaries: list[Any] = [None] * trainer.world_size
        torch.distributed.all_gather_object(summaries, summary())
        if not first:
            return []
        run.lines |= stage.journal.take_parts(run.head)
        if not run.anything_done:
            stage.journal.discard()
        return summaries
    finally:
        if stage.journal is not None:
            stage.journal.close()
