"""What the tests of the stages run on: cheap faces, callbacks that look on, and the commands' common words."""

import csv
import hashlib
import json
from pathlib import Path

import lightning as L
import torch
from torch.utils.data import Dataset, DistributedSampler

from faceanon.data.jitter import EXACT, CropJitter, JitteredTraining
from faceanon.data.loader import ResumableLoader
from faceanon.data.streams import stream
from faceanon.training.cli import run
from faceanon.types import FaceBatch

REPO = Path(__file__).resolve().parents[2]
SMALL_CID = {"cid_depth": 1, "cid_heads": 2, "cid_head_dim": 8}
SAVE_LAST = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": {"save_last": True}}


def _upscaled(rows, seed):
    """Smooth random pictures `(rows, 3, 64, 64)` in [-0.5, 0.5]."""
    coarse = torch.rand(rows, 3, 5, 5, generator=torch.Generator().manual_seed(seed)) - 0.5
    return torch.nn.functional.interpolate(coarse, 64, mode="bicubic").clamp(-0.5, 0.5)


def crossed_faces(groups, seed):
    """Blobs in groups of four, two people in each of two attribute sets, with a class for every pixel."""
    people, sets = torch.arange(groups * 4) // 2, torch.arange(groups * 4) % 2 + torch.arange(groups * 4) // 4 * 2
    image = _upscaled(groups * 2, seed)[people] + _upscaled(groups * 2, seed + 1)[sets]
    bands = torch.arange(64)[None, :, None].expand(groups * 4, 64, 64) * 10 // 64
    return FaceBatch(image, people, sets, bands.clone())


class Rows(Dataset):
    def __init__(self, faces):
        self.faces = faces

    def __len__(self):
        return len(self.faces)

    def __getitem__(self, rows):
        return self.faces.map(lambda item: item[rows])


