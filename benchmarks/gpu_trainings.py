"""Train every method on a folder of faces for a given time each, test it, and put them into one table.

Used by benchmarks/gpu_report.py. Configs are those of the methods (configs/paper), with
configs/trainer/gpu_fast.yaml behind them and a constant learning rate, since the time is given and not the number of
batches; the averaged weights make up for its fall. What is finished is not repeated.
"""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from pydoc import locate
from typing import Any

import torch
import yaml
from PIL import Image

from bench.public import random_bundle
from faceanon.data.files import read_photos
from faceanon.data.folder import FolderFaces
from faceanon.data.prepared import shipped_photos
from faceanon.errors import UserError
from faceanon.files import write_atomic
from faceanon.paths import configs
from faceanon.report.methods import markdown, named, summary
from faceanon.report.sheets import png_bytes, sheet
from faceanon.results import FILE_NAME, load_results
from faceanon.studies.zoo.recipes import Method, find_methods
from faceanon.studies.zoo.train import measure
from faceanon.training.cli import run
from faceanon.weights.bundle import Bundle
from faceanon.weights.checksums import write_checksums

REHEARSED_METHODS = ["dbaf"]
REHEARSED: dict[str, Any] = {
    "trainer.accelerator": "cpu",
    "trainer.limit_train_batches": 2,
    "acceleration.compile": "[discriminator]",
    "acceleration.backend": "eager",
    "acceleration.fused": "true",
    "acceleration.channels_last": "true",
}
FACES = 8


def rehearsal(args: argparse.Namespace) -> None:
    """Change the arguments: photographs that ship, a random bundle without generator, two batches of a method."""
    folder = args.work / "faces"
    if not folder.is_dir():
        pictures = read_photos([photo.path for photo in shipped_photos("train")[:24]], 64)
        for number, pixels in enumerate(pictures):
            place = folder / f"person{number // 4}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(place / f"{number:02d}.png")
    args.bundle = args.work / "bundle"
    if not args.bundle.is_dir():
        shutil.copytree(random_bundle(64), args.bundle)
        (args.bundle / "generator.safetensors").unlink()
    args.root, args.size, args.train_batch, args.minutes = [str(folder)], 64, 4, 1.0
    args.methods = args.methods or REHEARSED_METHODS


