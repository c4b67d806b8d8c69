"""List the methods: those that ship with faceanon, and those that installed packages announce.

  faceanon backbones
  faceanon backbones --save scramble runs/scramble

--save writes a method that needs no training as a model, for anonymize, recover and test; with the others, train first.
A package announces a backbone under the entry point group `faceanon.backbones`; see docs/how-to/add-a-backbone.md.
Exit code: 0 done, 2 wrong usage or input (nothing is written).
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.backbones.presets import Listed, announced, backbone_class, shipped
from faceanon.commands._typed import typed
from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.backbones.base import Backbone

INDENT = 18


@dataclass(frozen=True)
class BackbonesOptions:
    """What is done with the list.

    Args:
        save: Name of a preset and the folder to write it to; None: the list is printed.
    """

    save: list[str] | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "--save", nargs=2, metavar=("NAME", "FOLDER"), help="write an untrained method as a model into FOLDER"
    )


def run(args: argparse.Namespace) -> int:
    """Print a paragraph a preset, or save one.

    Raises:
        UserError: No such preset to save, or it has to be trained.
    """
    options = typed(BackbonesOptions, args)
    if options.save is not None:
        name, folder = options.save
        print(save(name, Path(folder)))
        return 0
    for listed in (*shipped(), *announced()):
        print("\n".join(paragraph(listed)))
    return 0


def paragraph(listed: Listed) -> Iterator[str]:
    """Lines on one method; a stranger's package that does not import is said to be so."""
    yield f"{listed.name:<{INDENT}}{listed.class_path}"
    try:
        lines = facts(backbone_class(listed.class_path))
    except UserError as error:
        lines = [str(error)]
    for line in (*lines, listed.remark):
        yield from textwrap.wrap(line, 118, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)


def facts(kind: type[Backbone]) -> list[str]:
    """What a class says of itself: paper; way back, key and stages; licence."""
    back = (
        "not reversible" if not kind.reversible else "reversible, by an exact inverse" if kind.exact else "reversible"
    )
    key = "no key" if kind.key_bits is None else f"key of {kind.key_bits} bits"
    stages = f"trained by {', '.join(kind.trained_by)}" if kind.trained_by else "needs no training"
    details = [f"{back}; {key}; {stages}", kind.licence and f"licence: {kind.licence}"]
    lines = []
    for line in (kind.paper, *details):
        if line:
            lines.append(line)
    return lines


def save(name: str, folder: Path) -> str:
    """Write the untrained preset `name` into `folder`; returns a line for the user.

    Raises:
        UserError: There is none, or it has to be trained.
    """
    from faceanon.backbones.presets import backbone_class
    from faceanon.models import save_backbone

    presets = {}
    # The shipped ones last: a package that announces one of their names must not take its place.
    for listed in (*announced(), *shipped()):
        presets[listed.name] = listed
    if name not in presets:
        raise UserError(f"no backbone {name!r}: there are {', '.join(sorted(presets))}")
    kind = backbone_class(presets[name].class_path)
    if kind.trained_by:
        raise UserError(f"{name} has to be trained first, by {', '.join(kind.trained_by)}; see faceanon fit --help")
    save_backbone(kind(**presets[name].init_args), folder)
    return f"{name}: {folder}; give it by --model to anonymize and recover"