class BlockSampler(DistributedSampler):
    """Yields lists of rows, one batch each, made of whole blocks of consecutive rows; each rank has its own blocks.

    It is a `DistributedSampler` because Lightning leaves those in place and tells them the epoch.

    Args:
        rows: Length of the data set.
        block: Rows of a block.
        batch_size: Rows of a batch, a multiple of `block`.
        shuffle: New order of the blocks each epoch, and only full batches, equally many for each rank. Otherwise all
            rows in their order, each rank a stretch of its own.
        seed: Seed of the order.
        ranks: Number of processes.
        rank: Number of this process.
    """

    def __init__(
        self, rows: int, block: int, batch_size: int, shuffle: bool, seed: int = 0, ranks: int = 1, rank: int = 0
    ) -> None:
        super().__init__(range(rows), num_replicas=ranks, rank=rank, shuffle=shuffle, seed=seed)
        self.block = block
        self.blocks = rows // block
        self.per_batch = batch_size // block

    def _mine(self) -> torch.Tensor:
        """Blocks of this rank in this epoch, `(n,)` int64."""
        if not self.shuffle:
            # Uneven parts where they must be: no picture is tested twice.
            return torch.arange(self.blocks).tensor_split(self.num_replicas)[self.rank]
        order = torch.randperm(self.blocks, generator=stream("order", self.seed, self.epoch))
        # What does not fill a batch on every rank is left out of this epoch.
        whole = self.blocks // (self.per_batch * self.num_replicas) * self.per_batch * self.num_replicas
        # The ranks' batches laid end to end are one process's batch of so many times the size.
        return order[:whole].view(-1, self.num_replicas, self.per_batch)[:, self.rank].flatten()

    def __iter__(self):
        mine = self._mine()
        for start in range(0, len(mine), self.per_batch):
            blocks = mine[start : start + self.per_batch]
            yield (blocks[:, None] * self.block + torch.arange(self.block)).flatten().tolist()

    def __len__(self) -> int:
        if self.shuffle:
            return self.blocks // (self.per_batch * self.num_replicas)
        return -(-len(self._mine()) // self.per_batch)


class BlobFaces(JitteredTraining, L.LightningDataModule):
    """Training batches whose order depends on the epoch alone."""

    def __init__(self, groups: int = 8, batch_size: int = 8, seed: int = 0, jitter: CropJitter = EXACT) -> None:
        super().__init__()
        self.jitter = jitter
        self.groups, self.batch_size, self.seed = groups, batch_size, seed

    def _loader(self, faces, shuffle):
        trainer = self.trainer
        sampler = BlockSampler(
            len(faces), 4, self.batch_size, shuffle, self.seed, trainer.world_size, trainer.global_rank
        )
        return ResumableLoader(Rows(faces), batch_size=None, sampler=sampler)

    def train_dataloader(self):
        return self._loader(crossed_faces(self.groups, self.seed), shuffle=True)

    def val_dataloader(self):
        return self._loader(crossed_faces(2, 100), shuffle=False)


class Start(L.Callback):
    """Keeps the weights that the training starts from."""

    def on_fit_start(self, trainer, pl_module):
        self.state = {name: value.detach().clone() for name, value in pl_module.state_dict().items()}


class Interrupt(L.Callback):
    """Ctrl-C in the middle of an epoch."""

    def __init__(self, epoch: int, batch: int) -> None:
        self.when = (epoch, batch)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == self.when:
            raise KeyboardInterrupt


class RankNotes(L.Callback):
    """Writes what each process saw and where its weights ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.people = folder, []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.people += batch.identity.tolist()

    def on_train_end(self, trainer, pl_module):
        digest = hashlib.sha256()
        for _, value in sorted(pl_module.named_parameters()):
            digest.update(value.detach().contiguous().numpy().tobytes())
        note = {"people": self.people, "weights": digest.hexdigest(), "world": trainer.world_size}
        Path(self.folder, f"rank{trainer.global_rank}.json").write_text(json.dumps(note))


def stage_config(name):
    """The file of a stage: of the tests, in pixels, or the papers' own."""
    own = REPO / f"tests/configs/{name}.yaml"
    return own if own.is_file() else REPO / f"configs/paper/{name}.yaml"


def words(config, bundle, out, *callbacks, blobs=True, **options):
    """Arguments of `fit` on the tiny bundle, with everything written below `out`.

    `options` are keys behind `model.init_args.`, dots written as two underscores; `callbacks` are class paths or dicts.
    """
    listed = [{"class_path": item} if isinstance(item, str) else item for item in callbacks]
    keys = {
        "model.init_args.backbone.init_args.bundle": bundle,
        "model.init_args.export": Path(out, "model"),
        "trainer.callbacks": json.dumps([SAVE_LAST, *listed]),
        **_trainer_words(out),
    }
    keys |= {f"model.init_args.{name.replace('__', '.')}": value for name, value in options.items()}
    data = ["--data", "stage_probes.BlobFaces", "--data.init_args.batch_size=8"] if blobs else []
    return [
        "--config",
        str(stage_config(config)),
        *data,
        *(f"--{key}={value}" for key, value in keys.items()),
    ]


def _trainer_words(out):
    return {
        "trainer.default_root_dir": out,
        "trainer.logger.init_args.save_dir": out,
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
        "trainer.log_every_n_steps": 1,
    }


def small(config, options):
    """`options` with a CID of one small block, where the config's method has one."""
    if not config.startswith(("dbaf", "hford")):
        return options
    return {**{f"backbone__init_args__{name}": value for name, value in SMALL_CID.items()}, **options}


def fit(config, bundle, out, *callbacks, more=(), **options):
    """Train in this process; gives back LightningCLI's object."""
    return run(["fit", *words(config, bundle, out, *callbacks, **small(config, options)), *more])


def logged(out):
    """metrics.csv below `out`: a list of values by column, None where a row has none."""
    (path,) = Path(out).rglob("metrics.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) if row[name] else None for row in rows] for name in rows[0]}


def losses(out):
    """Training columns alone, without the rows that lack them."""
    return {
        name: [value for value in values if value is not None]
        for name, values in logged(out).items()
        if name.startswith("train/")
    }


def checkpoint(out):
    """The last checkpoint below `out`, read as a stranger's would be."""
    (path,) = Path(out).rglob("last.ckpt")
    return torch.load(path, map_location="cpu", weights_only=True)
