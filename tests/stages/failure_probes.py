"""What goes wrong in a training, on purpose and at a known batch, and how such a training is run."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import lightning as L
import torch
from stage_probes import REPO, BlobFaces, small, words
from torch.utils.data import DataLoader

from faceanon.cli import main
from faceanon.errors import UserError


class SignalAt(L.Callback):
    """A signal to this process, once or twice, in the middle of a batch."""

    def __init__(self, number: int, batch: int, times: int = 1) -> None:
        self.number, self.batch, self.times = number, batch, times

    def on_before_backward(self, trainer, pl_module, loss):
        if trainer.fit_loop.total_batch_idx == self.batch:
            for _ in range(self.times):
                signal.raise_signal(self.number)


class SignalRank(L.Callback):
    """SIGTERM to one of several processes, the others learn of it from that one."""

    def __init__(self, rank: int, batch: int) -> None:
        self.rank, self.batch = rank, batch

    def on_before_backward(self, trainer, pl_module, loss):
        if (trainer.global_rank, trainer.fit_loop.total_batch_idx) == (self.rank, self.batch):
            signal.raise_signal(signal.SIGTERM)


class SignalWhileStarting(L.Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    def on_fit_start(self, trainer, pl_module):
        signal.raise_signal(self.number)


class Poison(L.Callback):
    """NaN in one of the batch's pictures, or in a gradient."""

    def __init__(self, batch: int, gradient: bool = False, value: float = torch.inf) -> None:
        self.batch, self.gradient, self.value = batch, gradient, value

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx == self.batch and not self.gradient:
            batch.image[1, 0, 3, 4] = torch.nan

    def on_after_backward(self, trainer, pl_module):
        if trainer.fit_loop.total_batch_idx == self.batch and self.gradient:
            first = next(p for p in pl_module.parameters() if p.grad is not None).grad
            first[(0,) * first.ndim] = self.value


class SecondOfTwo(L.Callback):
    """One process that draws what the second of two would."""

    def on_train_start(self, trainer, pl_module):
        pl_module.parallel.place = lambda rows: (1, [rows, rows])


class SmallDisk(L.Callback):
    """From a batch on, no file may grow beyond `limit` bytes: what a full disk does, without a disk to fill."""

    def __init__(self, batch: int, limit: int) -> None:
        self.batch, self.limit = batch, limit

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx == self.batch:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


class SmallDiskAtTheEnd(L.Callback):
    """As `SmallDisk`, from when the training has ended, or the test its last batch."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def on_fit_end(self, trainer, pl_module):
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def on_test_epoch_end(self, trainer, pl_module):
        self.on_fit_end(trainer, pl_module)


class TestFaces(BlobFaces):
    """A few faces to test on."""

    __test__ = False

    def test_dataloader(self):
        return self.val_dataloader()


class KillRank(L.Callback):
    """kill -9 of one process, while the others compute on, or hang in a batch that they never end."""

    def __init__(self, rank: int, batch: int, how: str = "kill") -> None:
        self.rank, self.batch, self.how = rank, batch, how

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx != self.batch:
            return
        if trainer.global_rank == self.rank:
            print(f"killed at {time.time()}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.how == "others hang":
            time.sleep(300)


class WorkerFaces(BlobFaces):
    """Blobs read by one worker, which dies or raises once the first epoch is saved."""

    def __init__(self, how: str, batch_size: int = 8) -> None:
        super().__init__(batch_size=batch_size)
        self.how = how

    def train_dataloader(self):
        loader = super().train_dataloader()
        rows = DyingRows(loader.dataset.faces, self.how, self.trainer.default_root_dir)
        return DataLoader(rows, batch_size=None, sampler=loader.sampler, num_workers=1)


class DyingRows(torch.utils.data.Dataset):
    def __init__(self, faces, how, folder):
        self.faces, self.how, self.folder = faces, how, folder

    def __len__(self):
        return len(self.faces)

    def __getitem__(self, rows):
        if checkpoints(self.folder):
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise UserError("photo.png is damaged; take it out")
        return self.faces.map(lambda item: item[rows])


def arguments(bundle, out, *callbacks, config="pixels_s1", more=(), **options):
    listed = words(config, bundle, out, *callbacks, **small(config, {"samples_every": 0, **options}))
    return ["fit", *listed, "--trainer.max_epochs=3", *more]


def train(capsys, *args, **kwargs):
    """`faceanon fit` in this process: the exit code, and what stands on stderr, which must be nothing but our lines."""
    code = main(arguments(*args, **kwargs))
    return code, [line for line in capsys.readouterr().err.splitlines() if line.startswith("faceanon: ")]


def train_apart(*args, **kwargs):
    """The same in a process of its own: exit code, our lines, all of stderr; all processes are gone then."""
    path = os.pathsep.join([str(REPO / "tests/stages"), str(REPO / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "faceanon", *arguments(*args, **kwargs)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("faceanon: ")]
    return done.returncode, lines, done.stderr


def checkpoints(out):
    return sorted(Path(out).rglob("*.ckpt"))


def last(out):
    (path,) = Path(out).rglob("last.ckpt")
    return path
