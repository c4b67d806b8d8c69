"""What the tests of the stages run on: cheap faces, callbacks that look on, and the commands' common words."""

import csv
import hashlib
import json
from pathlib import Path

import lightning as L
import torch
from torch.utils.data import Dataset

from faceanon.data.jitter import EXACT, CropJitter, JitteredTraining
from faceanon.data.loader import ResumableLoader
from drawn.datamodule import BlockSampler
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
    """Blobs in crossed groups of four, like the procedural faces but free to draw."""
    people, sets = torch.arange(groups * 4) // 2, torch.arange(groups * 4) % 2 + torch.arange(groups * 4) // 4 * 2
    image = _upscaled(groups * 2, seed)[people] + _upscaled(groups * 2, seed + 1)[sets]
    bands = torch.arange(64)[None, :, None].expand(groups * 4, 64, 64) * 10 // 64
    return FaceBatch(image, people, sets, bands.clone(), torch.zeros(groups * 4, 16, 2))


class Rows(Dataset):
    def __init__(self, faces):
        self.faces = faces

    def __len__(self):
        return len(self.faces)

    def __getitem__(self, rows):
        return self.faces.map(lambda item: item[rows])


class BlobFaces(JitteredTraining, L.LightningDataModule):
    """Training batches whose order depends on the epoch alone, as those of the procedural faces."""

    jitter_group = 4

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
        str(REPO / f"configs/{config}.yaml"),
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


def small(options):
    """`options` with a CID of one small block."""
    return {**{f"backbone__init_args__{name}": value for name, value in SMALL_CID.items()}, **options}


def fit(config, bundle, out, *callbacks, more=(), **options):
    """Train in this process; gives back LightningCLI's object."""
    return run(["fit", *words(config, bundle, out, *callbacks, **small(options)), *more])


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
