"""Report on tests and models: one page or folder for each question.

  faceanon report compare runs/a/report runs/b/report
  faceanon report security --model runs/mine/model

`faceanon report NAME --help` teaches each one.
Exit code: 0 done, 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
from types import ModuleType

from faceanon.commands.report import compare, leaderboard, occlusion, photographs, security, tables

REPORTS: dict[str, ModuleType] = {
    "compare": compare,
    "leaderboard": leaderboard,
    "occlusion": occlusion,
    "security": security,
    "tables": tables,
    "photographs": photographs,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the reports, each with its own arguments."""
    reports = parser.add_subparsers(dest="report", required=True, metavar="NAME", title="reports")
    for name, module in REPORTS.items():
        about = str(module.__doc__)
        one = reports.add_parser(
            name,
            help=about.splitlines()[0].rstrip("."),
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(one)


def run(args: argparse.Namespace) -> int:
    """Write the report that was named."""
    return int(REPORTS[args.report].run(args))
