"""Put the results of several tests side by side on one page.

  faceanon report compare runs/a/report runs/b/report
  faceanon report compare runs/a/report/results.json runs/b/report --out page.html

Results of different protocols are refused unless you ask for them by --across-protocols. The page then marks them.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from faceanon.commands._typed import typed
from faceanon.errors import UserError


@dataclass(frozen=True)
class CompareOptions:
    """What is compared.

    Args:
        results: `results.json` files, or the folders they are in.
        out: Page to write.
        across_protocols: Whether results of different protocols may stand side by side.
    """

    results: list[Path]
    out: Path
    across_protocols: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the page takes."""
    parser.add_argument(
        "results", nargs="+", type=Path, metavar="RESULTS", help="results.json files, or the folders they are in"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("comparison.html"), metavar="FILE", help="page to write (%(default)s)"
    )
    parser.add_argument(
        "--across-protocols",
        action="store_true",
        help="put results of different protocols side by side, marked as such",
    )


def column_labels(paths: list[Path]) -> list[str]:
    """Shortest trailing parts of the paths that tell them apart.

    Raises:
        UserError: One path was given twice.
    """
    full = [path.resolve() for path in paths]
    folders = []
    for path in full:
        # `a` and `a/results.json` are the same results.
        folders.append(path.parent if path.name == "results.json" else path)
    if len(set(folders)) < len(folders):
        raise UserError("the same results were given twice; name each once")
    for depth in range(1, max(len(folder.parts) for folder in folders) + 1):
        labels = []
        for folder in folders:
            labels.append("/".join(folder.parts[-depth:]))
        if len(set(labels)) == len(labels):
            break
    return labels


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path.

    Raises:
        UserError: A file is missing or damaged, results of different protocols were given without
            `--across-protocols`, or the page cannot be written.
    """
    options = typed(CompareOptions, args)

    from faceanon.metrics.comparison import check_comparable, protocol_label
    from faceanon.report.page import write_comparison
    from faceanon.results import load_results

    labels = column_labels(options.results)
    results = list(map(load_results, options.results))
    metas = [result.meta for result in results]
    marks = check_comparable(dict(zip(labels, metas, strict=True)), options.across_protocols)
    if marks:
        complete = []
        for label, meta in zip(labels, metas, strict=True):
            complete.append(f"{label} [{protocol_label(meta)}]")
        labels = complete
        print(*marks, sep="\n", file=sys.stderr)
    print(write_comparison(options.out, dict(zip(labels, results, strict=True))))
    return 0
