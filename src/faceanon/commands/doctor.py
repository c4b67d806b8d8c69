"""Say what is installed, what is missing, and what each missing thing would enable.

  faceanon doctor
  faceanon doctor --replay runs/dbaf_s1/failures/batch_0000005_rank0.pt

Nothing is changed and nothing is fetched. Exit code: 0 all that faceanon needs is there, 1 something is missing.

With --replay it runs the batch that a training stopped at once more, and prints every term of the loss and what is not
finite. Exit code then: 0 the failure came again, 1 it did not.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from faceanon import __version__
from faceanon.errors import UserError
from faceanon.light.providers import BUILDS

NEEDED = {
    "numpy": "everything",
    "pillow": "pictures",
    "pillow-heif": "HEIC pictures of phones",
    "safetensors": "weights",
    "pyyaml": "cards of models, configs",
    "argon2-cffi": "passwords",
    "cryptography": "sealed codes, the vault, the scrambled region",
    "constriction": "sealed codes",
    "pyrage": "recipients",
    "onnxruntime": "face detection in photographs; networks in ONNX files",
    "opencv-python": "face detection in photographs",
    "rich": "progress and tables",
    "av": "videos",
    "lapx": "faces followed through videos",
    "threadpoolctl": "threads that leave each other their cores",
}
OPTIONAL = {
    "torch": "training, other models than the one that ships (pip install 'faceanon[train]')",
    "torchvision": "likewise",
    "lightning": "training and testing",
    "jsonargparse": "training and testing",
    "mtcnn": "--detector mtcnn, and the papers' measure of detection",
    "lz4": "weights of that detector",
    "joblib": "weights of that detector",
    "keyring": "--password-keyring: passwords from the system's keyring (pip install 'faceanon[keyring]')",
    "c2pa-python": "--c2pa: signed results (pip install 'faceanon[c2pa]')",
    "insightface": "--detector: SCRFD face detection, and recognisers to judge with",
    "dlib-bin": "dlib's recogniser, the judge of photographs (pip install 'faceanon[judge]')",
    "onnxscript": "export --onnx (pip install 'faceanon[onnx]')",
    "gradio": "faceanon web: the web page (pip install 'faceanon[web]')",
    "gradio_image_annotation": "faceanon web: boxes on a photo",
    "zxcvbn": "faceanon web: how strong a password is",
    "wandb": "logging of training runs",
    "timm": "bundles whose encoders stand on timm trunks",
    "lpips": "LPIPS in tests and training",
    "matplotlib": "plots in reports",
}
CODECS = {"jpg": "JPEG", "webp": "WebP", "avif": "AVIF (reading)", "littlecms2": "colour profiles"}


@dataclass(frozen=True)
class DoctorFinding:
    """One line of the report.

    Args:
        group: What it belongs to.
        name: The thing.
        state: Its version or place; empty if it is missing.
        use: What it is for.
        needed: Whether faceanon cannot do without.
    """

    group: str
    name: str
    state: str
    use: str
    needed: bool = False

    def line(self) -> str:
        """The finding as one line of the terminal."""
        mark = "ok" if self.state else ("MISSING" if self.needed else "absent")
        text = f"  {mark:<8}{self.name:<21} {self.state}"
        return text.rstrip() if self.state else f"{text}{'needed for' if self.needed else 'would enable'} {self.use}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="what a training saved under failures/: run this batch again"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the training's config.yaml, where it is elsewhere now",
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings, group by group, or run a saved batch again.

    Raises:
        UserError: The saved batch or its configuration cannot be used.
    """
    if args.replay is not None:
        return _replay(args.replay, args.config)
    if args.config is not None:
        raise UserError("--config belongs to --replay FILE")
    return _report()


def _replay(file: Path, config: Path | None) -> int:
    # Here: a report needs neither torch nor Lightning.
    from faceanon.training.cli import run as train
    from faceanon.training.replay import OutcomeError, arguments

    with tempfile.TemporaryDirectory() as scratch:
        try:
            train(arguments(file.resolve(), Path(scratch), config))
        except OutcomeError as outcome:
            print(outcome)
            return 0 if outcome.again else 1
    raise AssertionError("a replay ends with its outcome")


def _report() -> int:
    print(f"faceanon {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    findings = list(examine())
    # Not a set, which would shuffle the groups.
    for group in dict.fromkeys(finding.group for finding in findings):
        print(f"{group}:")
        for finding in findings:
            if finding.group == group:
                print(finding.line())
    missing = []
    for finding in findings:
        if finding.needed and not finding.state:
            missing.append(finding.name)
    print(f"missing: {', '.join(missing)}; install faceanon again" if missing else "everything needed is there")
    return 1 if missing else 0


def examine() -> Iterator[DoctorFinding]:
    """All findings; only torch, onnxruntime and Pillow are imported, and only where they are there."""
    for name, use in NEEDED.items():
        builds = (name, *BUILDS.values()) if name == "onnxruntime" else (name,)
        yield DoctorFinding("packages", name, " ".join(filter(None, map(_version, builds))), use, needed=True)
    for name, use in OPTIONAL.items():
        yield DoctorFinding("optional packages", name, _version(name), use)
    yield from _codecs()
    yield from _devices()
    yield from _models()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _codecs() -> Iterator[DoctorFinding]:
    # That Pillow is missing was said among the packages.
    if importlib.util.find_spec("PIL") is None:
        return
    from PIL import features

    for name, use in CODECS.items():
        yield DoctorFinding("pictures", use, "yes" if features.check(name) else "", f"{use} (another build of Pillow)")


def _devices() -> Iterator[DoctorFinding]:
    # That it is missing was said among the packages.
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        yield DoctorFinding("devices", "--provider", ", ".join(onnxruntime.get_available_providers()), "")
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    threads = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads in torch"
    yield DoctorFinding("devices", "cpu", threads, "everything", needed=True)
    names = list(map(torch.cuda.get_device_name, range(torch.cuda.device_count())))
    use = "--device cuda (an NVIDIA GPU and its driver)"
    yield DoctorFinding("devices", "cuda", ", ".join(names), use)


def _models() -> Iterator[DoctorFinding]:
    from faceanon.paths import checkpoints

    try:
        folder = checkpoints()
    except UserError:
        yield DoctorFinding("models", "shipped weights", "", "the default model", needed=True)
        return
    for name, file, use in (
        ("persona_photo128", "*.yaml", "anonymize and recover without --model (photographs)"),
        ("photo128", "bundle.yaml", "the default model and its training"),
        ("photo128_prior", "bundle.yaml", "training of methods on w+ codes on photographs"),
        ("photo128_mesh", "bundle.yaml", "training of a prior of photographs"),
        ("photo128_pictures", "bundle.yaml", "training of methods that draw whole photographs"),
        ("photo_seers", "*.onnx", "finding faces and their points in photographs"),
    ):
        there = any((folder / name).glob(file))
        yield DoctorFinding("models", name, "shipped" if there else "", use, needed=True)
    shipped = {"photo128", "photo128_mesh", "photo128_pictures", "photo128_prior"}
    others = sorted({path.parent.name for path in folder.glob("*/bundle.yaml")} - shipped)
    use = "photographs: import public networks, see faceanon weights list"
    yield DoctorFinding("models", "bundles of your own", ", ".join(others), use)
