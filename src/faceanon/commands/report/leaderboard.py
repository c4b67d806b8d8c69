"""Rank all methods of some folders of results on one page.

  faceanon report leaderboard runs/zoo
  faceanon report leaderboard runs/mine/report runs/zoo --out page.html

Each RESULTS_DIR is a report of `faceanon test`, the --out of `faceanon zoo`, or a folder of either. The page can be
sorted and needs no network. Results of different protocols are refused unless you ask for them by --across-protocols.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from faceanon.commands._typed import typed


@dataclass(frozen=True)
class LeaderboardOptions:
    """What is ranked.

    Args:
        folders: Searched for `results.json` files.
        out: Page to write.
        across_protocols: Whether results of different protocols may be ranked together.
    """

    folders: list[Path]
    out: Path
    across_protocols: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the page takes."""
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="RESULTS_DIR", help="folders to search for results.json files"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("leaderboard.html"), metavar="FILE", help="page to write (%(default)s)"
    )
    parser.add_argument(
        "--across-protocols", action="store_true", help="rank results of different protocols together, marked as such"
    )


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path.

    Raises:
        UserError: No results, a file that is damaged or something else, or results that do not compare without
            `--across-protocols`.
    """
    options = typed(LeaderboardOptions, args)

    from faceanon.studies.leaderboard.entries import check_entries, find_entries
    from faceanon.studies.leaderboard.page import write_leaderboard

    entries = find_entries(options.folders)
    marks = check_entries(entries, options.across_protocols)
    for mark in marks:
        print(mark, file=sys.stderr)
    print(write_leaderboard(options.out, entries, marks))
    return 0