def train_all(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Rows of the JSON, lines of the table, and whether every method came through."""
    train_prior(args)
    methods = [
        method for method in find_methods(args.methods) if method.stages and _config(method.stages[0].name).is_file()
    ]
    rows = [_row(method, args) for method in methods]
    bundle = Bundle(args.bundle)
    columns = named(bundle.judge_name, bundle.recogniser_name)
    done = {row["method"]: summary([row["figures"]], columns) for row in rows if "figures" in row}
    failed = [f"- {row['method']} failed: {row['failed']}" for row in rows if "failed" in row]
    speeds = [f"- {row['method']}: {_speeds(row)}" for row in rows if "figures" in row]
    table = markdown(done, columns).splitlines() if done else []
    told = "Images trained on, and images per second with data, logging and compiling:"
    return rows, [*table, "", told, "", *speeds, *failed], not failed


def _speeds(row: dict[str, Any]) -> str:
    stages: dict[str, dict[str, float]] = row["stages"]
    return ", ".join(
        f"{name} {one['images']} at {one['images'] / one['seconds']:.3g}/s" for name, one in stages.items()
    )


def _row(method: Method, args: argparse.Namespace) -> dict[str, Any]:
    """One method, trained and tested; what it stumbles over is told, and the others go on."""
    name, folder = method.name, args.work / method.name
    row: dict[str, Any] = {"method": name, "stages": {}}
    try:
        model = None
        for stage in method.stages:
            row["stages"][stage.name], model = _train(stage.name, folder / stage.name, model, args)
        assert model is not None
        row["figures"] = _test(method.stages[-1].name, model, folder / "report", args)
        cost, drawn = measure(model, _faces(args))
        row["figures"]["cost/parameters_millions"] = cost["cost/parameters_millions"]  # its milliseconds are a CPU's
        write_atomic(folder / "sheet.png", png_bytes(sheet({"original": _faces(args)} | drawn)))
    except (UserError, RuntimeError) as error:  # RuntimeError: out of memory, a kernel that fails
        row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        row.pop("figures", None)
        print(f"[gpu] {name} failed: {row['failed']}", flush=True)
    return row


def _train(stage: str, place: Path, start: Path | None, args: argparse.Namespace) -> tuple[dict[str, float], Path]:
    """A stage for the given time; what it saw, and the model."""
    model, note = place / "model", place / "cost.json"
    if not note.is_file():
        config = _config(stage)
        options = {"model.init_args.backbone.init_args.bundle": args.bundle, "model.init_args.samples_every": 0}
        options |= {} if start is None else {"model.init_args.init_from": start}
        _fit([str(config)], options, model, args)
    return json.loads(note.read_text()), model


def _config(stage: str) -> Path:
    """The stage's config: that of its paper, since faces lie in no frame here."""
    return configs() / "paper" / f"{stage}.yaml"


def _fit(files: Sequence[str], options: dict[str, Any], model: Path, args: argparse.Namespace) -> None:
    """`faceanon fit` for the given time; notes beside the model what it saw and how long it took."""
    print(f"[gpu] training {model.parent}, {args.minutes:g} minutes", flush=True)
    trainer = "bf16" if args.rehearse else "gpu_fast"
    words = [word for file in [*files, str(configs() / "trainer" / f"{trainer}.yaml")] for word in ("--config", file)]
    settings: dict[str, Any] = {
        "model.init_args.export": model,
        "model.init_args.schedule": "constant",
        "trainer.default_root_dir": model.parent,
        "trainer.logger.init_args.save_dir": model.parent,
        "trainer.callbacks": "null",
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
        "trainer.enable_checkpointing": "false",
        "trainer.limit_val_batches": 0,
        "trainer.log_every_n_steps": 1 if args.rehearse else 50,
        "trainer.max_epochs": 1 if args.rehearse else 1_000_000,
        "trainer.max_time": _clock(args.minutes),
        **_data(args),
        **options,
    }
    if args.rehearse:
        settings |= REHEARSED
    start = time.monotonic()
    trained = run(["fit", *words, *(f"--{name}={value}" for name, value in settings.items())])
    seen = trained.trainer.fit_loop.total_batch_idx + 1
    cost = {"images": seen * args.train_batch, "seconds": time.monotonic() - start}
    write_atomic(model.parent / "cost.json", (json.dumps(cost) + "\n").encode())


def _clock(minutes: float) -> str:
    """DD:HH:MM:SS, as Lightning wants it."""
    seconds = round(timedelta(minutes=minutes).total_seconds())
    return f"{seconds // 86400:02d}:{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _data(args: argparse.Namespace) -> dict[str, Any]:
    """The same persons held out everywhere."""
    val, test = (1, 2) if args.rehearse else (3, 10)
    found = {"image_size": args.size, "batch_size": args.train_batch, "min_photos": 2, "mirror": "true", "seed": 0}
    found |= {"val_identities": val, "test_identities": test, "root": json.dumps([str(root) for root in args.root])}
    keys = {f"data.init_args.{name}": value for name, value in found.items()}
    return {"data": "faceanon.data.folder.FolderFaces", **keys}


def train_prior(args: argparse.Namespace) -> None:
    """Train generator and encoder of the bundle, as bundle.yaml describes them, where their files are missing."""
    missing = [
        name for name in write_checksums(args.bundle) if name.split(".")[0] in ("generator", "encoder", "latent_avg")
    ]
    if not missing:
        return
    spec = yaml.safe_load((args.bundle / "bundle.yaml").read_text())["networks"]
    options: dict[str, Any] = {"model.init_args.bundle": args.bundle, "model.init_args.init_from": "null"}
    for role in ("generator", "encoder", "discriminator"):
        options[f"model.init_args.{role}"] = json.dumps(_described(spec[role]))
    options["model.init_args.adversarial_from"] = 0.0  # with a time in place of an end nothing else would begin
    _fit([str(configs() / "paper" / "prior.yaml")], options, args.work / "prior" / "model", args)
    for file in (args.work / "prior" / "model").iterdir():
        if file.stem in ("generator", "encoder", "latent_avg", "discriminator"):
            shutil.copy(file, args.bundle / file.name)
    if left := [name for name in write_checksums(args.bundle) if name in missing]:
        raise UserError(f"{args.bundle}: the prior wrote no {', '.join(left)}; see {args.work / 'prior'}")


def _described(entry: dict[str, Any]) -> dict[str, Any]:
    """A network of bundle.yaml as a config has it, defaults included: those of the config's own network would stay."""
    kind = locate(entry["class"])
    assert callable(kind)
    defaults = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is not parameter.empty:
            defaults[name] = parameter.default
    return {"class_path": entry["class"], "init_args": defaults | entry.get("init", {})}


def _test(stage: str, model: Path, report: Path, args: argparse.Namespace) -> dict[str, float]:
    """`faceanon test` on the persons held out."""
    if not (report / FILE_NAME).is_file():
        options = {
            "model.init_args.backbone.init_args.bundle": args.bundle,
            "model.init_args.init_from": model,
            "model.init_args.report": report,
            "model.init_args.protocol": "null",
            "model.init_args.trainable": "null",
            "trainer.logger": "false",
            "trainer.callbacks": "null",
            "trainer.enable_progress_bar": "false",
            "trainer.accelerator": "cpu" if args.rehearse else "gpu",
            **_data(args),
        }
        run(["test", "--config", str(_config(stage)), *(f"--{name}={value}" for name, value in options.items())])
    return dict(load_results(report).figures)


def _faces(args: argparse.Namespace) -> torch.Tensor:
    """The first faces of the persons held out `(8, 3, S, S)`."""
    keys = {name.rsplit(".", 1)[1]: value for name, value in _data(args).items() if name.startswith("data.init_args.")}
    data = FolderFaces(**{**keys, "root": json.loads(keys["root"]), "mirror": False, "batch_size": FACES})
    data.setup("test")
    image: torch.Tensor = next(iter(data.test_dataloader())).image
    return image
