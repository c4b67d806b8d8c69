"""`faceanon`: LightningCLI's fit, validate, test and predict, and the product's own commands."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from faceanon.errors import NO_ROOM, RunError, UserError

TRAINING = ("fit", "validate", "test", "predict")
WITH_SUBCOMMANDS = ("keys", "report", "weights")
COMMANDS = {
    "anonymize": "replace the faces of a photo or of a folder of photos",
    "recover": "bring the faces back with the password, or as a recipient",
    "keys": "make the keys of a recipient, who opens files without a password",
    "rekey": "change who opens anonymized photos and films, without touching a pixel",
    "web": "try both on a web page of this machine (extra `web`)",
    "inspect": "show what an anonymized file says of itself",
    "doctor": "say what is installed, what is missing, and what that would enable",
    "evaluate": "judge what any tool made of pictures, and what came back: who is recognised, what is kept",
    "report": "compare tests, rank methods, attack a model, fill the papers' tables: one page each",
    "export": "write a model as ONNX graphs, or its networks in the public layouts, for other tools",
    "weights": "list, import, verify and show pretrained networks from public checkpoints",
    "backbones": "list the methods that ship with faceanon or that other packages announce",
    "zoo": "train and test many methods alike, and put them into one table and a sheet (what `make zoo` runs)",
    "demo": "train, test and report on the shipped bundle (what `make demo` runs)",
}


# Packages of the extra `train`: without them photos are anonymized and recovered by the model that ships.
TRAIN = frozenset(
    {
        "torch",
        "torchvision",
        "lightning",
        "torchmetrics",
        "jsonargparse",
        "scipy",
        "sklearn",
        "matplotlib",
        "jinja2",
        "av",
        "wandb",
        "lpips",
        "timm",
        "insightface",
        "pytorch_optimizer",
        "mtcnn",
        "lz4",
        "joblib",
        "torch_fidelity",
        "tqdm",
    }
)


def _usage() -> str:
    lines = ["usage: faceanon COMMAND [...]", "", "train and test (Lightning; see faceanon fit --help):"]
    for name in TRAINING:
        lines.append(f"  {name}")
    lines += ["", "use:"]
    for name, text in COMMANDS.items():
        lines.append(f"  {name:<12}{text}")
    return "\n".join([*lines, "", "faceanon COMMAND --help teaches each one; --version prints the version."])


def _plain(arguments: list[str]) -> list[str]:
    """The words without `--`: behind it nothing is an option, so `-dash.jpg` becomes `./-dash.jpg`, the same path."""
    # argparse itself reads twice, and has forgotten the second time that it saw `--`.
    if "--" not in arguments:
        return arguments
    place = arguments.index("--")
    names = []
    for word in arguments[place + 1 :]:
        names.append(f"./{word}" if word.startswith("-") else word)
    return arguments[:place] + names


def _own_command(name: str, arguments: list[str]) -> int:
    """Run the module of a command, which offers `add_arguments(parser)` and `run(args) -> int`.

    Raises:
        UserError: There is no such command.
    """
    # Taken as a path it would be the folder that one is in.
    if "" in arguments:
        raise UserError("one of the arguments is empty; is a variable of the shell not set?")
    if name not in COMMANDS:
        raise UserError(f"no command {name!r}; run faceanon --help")
    module = importlib.import_module(f"faceanon.commands.{name}")
    parser = argparse.ArgumentParser(
        prog=f"faceanon {name}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)
    if name in WITH_SUBCOMMANDS:
        return int(module.run(parser.parse_args(arguments)))
    # `IN --quality 90 OUT` too: parse_args takes OUT, which may be left away, for left away as soon as it has read IN.
    return int(module.run(parser.parse_intermixed_args(arguments)))


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done, 1 failed, 2 wrong usage or input, 3 files were left out.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    name = arguments[0] if arguments else "--help"
    try:
        if name in ("-h", "--help"):
            print(_usage())
        elif name == "--version":
            from faceanon import __version__

            print(__version__)
        elif name in TRAINING:
            from faceanon.training.cli import run

            run(arguments)
        else:
            return _own_command(name, _plain(arguments[1:]))
    except UserError as error:
        print(f"faceanon: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        # Any other missing module is a fault of the code or of the installation, which the stack shows.
        if package not in TRAIN:
            raise
        print(f"faceanon: {name} needs the package {package}: pip install 'faceanon[train]'", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"faceanon: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        where = f" {error.filename}" if error.filename else ""
        print(f"faceanon: {NO_ROOM[error.errno]}{where}; free some, then resume", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("faceanon: interrupted", file=sys.stderr)
        # 128 + 2, the number of SIGINT, as shells count it.
        return 130
    return 0
