"""Measure what glasses, masks and hands do to a method, and what it does to them.

  faceanon report occlusion --model persona_photo128
  faceanon report occlusion --model runs/mine/model --photos FOLDER --faces 200 --out runs/occlusion

The same faces are anonymized with and without an occluder. --out gets a page, a table, a picture and the figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.commands._typed import typed
from faceanon.commands.report._faces import MODEL_HELP, add_face_arguments, check_faces
from faceanon.studies.occlusion.run import OUT, OcclusionOptions, run_occlusion


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the report takes."""
    parser.add_argument("--model", required=True, help=MODEL_HELP)
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder to write (%(default)s)")
    parser.add_argument("--faces", type=int, default=100, metavar="N", help="faces at most, two a person (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, metavar="N", help="faces at a time (%(default)s)")
    add_face_arguments(parser, "default: the synthetic ones that ship")


def run(args: argparse.Namespace) -> int:
    """Test the model, write the report, print the table.

    Raises:
        UserError: No such model, device or folder, numbers out of range, or nobody who could be told apart.
    """
    options = typed(OcclusionOptions, args)
    check_faces(options.photos, options.identities)
    return run_occlusion(options)
