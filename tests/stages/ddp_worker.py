"""One process of a distributed training on tiny networks; the tests start several, and compare what they learnt."""

import multiprocessing
import os
import socket
import sys
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from stage_probes import SMALL_CID, Rows, crossed_faces
from torch.utils.data import DataLoader, DistributedSampler

from bundles import NETWORKS
from faceanon.backbones.dbaf_flips import DBAFWithFlips
from faceanon.backbones.rotation import Rotation
from faceanon.data.jitter import CropJitter, JitteredTraining
from faceanon.stages import AnonymizeStage, DisentangleStage, PriorStage
from faceanon.stages.anonymize_terms import AnonymizeWeights
from faceanon.stages.disentangle import DisentangleWeights
from faceanon.stages.prior import PriorWeights
from faceanon.weights.bundle import network_class

COMMON = {
    "ema_half_life": 20,
    "gradient_clip": 0.5,
    "schedule": "cosine",
    "warmup": 2,
    "r1_interval": 2,
    "seed": 5,
}
ADAM = partial(torch.optim.Adam, lr=5e-4, betas=(0.5, 0.9), eps=1e-3)  # a larger eps: 0/0 is what a rounding makes it
OPTIMIZERS = {"optimizer_g": ADAM, "optimizer_d": ADAM}
# Without the terms in which a picture depends on another.
OWN_BATCH_ONLY = dict.fromkeys(("adversarial", "code", "target", "adversary"), 0.0)


@dataclass(frozen=True)
class Case:
    """A training: which stage, on how large global batches, cut into how many parts on each process."""

    stage: str
    bundle: str
    sizes: tuple[int, ...] = (8, 8, 7)
    accumulate: int = 1
    epochs: int = 1
    alone: bool = False  # no dropout, no batch statistics: no picture depends on another
    settings: dict[str, Any] = field(default_factory=dict)


