"""`faceanon report --table`: the papers' tables, what they print beside what we measure."""

from __future__ import annotations

import argparse
from pathlib import Path

OPTIONS = (
    "methods",
    "bundle",
    "protocol",
    "data",
    "limit",
    "detectors",
    "dlib",
    "kffa_keys",
    "tsne_keys",
    "pictures",
    "features",
    "device",
)  # of `faceanon report`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--table` and what belongs to it."""
    group = parser.add_argument_group(
        "tables",
        "What the papers print beside ours: a folder with .json, .md, page and pictures, and tables.md "
        "of all (--out: runs/tables)",
    )
    group.add_argument(
        "--table", nargs="+", metavar="NAME", help="such as dbaf-1 ifadit-3; all for all, list to see what each needs"
    )
    group.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME=MODEL",
        help="models by the name of their row (default: the shipped model); NAME alone where no training is needed",
    )
    group.add_argument("--bundle", default="synth64", help="bundle that judges, by name or folder (%(default)s)")
    group.add_argument("--protocol", default="synth64-v1", metavar="NAME", help="of the evaluation (%(default)s)")
    group.add_argument(
        "--data", nargs="+", type=Path, default=[], metavar="FOLDER", help="photographs, for a protocol on photographs"
    )
    group.add_argument("--limit", type=int, metavar="N", help="test on about N pictures only; the page says so")
    group.add_argument("--detectors", nargs="+", default=[], metavar="NAME", help="add face detectors: mtcnn")
    group.add_argument("--dlib", type=Path, metavar="FILE", help="add dlib's, with its shape_predictor_68 file")
    group.add_argument("--kffa-keys", type=int, metavar="N", help="keys a picture where a table has KFFA (default: 50)")
    group.add_argument("--tsne-keys", type=int, default=200, metavar="N", help="keys a face in t-SNE (%(default)s)")
    group.add_argument(
        "--features", type=Path, metavar="FOLDER", help="keep features of the originals there for the next run"
    )
    group.add_argument(
        "--pictures", nargs="*", choices=("sheet", "tsne"), help="draw these (default: the table's, photographs never)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the evaluations that the tables need, print the tables and write them.

    Raises:
        UserError: No such table or method, or pictures, weights or folders that cannot be used.
    """
    from faceanon.studies.tables.run import OUT, Options, run_tables

    options = Options(
        table=args.table,
        out=args.out or OUT,
        methods=args.methods,
        bundle=args.bundle,
        protocol=args.protocol,
        data=args.data,
        limit=args.limit,
        detectors=args.detectors,
        dlib=args.dlib,
        kffa_keys=args.kffa_keys,
        tsne_keys=args.tsne_keys,
        features=args.features,
        pictures=args.pictures,
        device=args.device,
    )
    return run_tables(options)
