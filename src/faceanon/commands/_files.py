"""What goes in and what comes out: arguments, and which engine runs the model."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from faceanon.errors import UserError
from faceanon.light.processor import has_bfloat16
from faceanon.light.providers import PROVIDERS, quick_provider

if TYPE_CHECKING:
    from faceanon.pipeline.photo import Pipeline

FORMATS = ("png", "jpg", "webp")
# Not `models.default_model`, which would import torch.
DEFAULT_MODEL = "persona_photo128"
ENGINES = ("auto", "light", "torch")
ENGINE_VARIABLE = "FACEANON_ENGINE"
MANY = 8  # photos from which torch, which takes three seconds longer to start, is done sooner
INSTALL = "pip install 'faceanon[train]'"
MODEL_HELP = "folder of a trained model or of its ONNX export, or a .ckpt (default: persona_photo128, which ships)"


class ModelOptions(Protocol):
    """What of some options says which model runs, and where."""

    @property
    def model(self) -> str | None:
        """Folder, shipped name or .ckpt; None for the model that ships."""

    @property
    def device(self) -> str:
        """Where it computes."""

    @property
    def engine(self) -> str | None:
        """`light` (onnxruntime), `torch`, or `auto`; None for what the environment says, else `auto`."""

    @property
    def provider(self) -> str | None:
        """What of onnxruntime computes; None: the CPU, if it is onnxruntime that runs the model."""

    @property
    def shared(self) -> bool:
        """Whether several processes work at once."""


@dataclass(frozen=True)
class FileOptions:
    """What goes in and out, by which model, and how a folder is worked through.

    Args:
        input: Photo, video or folder.
        output: File or folder to write; None where nothing is written.
        model: Folder, shipped name or .ckpt; None for the model that ships.
        device: Where it computes.
        engine: `light` (onnxruntime), `torch`, or `auto`; None for what the environment says, else `auto`.
        provider: What of onnxruntime computes; None: the CPU, if it is onnxruntime that runs the model.
        overwrite: Whether outputs may exist.
        quality: Of JPEG and WebP; None for the usual one.
        format: Ending of the pictures that a folder gets.
        workers: Threads that read, paste and write; None for the usual number.
        devices: Processes of this machine that share a folder.
        nodes: Machines that share a folder.
        csv: Table of what was done to which face; None for the usual place.
        on_error: `skip` a bad file, or `stop` at it.

    Raises:
        UserError: IN or OUT has a name that is too long for a file system.
    """

    input: str
    output: str | None
    model: str | None
    device: str
    engine: str | None
    provider: str | None
    overwrite: bool
    quality: int | None
    format: str
    workers: int | None
    devices: int
    nodes: int
    csv: str | None
    on_error: str

    def __post_init__(self) -> None:
        from faceanon.files import check_name

        # Before anybody asks the system for such a file.
        for path in (self.input, self.output):
            if path is not None:
                check_name(Path(path))

    @property
    def source(self) -> Path:
        """The photo, video or folder that the command reads."""
        return Path(self.input)

    @property
    def target(self) -> Path:
        """The file or folder that the command writes.

        Raises:
            UserError: It was not given.
        """
        if self.output is None:
            raise UserError("name OUT, the file or folder to write")
        return Path(self.output)

    @property
    def shared(self) -> bool:
        """Whether several processes share the folder."""
        return self.devices > 1 or self.nodes > 1


def add_file_arguments(parser: argparse.ArgumentParser, what: str, output_needed: bool = True) -> None:
    """Add IN, OUT and how to treat files."""
    parser.usage = "%(prog)s [options] IN OUT" if output_needed else "%(prog)s [options] IN [OUT]"
    parser.add_argument("input", metavar="IN", help=f"{what}, or a folder of them")
    parser.add_argument(
        "output",
        metavar="OUT",
        nargs=None if output_needed else "?",
        help="file to write (.png, .webp or .jpg), or the folder to mirror IN's tree in",
    )
    parser.add_argument("--model", metavar="PATH", help=MODEL_HELP)
    parser.add_argument("--device", default="cpu", help="where to compute: cpu (default), cuda, cuda:1, ...")
    parser.add_argument("--overwrite", action="store_true", help="replace outputs that exist, and start folders anew")
    # Options of photos alone have no default here: `_video.settled` has to see which ones were typed.
    parser.add_argument(
        "--format", choices=FORMATS, metavar="TYPE", help=f"of a folder's pictures: {', '.join(FORMATS)} (default: png)"
    )
    parser.add_argument(
        "--quality", type=int, metavar="1-100", help="JPEG (default: 95), WebP (exact); less recovers less"
    )


def add_rare_file_arguments(group: argparse._ArgumentGroup) -> None:
    """Add what few need: which engine runs, and how a folder is shared and reported."""
    group.add_argument(
        "--engine",
        choices=ENGINES,
        metavar="NAME",
        help=f"light (onnxruntime, starts at once), torch (sooner done with {MANY} photos and more), or auto "
        f"(default: {ENGINE_VARIABLE}, else auto)",
    )
    group.add_argument("--provider", metavar="NAME", help=f"onnxruntime on {', '.join(PROVIDERS)}")
    group.add_argument("--workers", type=int, metavar="N", help="threads of a folder (default: the cores, 2 to 8)")
    group.add_argument(
        "--devices", type=int, default=1, metavar="N", help="processes that share a folder, a GPU each (default: 1)"
    )
    group.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="machines that share a folder, each with --devices"
    )
    group.add_argument("--csv", metavar="FILE", help="table of what was done (default: OUT/faceanon.csv)")
    group.add_argument(
        "--on-error", choices=("skip", "stop"), metavar="DO", help="at a bad file of a folder: skip (default) or stop"
    )


def check_target(source: Path, target: Path, overwrite: bool) -> None:
    """Whether one file may be written.

    Raises:
        UserError: It is the input itself, or it exists and `overwrite` is off.
    """
    # Even with --overwrite: the original exists only once.
    if target.exists() and target.samefile(source):
        raise UserError(f"{target} is the input itself; write to another file")
    if target.exists() and not overwrite:
        raise UserError(f"{target} exists; give --overwrite to replace it")


def load_pipeline(files: ModelOptions, torch_for: str | None = None, photos: int = 1) -> Pipeline:
    """The pipeline of `--model` on `--device`, without torch where that is possible and sooner done.

    Args:
        files: What was typed.
        torch_for: What else was asked for that torch alone can do, as the subject of a sentence; None: nothing.
        photos: How many there are.

    Raises:
        UserError: If there is no such model, device or engine, or torch is needed and not installed.
    """
    from faceanon.pipeline.process import keep_memory, return_memory

    engine = _engine(files)
    provider = files.provider
    # It takes two seconds longer to start, as torch does.
    if provider is None and engine != "torch" and photos >= MANY:
        provider = quick_provider()
    if engine == "auto" and provider is None and photos >= MANY and has_bfloat16() and torch_installed():
        keep_memory()
        return load_with_torch(files.model, files.device)
    if engine == "torch":
        reason: str | None = "--engine torch runs torch"
    else:
        reason = _why_torch(files, torch_for)
    if reason is None:
        from faceanon.light.networks import UnfitError
        from faceanon.persona.light import LightPersona, model_folder
        from faceanon.pipeline.photo import Pipeline

        return_memory()
        folder = model_folder(_model(files))
        # `_why_torch` answers None only where there is a folder.
        assert folder is not None
        try:
            return Pipeline(LightPersona(folder, provider or "cpu"))
        except UnfitError as error:
            # What the card does not tell: the weights or the bundle are not those that the shipped graphs are for.
            reason = str(error)
            if engine == "auto" and torch_installed():
                print(f"faceanon: {reason}; torch runs it, which takes longer to start", file=sys.stderr)
    if files.provider is not None:
        raise UserError(f"--provider is for onnxruntime, but {reason}; leave one of them away")
    if engine == "light":
        raise UserError(f"--engine light does not fit: {reason}; give --engine torch")
    if not torch_installed():
        raise UserError(f"{reason}; torch is not installed: {INSTALL}")
    keep_memory()
    return load_with_torch(files.model, files.device)


def load_with_torch(model: str | None, device: str) -> Pipeline:
    """The pipeline of `--model` on `--device`, run by torch.

    Raises:
        UserError: If there is no such model or device.
    """
    from faceanon import methods as _methods
    from faceanon.models import default_model
    from faceanon.pipeline.photo import Pipeline

    return Pipeline.load(default_model() if model is None else model, device=_methods.device(device))


def torch_installed() -> bool:
    """Whether torch can be imported; it is not, since that takes a second."""
    return importlib.util.find_spec("torch") is not None


def _model(files: ModelOptions) -> str:
    return DEFAULT_MODEL if files.model is None else files.model


def _engine(files: ModelOptions) -> str:
    if files.provider is not None and files.engine != "torch":
        return "light"
    engine = files.engine or os.environ.get(ENGINE_VARIABLE) or "auto"
    if engine not in ENGINES:
        raise UserError(f"{ENGINE_VARIABLE} is {engine!r:.40}; set it to {', '.join(ENGINES)}, or to nothing")
    return engine


def _why_torch(files: ModelOptions, torch_for: str | None) -> str | None:
    """Why the light way does not apply, as a sentence; None where it may."""
    if torch_for is not None:
        return f"{torch_for} needs torch"
    if files.device != "cpu":
        return f"--device {files.device} needs torch"
    if files.shared:
        return "--devices and --nodes need torch"
    # The card is read last: what was typed answers most questions without a file.
    from faceanon.light.networks import UnfitError
    from faceanon.persona.light import is_persona, model_folder, read_card

    folder = model_folder(_model(files))
    if folder is None:
        return f"the model {_model(files)} needs torch"
    try:
        card = read_card(folder)
    except UnfitError as error:
        return str(error)
    if not is_persona(card):
        return f"the model {folder.name} needs torch"
    return None
