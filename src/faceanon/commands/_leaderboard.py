"""`faceanon report --leaderboard`: all methods of a folder of results on one page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

OUT = Path("leaderboard.html")
OPTIONS = ("across_protocols",)  # of `faceanon report`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--leaderboard`."""
    about = "One page on many methods that needs no network (--out: leaderboard.html)"
    group = parser.add_argument_group("leaderboard", about)
    group.add_argument(
        "--leaderboard",
        nargs="+",
        type=Path,
        metavar="RESULTS_DIR",
        help="rank every results.json in these folders (of `faceanon test`, or the --out of `faceanon zoo`)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path.

    Raises:
        UserError: No results, a file that is damaged or something else, or results that do not compare without
            `--across-protocols`.
    """
    from faceanon.studies.leaderboard.entries import check_entries, find_entries
    from faceanon.studies.leaderboard.page import write_leaderboard

    entries = find_entries(args.leaderboard)
    marks = check_entries(entries, args.across_protocols)
    print(*marks, sep="\n", end="\n" if marks else "", file=sys.stderr)
    print(write_leaderboard(args.out or OUT, entries, marks))
    return 0
