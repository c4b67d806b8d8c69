"""How fast is `anonymize` on a folder, against its network alone? Both in one run, in turns, on the same faces.

  python benchmarks/throughput.py                             # the shipped 64 px model
  python benchmarks/throughput.py --random public             # a 256 px model of the papers' size with random weights
  python benchmarks/throughput.py --random small --device cuda --photos 64

Every photo shows one procedural face whose square is 256 px wide. `network` is encode, transform, decode on these faces
and nothing else; `folder` is the same run as `faceanon anonymize IN OUT`: read, find, crop, network, paste, write. The
ratio is the median over rounds. The table shows what each step costs alone, one photo at a time on one thread: what
the machine has to do beside the network, and can hide behind it only where the network leaves cores idle.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import yaml

from bench.use import photo
from faceanon.backbones.dbaf import DBAF
from faceanon.errors import UserError
from faceanon.files import save_tensors
from faceanon.key import Password
from faceanon.manifest import CropGeometry
from faceanon.models import default_model
from faceanon.networks.e4e import Encoder4Editing
from faceanon.networks.stylegan2 import Generator
from faceanon.persona.cells import Array
from faceanon.photo.crop_paste import crop, paste
from faceanon.photo.detect import Detector
from faceanon.photo.file import LoadedPhoto, load_photo
from faceanon.photo.metadata import encode
from faceanon.pipeline.many.engine import run_tasks, usual_workers
from faceanon.pipeline.photo import CPU_BATCH, Pipeline
from faceanon.pipeline.process import keep_memory
from faceanon.pipeline.tasks import AnonymizeTask, Output
from faceanon.weights.checksums import write_checksums

SMALL_GENERATOR = {4: 128, 8: 128, 16: 128, 32: 128, 64: 64, 128: 32, 256: 16}
SMALL_ENCODER = {"widths": [16, 16, 32, 64, 128], "units": [1, 1, 2, 1]}
PARTS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "public": ({"size": 256}, {"stylegan_size": 256}),
    "small": (
        {"size": 256, "style_dim": 128, "n_mlp": 2, "channels": SMALL_GENERATOR},
        {"stylegan_size": 256, "style_dim": 128, **SMALL_ENCODER},
    ),
}


def draw_photos(folder: Path, count: int, detector: Detector) -> None:
    """JPEGs of what `python benchmarks/measure.py` measures photos with, of those whose face the detector finds."""
    drawn = (photo(index) for index in itertools.count())
    found = (picture for picture in drawn if detector.detect(np.asarray(picture)))
    for index, picture in enumerate(itertools.islice(found, count)):
        picture.save(folder / f"{index:04}.jpg", quality=95)


def random_model(folder: Path, kind: str) -> DBAF:
    """DBAF at 256 px on untrained networks: every figure but the speed is meaningless."""
    torch.manual_seed(0)
    networks = {}
    for role, make, init in zip(("generator", "encoder"), (Generator, Encoder4Editing), PARTS[kind], strict=True):
        net = make(**init)
        save_tensors(folder / f"{role}.safetensors", net.state_dict())
        path = f"{make.__module__}.{make.__qualname__}"
        networks[role] = {"name": "random", "class": path, "init": init, "file": f"{role}.safetensors"}
    dim = int(PARTS[kind][0].get("style_dim", 512))  # type: ignore[call-overload]
    save_tensors(folder / "latent_avg.safetensors", {"latent_avg": torch.zeros(14, dim)})
    networks["encoder"]["latent_avg"] = "latent_avg.safetensors"
    spec = {"name": f"random256_{kind}", "image_size": 256, "networks": networks}
    (folder / "bundle.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    write_checksums(folder)
    return DBAF(str(folder), cid_depth=2 if kind == "small" else 6, cid_heads=4, cid_form="levels")


def make_pipeline(args: argparse.Namespace, work: Path) -> Pipeline:
    """The pipeline to measure."""
    if args.random is None:
        return Pipeline.load(args.model or default_model(), device=args.device, batch=args.batch)
    (work / "bundle").mkdir()
    model = random_model(work / "bundle", args.random)
    return Pipeline(model, None, "00" * 32, args.random, args.device, args.batch)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def network_alone(pipeline: Pipeline, faces: Array, keys: Array) -> None:
    """All faces through the backbone, in full batches."""
    for start in range(0, len(faces), pipeline.batch):
        part = slice(start, start + pipeline.batch)
        pipeline.change(faces[part], keys[part])


def folder_run(pipeline: Pipeline, photos: list[Path], out: Path, password: Password, workers: int) -> None:
    """As the command does it, without journal and progress bar."""
    tasks = (AnonymizeTask(pipeline, photo, out / f"{photo.stem}.png", password, output=Output()) for photo in photos)
    for task, result in run_tasks(pipeline, tasks, workers, pipeline.batch):
        if isinstance(result, UserError):
            raise SystemExit(f"{task.source}: {result}")


def parts(pipeline: Pipeline, photo: Path) -> dict[str, float]:
    """Seconds that each step takes alone, the least of three."""
    loaded, size = load_photo(photo), pipeline.backbone.image_size
    geometry = pipeline.faces(loaded)[0].geometry
    assert geometry is not None
    face = crop(loaded.pixels, geometry, size)
    out = io.BytesIO()
    steps: dict[str, Callable[[], object]] = {
        "read": lambda: load_photo(photo),
        "find": lambda: pipeline.detector.detect(loaded.pixels),
        "crop": lambda: crop(loaded.pixels, geometry, size),
        "paste": lambda: paste(loaded.pixels.copy(), face, geometry),
        "write (PNG)": lambda: out.write(encode(loaded.pixels, None, None, Path("a.png"))),
    }
    return {name: min(seconds(step) for _ in range(3)) for name, step in steps.items()}


def measure(args: argparse.Namespace, work: Path) -> None:
    """Print the table and the ratio."""
    (work / "in").mkdir()
    pipeline, password = make_pipeline(args, work), Password("a word")
    draw_photos(work / "in", args.photos, pipeline.detector)
    photos = sorted((work / "in").iterdir())
    secret, size = password.secret(), pipeline.backbone.image_size
    faces = np.stack([crop((loaded := load_photo(path)).pixels, _square(pipeline, loaded), size) for path in photos])
    keys = pipeline.keys([secret] * len(faces))
    network_alone(pipeline, faces[: args.batch], keys[: args.batch])  # warm up
    for name, cost in parts(pipeline, photos[0]).items():
        print(f"{name:>12}: {cost * 1e3:7.1f} ms a photo, alone on one thread")
    rates: dict[str, list[float]] = {"network": [], "folder": []}
    for turn in range(args.rounds):
        out = work / f"out{turn}"
        alone = seconds(lambda: network_alone(pipeline, faces, keys))
        whole = seconds(lambda: folder_run(pipeline, photos, out, password, args.workers))  # noqa: B023 - called at once
        rates["network"].append(len(faces) / alone)
        rates["folder"].append(len(faces) / whole)
        print(f"round {turn}: network {len(faces) / alone:.2f}, folder {len(faces) / whole:.2f} faces/s", flush=True)
    ratio = statistics.median(f / n for f, n in zip(rates["folder"], rates["network"], strict=True))
    print(f"median: folder / network = {ratio:.3f} ({len(faces)} photos, batch {args.batch}, {os.cpu_count()} cores)")


def _square(pipeline: Pipeline, loaded: LoadedPhoto) -> CropGeometry:
    """The square of a photo's first face."""
    geometry = pipeline.faces(loaded)[0].geometry
    assert geometry is not None
    return geometry


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--model", help="trained model (default: the one that ships)")
    what.add_argument("--random", choices=sorted(PARTS), help="256 px networks with random weights instead")
    parser.add_argument("--photos", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=CPU_BATCH)
    parser.add_argument("--workers", type=int, default=usual_workers())
    parser.add_argument("--device", default="cpu")
    keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        measure(parser.parse_args(), Path(folder))
