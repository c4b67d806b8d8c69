"""Judge what any tool made of pictures: who is still recognised, what is kept, and what comes back.

  faceanon evaluate photos/ hidden/
  faceanon evaluate photos/ hidden/ back/ --out runs/mine           # what was recovered is judged too
  faceanon evaluate faces/ hidden/ --aligned --identities who.csv   # each picture is one aligned face
  faceanon evaluate photos/ hidden/ --judge w600k_r50.onnx          # one more recogniser, of your own
  faceanon evaluate photo.jpg hidden.jpg

Files are paired by their names below the folders, without endings such as .jpg. Faces are found in the originals, and
the same squares are read in the other pictures, of any size. Persons are told by --identities, by one folder a person,
or by names as in Anna_0001.jpg; else each file counts as a person of its own, and whoever is on two files makes the
thresholds too strict.
--out gets report.html, results.json and samples.png, a sheet of the first faces: it shows the originals.
Exit code: 0 done, whatever the figures are; 2 wrong usage or input; 3 done, but some files have no partner or could not
be used: they are named.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.commands._run import quiet_pictures
from faceanon.commands._typed import typed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the judge takes."""
    parser.add_argument("originals", type=Path, metavar="ORIGINALS", help="folder of pictures, or one picture")
    parser.add_argument("anonymized", type=Path, metavar="ANONYMIZED", help="what the tool made of them")
    parser.add_argument("recovered", type=Path, nargs="?", metavar="RECOVERED", help="what was brought back from that")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/evaluate"), metavar="DIR", help="folder to write (%(default)s)"
    )
    parser.add_argument("--identities", type=Path, metavar="CSV", help="list of file and person")
    parser.add_argument(
        "--aligned", action="store_true", help="each picture is one aligned square face (FFHQ, CelebA-HQ)"
    )
    parser.add_argument(
        "--judge",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a further recogniser: an ONNX file of InsightFace's packs, or MobileFaceNet's .ckpt; may be repeated",
    )
    parser.add_argument(
        "--bundle",
        default="photo128_pictures",
        metavar="NAME",
        help="folder or name of the bundle whose networks look (%(default)s)",
    )
    parser.add_argument(
        "--attack",
        nargs="?",
        const="small",
        choices=("small", "full"),
        help="also train attackers on half of the people, and attack the others; takes minutes (small) or hours",
    )
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, ... (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Judge the pictures; the exit code.

    Raises:
        UserError: A file or folder is missing, nothing fits together, no face is found, or a judge is unusable.
    """
    quiet_pictures()
    from faceanon.studies.evaluate.run import EvaluateOptions, run_evaluate

    return run_evaluate(typed(EvaluateOptions, args))
