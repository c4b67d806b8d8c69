"""Arguments of the reports that measure a model on faces: which faces, where, under which seed."""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.errors import UserError

MODEL_HELP = "folder of a trained model, name of a shipped one, .ckpt, or preset that needs no training, such as blur"


def add_face_arguments(parser: argparse.ArgumentParser, photos: str) -> None:
    """Add --photos, --identities, --device and --seed; `photos` says which pictures are taken without --photos."""
    parser.add_argument(
        "--photos",
        type=Path,
        metavar="FOLDER",
        help=f"aligned photographs, a folder a person ({photos})",
    )
    parser.add_argument(
        "--identities", type=Path, metavar="FILE", help="list of picture and person, for --photos without such folders"
    )
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, ... (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of keys and draws (%(default)s)")


def check_faces(photos: Path | None, identities: Path | None) -> None:
    """Refuse names of persons without pictures.

    Raises:
        UserError: `identities` was given and `photos` was not.
    """
    if identities is not None and photos is None:
        raise UserError("--identities says who is in the pictures of --photos; give --photos FOLDER as well")
