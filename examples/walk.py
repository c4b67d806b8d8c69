"""Which files a photo walks through, from the command to the result, and a batch through a training step.

    python examples/walk.py photo photo.jpg [--model FOLDER]
    python examples/walk.py batch configs/dbaf_keyed_s2.yaml [--more --model.init_args.init_from=FOLDER ...]

A file counts where one of its functions is called; files that are only imported do not. `photo` is what
`faceanon anonymize` does, command and loading of the model included; `batch` is one call of the stage's
`training_step`, the first of a training. Files are printed by room, in the order in which they are entered. Then, for
rooms of several files, which file calls which: pairs that call each other cannot be read one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import lightning as L

import faceanon
from faceanon.__main__ import main as command
from faceanon.training.cli import run

ROOT = Path(faceanon.__file__).parent
IS_FUNCTION = 0x2  # a flag of code objects that bodies of modules and classes lack (inspect.CO_NEWLOCALS)


class Walk:
    """Notes the files of faceanon in which a function is called, and by which, while it is entered as a context."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.calls: dict[tuple[str, str], None] = {}
        self.names: dict[CodeType, str] = {}

    def name(self, code: CodeType) -> str:
        """The file of a function, relative to faceanon; "" for all else."""
        if code not in self.names:
            path = Path(code.co_filename)
            # Names such as <genexpr> can belong to the body of a module, which an import runs.
            ours = path.is_relative_to(ROOT) and code.co_flags & IS_FUNCTION and not code.co_name.startswith("<")
            self.names[code] = path.relative_to(ROOT).as_posix() if ours else ""
        return self.names[code]

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """What Python calls at every call of a function."""
        name = self.name(frame.f_code)
        if event != "call" or not name:
            return
        self.files[name] = None
        # Frames of other libraries lie between a caller of ours and a module's forward, for one.
        caller = frame.f_back
        while caller is not None and not self.name(caller.f_code):
            caller = caller.f_back
        if caller is not None:
            self.calls[self.name(caller.f_code), name] = None

    def __enter__(self) -> Walk:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def report(self) -> None:
        """Print the files by room, and which files of a room call each other."""
        rooms: dict[str, list[str]] = {}
        for name in self.files:
            rooms.setdefault(_room(name), []).append(name)
        for room, names in rooms.items():
            print(f"{room:>12} {len(names):3}  {', '.join(names)}")
        print(f"{'in all':>12} {len(self.files):3}")
        for room in rooms:
            inner = [pair for pair in self.calls if _room(pair[0]) == _room(pair[1]) == room and pair[0] != pair[1]]
            both = [pair for pair in inner if pair[::-1] in inner and pair[0] < pair[1]]
            if inner:
                print(f"{room}: {len(inner)} calls from file to file, {len(both)} pairs of files call each other")
            for one, other in both:
                print(f"    {one} and {other}")


def _room(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


class FirstStep(L.Callback):
    """Follows the first training step."""

    walk = Walk()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Put the walk around the step."""
        step: Any = pl_module.training_step

        def followed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as Lightning calls it
            with FirstStep.walk:
                return step(*args, **kwargs)

        pl_module.training_step = followed  # type: ignore[method-assign]


def walk_photo(photo: str, model: str | None, folder: Path) -> Walk:
    """Anonymize one photo by the command."""
    words = ["anonymize", photo, str(folder / "out.png"), "--password-file", str(folder / "password")]
    (folder / "password").write_text("seven words that nobody has ever guessed\n")
    if model is not None:
        words += ["--model", model]
    walk = Walk()
    with walk:
        code = command(words)
    if code:
        raise SystemExit(code)
    return walk


def walk_batch(config: str, more: list[str], folder: Path) -> Walk:
    """Train one batch."""
    keys = {
        "trainer.callbacks": json.dumps([{"class_path": f"{__name__}.FirstStep"}]),
        "trainer.default_root_dir": folder,
        "trainer.logger": "false",
        "trainer.enable_progress_bar": "false",
        "trainer.limit_train_batches": 1,
        "trainer.limit_val_batches": 0,
        "trainer.max_epochs": 1,
        "model.init_args.export": "null",
        "model.init_args.samples_every": 0,
    }
    run(["fit", "--config", config, *(f"--{name}={value}" for name, value in keys.items()), *more])
    return FirstStep.walk


def main() -> None:
    """Print a walk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("photo", "batch"))
    parser.add_argument("source", help="a photo, or a stage's configuration")
    parser.add_argument("--model", help="folder of a trained model (default: the shipped one)")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="further words of `faceanon fit`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.what == "photo":
            walk = walk_photo(args.source, args.model, Path(folder))
        else:
            walk = walk_batch(args.source, args.more, Path(folder))
    walk.report()


if __name__ == "__main__":
    main()
