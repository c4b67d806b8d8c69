"""`faceanon report`: the figures of one or several tests as one HTML page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from faceanon.commands import _leaderboard, _occlusion, _security, _tables
from faceanon.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("results", nargs="*", type=Path, help="results.json files, or the folders they are in")
    parser.add_argument(
        "--across-protocols",
        action="store_true",
        help="put results of different protocols side by side, marked as such",
    )
    parser.add_argument("--out", type=Path, help="page or folder to write (default: comparison.html)")
    _leaderboard.add_arguments(parser)
    _occlusion.add_arguments(parser)
    _security.add_arguments(parser)
    _tables.add_arguments(parser)


def column_labels(paths: list[Path]) -> list[str]:
    """Shortest trailing parts of the paths that tell them apart.

    Raises:
        UserError: One path was given twice.
    """
    full = [path.resolve() for path in paths]
    folders = [path.parent if path.name == "results.json" else path for path in full]
    if len(set(folders)) < len(folders):
        raise UserError("the same results were given twice; name each once")
    for depth in range(1, max(len(folder.parts) for folder in folders) + 1):
        labels = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(labels)) == len(labels):
            break
    return labels


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path.

    Raises:
        UserError: A file is missing or damaged, results of different protocols were given without
            `--across-protocols`, or the page cannot be written.
    """
    if args.leaderboard is not None:
        return _leaderboard.run(args)
    if args.occlusion is not None:
        return _occlusion.run(args)
    if args.security is not None:
        return _security.run(args)
    if args.table is not None:
        return _tables.run(args)
    if not args.results:
        raise UserError("nothing to report on: name results.json files, or the folders they are in")

    from faceanon.metrics.comparison import check_comparable, protocol_label
    from faceanon.report.page import write_comparison
    from faceanon.report.results import load_results

    labels = column_labels(args.results)
    results = [load_results(path) for path in args.results]
    metas = [result.meta for result in results]
    marks = check_comparable(dict(zip(labels, metas, strict=True)), args.across_protocols)
    if marks:
        labels = [f"{label} [{protocol_label(meta)}]" for label, meta in zip(labels, metas, strict=True)]
        print(*marks, sep="\n", file=sys.stderr)
    print(write_comparison(args.out or Path("comparison.html"), dict(zip(labels, results, strict=True))))
    return 0
