"""Attack a model's anonymity in eleven ways, and say in plain words what came of it.

  faceanon report security --model persona_photo128 --photos faces
  faceanon report security --model runs/mine/model --photos faces --attacks kdf_cost,parrot --out runs/security

--out gets a page and the figures. The page says of each attack whether the model protects against it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.commands._typed import typed
from faceanon.commands.report._faces import MODEL_HELP, add_face_arguments, check_faces
from faceanon.studies.security.run import OUT, SecurityOptions, run_security


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the report takes."""
    parser.add_argument("--model", required=True, help=MODEL_HELP)
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder to write (%(default)s)")
    parser.add_argument(
        "--budget", choices=("small", "full"), default="small", help="what the attackers may spend (%(default)s)"
    )
    parser.add_argument("--attacks", metavar="A,B", help="only these attacks (default: all)")
    parser.add_argument("--core-hour-price", type=float, metavar="P", help="price of a core for an hour, for guesses")
    parser.add_argument(
        "--trained-on",
        type=Path,
        metavar="FOLDER",
        help="photographs that the model was trained on, a folder a person, for the membership test",
    )
    add_face_arguments(parser, "people whom the model was not trained on")


def run(args: argparse.Namespace) -> int:
    """Attack, print the table, write the page, print its path.

    Raises:
        UserError: No such model, attack or picture, or the folder cannot be written.
    """
    options = typed(SecurityOptions, args)
    check_faces(options.photos, options.identities)
    return run_security(options)