class Dealt(DistributedSampler):
    """Global batches of given sizes, in an order that follows from the epoch, cut evenly among the processes."""

    def __init__(self, rows, sizes, ranks, rank):
        super().__init__(range(rows), num_replicas=ranks, rank=rank)
        self.sizes = sizes

    def __len__(self):
        return len(self.sizes)

    def __iter__(self):
        groups = torch.randperm(len(self.dataset) // 4, generator=torch.Generator().manual_seed(self.epoch))
        order = (groups[:, None] * 4 + torch.arange(4)).flatten()[: sum(self.sizes)]
        for batch in order.split(list(self.sizes)):
            yield batch.tensor_split(self.num_replicas)[self.rank].tolist()


class DealtFaces(JitteredTraining, L.LightningDataModule):
    """Crossed blobs; validation has batches of the same make-up however many processes there are."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes, self.seed = sizes, 3
        self.jitter = CropJitter(shift=0.1) if len(set(sizes)) == 1 else CropJitter()
        self.train, self.val = crossed_faces(16, 0), crossed_faces(4, 100)

    def train_dataloader(self):
        sampler = Dealt(len(self.train), self.sizes, self.trainer.world_size, self.trainer.global_rank)
        return DataLoader(Rows(self.train), batch_size=None, sampler=sampler)

    def val_dataloader(self):
        ranks, rank = self.trainer.world_size, self.trainer.global_rank
        batches = torch.arange(len(self.val)).split(4)[rank::ranks]
        sampler = Dealt(len(self.val), (), ranks, rank)  # Lightning leaves this kind as it is
        sampler.__class__ = type("Fixed", (Dealt,), {"__iter__": lambda _: iter([b.tolist() for b in batches])})
        sampler.sizes = batches
        return DataLoader(Rows(self.val), batch_size=None, sampler=sampler)


def network(name):
    kind, init = NETWORKS[name]
    return network_class(f"faceanon.networks.{kind}")(**init)


def build(case):
    """The stage of a case, from the same start in every process.

    Calibration sees a batch part by part, and the principal components of untrained networks make much of rounding:
    where batches are cut in different ways and the outcome is to be the same, it is done beforehand.
    """
    stage = built(case)
    if case.alone and case.stage == "disentangle":
        stage.backbone.calibrate([crossed_faces(8, 7)])
        stage.ema.load_state_dict(stage.backbone.state_dict())
        stage.initialised = True
    return stage


def built(case):
    torch.manual_seed(1)
    extra = {"accumulate": case.accumulate, **case.settings}
    if case.stage == "prior":
        options = {"adversarial_from": 0.5, "weights": PriorWeights(adversarial=0.3), **COMMON, **OPTIMIZERS, **extra}
        parts = [network(name) for name in ("generator", "encoder", "discriminator")]
        return PriorStage(*parts, bundle=case.bundle, **options)
    options = {"samples_every": 0, **COMMON, **OPTIMIZERS, **extra}
    if case.stage == "disentangle":
        # It measures principal components before it trains.
        backbone = Rotation(case.bundle, components=6)
        weights = DisentangleWeights(**{"identity": 0.5, "edges": 0.5, **options.pop("weights", {})})
        return DisentangleStage(backbone, weights, **{"pairing": "mixed", **options})
    # It draws dropout, too.
    backbone = DBAFWithFlips(case.bundle, cid_dropout=0.0 if case.alone else 0.1, **SMALL_CID)
    some = {"code": 0.5, "target": 0.5, "adversary": 0.5, "recovery": 1.0, "recovered_identity": 1.0}
    some |= {"anchor": 1.0, "wrong_anchor": 0.5}
    weights = AnonymizeWeights(**{**some, **options.pop("weights", {})})
    return AnonymizeStage(backbone, weights, **{"saved_noise": 2.0, "branches_every": 2, **options})


class Still(L.Callback):
    """Batch norms use their stored statistics, so that no picture depends on another."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        for module in pl_module.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.eval()


class Notes(L.Callback):
    """What a process drew: keys and images of every part it worked on."""

    def __init__(self):
        self.keys, self.images = [], []

    def setup(self, trainer, pl_module, stage):
        if not isinstance(pl_module, AnonymizeStage):
            return
        real = pl_module.draw_shard

        def draw_shard(batch):
            drawn = real(batch)
            self.keys.append(drawn.keys.detach().clone())
            self.images.append(batch.image.clone())
            return drawn

        pl_module.draw_shard = draw_shard


@contextmanager
def double_precision():
    """New tensors and networks are float64, so that sums in another order agree to 1e-15 of their size, not to 1e-7."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@double_precision()
def train(case, world=1):
    """Train in this process; gives back weights, averages, running statistics, figures, keys."""
    torch.set_num_threads(1)
    stage, data, notes = build(case), DealtFaces(case.sizes), Notes()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=world,
        strategy=DDPStrategy(find_unused_parameters=True) if world > 1 else "auto",
        max_epochs=case.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[notes, *([Still()] if case.alone else [])],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's on networks in eval mode and so on, as in faceanon.training
        trainer.fit(stage, datamodule=data)
    state = {name: value.detach().clone() for name, value in stage.state_dict().items()}
    figures = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val_")}
    return {"state": state, "figures": figures, "keys": notes.keys, "images": notes.images}


def _process(rank, world, port, case, out):
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
    os.environ |= {name: str(value) for name, value in names.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test"}
    torch.save(train(Case(**case), world), Path(out, f"rank{rank}.pt"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train_on(world, case, out, timeout=240):
    """Train in `world` processes of their own; gives back what each has to tell.

    They are forked from one server that has imported torch and Lightning once, not from the process of the tests.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # else the server cannot import what it shall
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ddp_worker"])
    Path(out).mkdir(parents=True, exist_ok=True)
    arguments = (world, free_port(), asdict(case), str(out))
    processes = [context.Process(target=_process, args=(rank, *arguments)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout)
    try:
        assert [process.exitcode for process in processes] == [0] * world
    finally:
        for process in processes:
            process.kill()
    return [torch.load(Path(out, f"rank{rank}.pt"), weights_only=True) for rank in range(world)]
