"""Fill the papers' tables: what they print, and what we measure.

  faceanon report tables ifadit-3 dbaf-1 --methods rotation=runs/mine/model blur --out runs/tables
  faceanon report tables dbaf-4 --train ffhq --data celebahq --bundle ffhq256 --config configs/trainer/gpu.yaml

`list` shows every table and what fills its rows; `all` runs them all. --out gets a folder with a page, JSON, Markdown
and pictures of each table, and tables.md with all of them. Name the tables first, then the options.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.commands._typed import typed
from faceanon.studies.tables.run import OUT, TablesOptions, run_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the tables take."""
    parser.add_argument("table", nargs="+", metavar="TABLE", help="such as dbaf-1 ifadit-3; all; or list")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder to write (%(default)s)")
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME=MODEL",
        help="models by the name of their row, several of one name for several trainings (default: the shipped model); "
        "NAME alone where no training is needed",
    )
    parser.add_argument("--bundle", default="photo128_prior", help="bundle that judges (%(default)s)")
    parser.add_argument(
        "--protocol", metavar="NAME", help="of the evaluation (default: photo128-v1, with --train the paper's own)"
    )
    parser.add_argument(
        "--data", nargs="+", type=Path, default=[], metavar="FOLDER", help="photographs, for a protocol on photographs"
    )
    parser.add_argument(
        "--train",
        type=Path,
        metavar="FOLDER",
        help="train the rows' models by configs/paper on these aligned photographs, ablations too; what is there "
        "already is not trained again",
    )
    parser.add_argument(
        "--config", nargs="+", default=[], metavar="FILE", help="configs behind each training's own, as for a GPU"
    )
    parser.add_argument(
        "--named",
        type=Path,
        metavar="FOLDER",
        help="people (a folder each) who set the thresholds where --data names nobody",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="test on about N pictures only; the page says so")
    parser.add_argument("--detectors", nargs="+", default=[], metavar="NAME", help="further face detectors: mtcnn")
    parser.add_argument("--dlib", type=Path, metavar="FILE", help="add dlib's, with its shape_predictor_68 file")
    parser.add_argument(
        "--kffa-keys", type=int, metavar="N", help="keys a picture where a table has KFFA (default: 50)"
    )
    parser.add_argument("--tsne-keys", type=int, default=200, metavar="N", help="keys a face in t-SNE (%(default)s)")
    parser.add_argument(
        "--features", type=Path, metavar="FOLDER", help="keep features of the originals there for the next run"
    )
    parser.add_argument(
        "--pictures", nargs="*", choices=("sheet", "tsne"), help="draw these (default: the table's, photographs never)"
    )
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, ... (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Run the evaluations that the tables need, print the tables and write them.

    Raises:
        UserError: No such table or method, or pictures, weights or folders that cannot be used.
    """
    options = typed(TablesOptions, args)
    return run_tables(options)
