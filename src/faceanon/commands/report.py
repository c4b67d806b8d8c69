"""Put results side by side, or make a report of one's own: leaderboard, occlusion, security, the papers' tables.

  faceanon report runs/a/report runs/b/report
  faceanon report --leaderboard runs/zoo
  faceanon report --occlusion dbaf_synth64
  faceanon report --security runs/mine/model --budget small
  faceanon report --table dbaf-1 --methods dbaf_keyed=runs/mine/model
  faceanon report photographs --model runs/mine/model --pictures DIR --out runs/study

One of them at a time. An option that the chosen report does not know is refused, never passed over. The last one is a
command of its own: `faceanon report photographs --help`.
Exit code: 0 done, 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from faceanon.commands import _leaderboard, _occlusion, _security, _tables
from faceanon.errors import UserError

REPORTS = {"leaderboard": _leaderboard, "occlusion": _occlusion, "security": _security, "table": _tables}
FLAGS = "--leaderboard, --occlusion, --security, --table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("results", nargs="*", type=Path, help="results.json files, or the folders they are in")
    parser.add_argument("--out", type=Path, help="page or folder to write (default: comparison.html)")
    parser.add_argument(
        "--across-protocols",
        action="store_true",
        help="put results of different protocols side by side, marked as such; also with --leaderboard",
    )
    for report in REPORTS.values():
        report.add_arguments(parser)
    group = parser.add_argument_group("for several of these reports")
    group.add_argument("--device", default="cpu", help="all but --leaderboard: cpu, cuda, ... (%(default)s)")
    group.add_argument("--seed", type=int, default=0, help="--occlusion, --security: of keys and draws (%(default)s)")
    group.add_argument(
        "--photos",
        type=Path,
        metavar="FOLDER",
        help="--occlusion, --security: aligned photographs, a folder a person (default: drawn faces)",
    )
    group.add_argument(
        "--identities", type=Path, metavar="FILE", help="with --photos: list of picture and person, instead of folders"
    )


def chosen_report(args: argparse.Namespace) -> str | None:
    """Which of `REPORTS` was asked for; None: results side by side.

    Raises:
        UserError: Two of them, or an option that the chosen one would pass over.
    """
    found = [name for name in REPORTS if getattr(args, name) is not None]
    if len(found) > 1:
        raise UserError(f"--{found[0]} and --{found[1]} are two reports; run them one after the other")
    name = found[0] if found else None
    own = ("results", "across_protocols") if name is None else (name, *REPORTS[name].OPTIONS)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for option, default in vars(parser.parse_args([])).items():
        if option not in (*own, "out") and getattr(args, option) != default:
            raise UserError(_misplaced(option, name))
    if args.identities is not None and args.photos is None:
        raise UserError("--identities says who is in the pictures of --photos; give --photos FOLDER as well")
    return name


def _misplaced(option: str, name: str | None) -> str:
    """One line on an option that the report `name` does not know."""
    if option == "results":
        return f"--{name} takes no results beside it; leave them out, or leave out --{name} to compare them"
    word = f"--{option.replace('_', '-')}"
    users = " or ".join(f"--{other}" for other, report in REPORTS.items() if option in report.OPTIONS)
    advice = f"add {users}" if name is None else f"leave it out with --{name}"
    return f"{word} belongs to {users}; {advice}"


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
    """Write the report that was asked for and print its path.

    Raises:
        UserError: A file is missing or damaged, results of different protocols were given without
            `--across-protocols`, options that do not go together, or a page that cannot be written.
    """
    name = chosen_report(args)
    if name is not None:
        return int(REPORTS[name].run(args))
    if not args.results:
        raise UserError(f"nothing to report on: name results.json files or the folders they are in, or one of {FLAGS}")

    from faceanon.metrics.comparison import check_comparable, protocol_label
    from faceanon.report.page import write_comparison
    from faceanon.results import load_results

    labels = column_labels(args.results)
    results = [load_results(path) for path in args.results]
    metas = [result.meta for result in results]
    marks = check_comparable(dict(zip(labels, metas, strict=True)), args.across_protocols)
    if marks:
        labels = [f"{label} [{protocol_label(meta)}]" for label, meta in zip(labels, metas, strict=True)]
        print(*marks, sep="\n", file=sys.stderr)
    print(write_comparison(args.out or Path("comparison.html"), dict(zip(labels, results, strict=True))))
    return 0
