"""One process of a distributed training of Persona; the tests start two, and compare what they learnt."""

import multiprocessing
import os
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest.mock import patch

import lightning as L
import torch
from ddp_worker import ADAM, free_port
from lightning.pytorch.strategies import DDPStrategy

from faceanon.backbones.persona import Persona
from faceanon.data.prepared import PreparedFaces
from faceanon.networks.flow_painter import FlowPainter
from faceanon.stages import AnonymizeStage, DisentangleStage
from faceanon.stages.anonymize_terms import AnonymizeWeights
from faceanon.stages.disentangle import DisentangleWeights

FACES = 4  # a step, of all processes
NONE = {"identity": 0.0, "reconstruction": 0.0, "perceptual": 0.0, "parsing": 0.0, "latent": 0.0}
HIDING = {"hide": 0.1, "apart": 0.1, "donor": 0.1, "expression": 2.0, "flow": 1.0}
SMALL = partial(FlowPainter, widths={16: 32, 8: 64}, hidden=32)  # has all layers, and learns in a moment
COMMON = {
    "optimizer_g": ADAM,
    "optimizer_d": ADAM,
    "r1_gamma": 0.0,
    "gradient_clip": 3.0,
    "ema_half_life": 20,
    "samples_every": 0,
    "seed": 5,
}


def small_persona(**options):
    """Persona with a small flow, which always begins with the same weights."""
    torch.manual_seed(1)
    with patch("faceanon.backbones.persona.FlowPainter", SMALL):
        return Persona(**options)


def build(stage, accumulate):
    """A stage of Persona, from the same start in every process."""
    options = {**COMMON, "accumulate": accumulate}
    if stage == "disentangle":
        weights = DisentangleWeights(adversarial=0.0, contrastive=0.0, **NONE)
        return DisentangleStage(small_persona(), weights, pairing="self", extra_weights={"flow": 1.0}, **options)
    weights = AnonymizeWeights(adversarial=0.4, anchor=1.0, **NONE)
    return AnonymizeStage(small_persona(dropout=0.0), weights, extra_weights=HIDING, protocol=None, **options)


def train(stage, settings, world=1, steps=4):
    """Train in this process, a lone one on two parts of every batch; gives back weights, averages and statistics."""
    torch.set_num_threads(1)
    model = build(stage, accumulate=1 if world > 1 else 2)
    data = PreparedFaces(**settings, batch_size=FACES // world)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=world,
        strategy=DDPStrategy(find_unused_parameters=True) if world > 1 else "auto",
        max_steps=steps,
        limit_train_batches=2,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's on networks in eval mode and so on, as in faceanon.training
        trainer.fit(model, datamodule=data)
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _process(rank, world, port, stage, settings, out):
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
    os.environ |= {name: str(value) for name, value in names.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test"}
    torch.save(train(stage, settings, world), Path(out, f"rank{rank}.pt"))


def train_in_two(stage, settings, out, timeout=240):
    """Train in two processes of their own; gives back what each has learnt."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # else the server cannot import what it shall
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["persona_worker"])
    arguments = (2, free_port(), stage, settings, str(out))
    processes = [context.Process(target=_process, args=(rank, *arguments)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout)
    try:
        assert [process.exitcode for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return [torch.load(Path(out, f"rank{rank}.pt"), weights_only=True) for rank in range(2)]
