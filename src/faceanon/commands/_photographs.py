"""Measure a model on photographs of persons: every figure that says whether their pictures are in good hands.

  faceanon report photographs --model runs/mine/model --pictures DIR --out runs/study --mobilefacenet 068.ckpt
  faceanon report photographs --model dbaf_synth64 --pictures DIR --out runs/trial --people 12 --limit 8

The pictures are FFHQ-aligned faces, a folder a person, of persons whom no training saw. Each is anonymized through PNG
files under several passwords, recovered with the right and with a wrong one, and looked at by recognisers, a detector
and a face mesh. --out gets results.json, table.md and sheet.png; all pictures are kept in its folder `cache`, so an
interrupted study goes on with the same command. Keep --out away from what is published: it shows real persons.
Exit code: 0 done, whatever the figures are; 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from faceanon.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the study takes."""
    parser.add_argument("--model", required=True, help="folder, shipped name or .ckpt, or a preset without training")
    parser.add_argument(
        "--pictures", required=True, type=Path, metavar="DIR", help="FFHQ-aligned face pictures, a folder a person"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write")
    parser.add_argument("--passwords", type=int, default=3, metavar="N", help="passwords a picture (%(default)s)")
    parser.add_argument("--size", type=int, default=256, metavar="PX", help="side of the pictures (%(default)s)")
    parser.add_argument("--people", type=int, metavar="N", help="only the first N persons")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N pictures of each person")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that share the work (%(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ... (%(default)s)")
    group = parser.add_argument_group("who looks at the pictures")
    group.add_argument(
        "--mobilefacenet", type=Path, metavar="FILE", help="public checkpoint of MobileFaceNet, as a judge"
    )
    group.add_argument("--no-dlib", action="store_true", help="leave out the judge of the extra `judge`, dlib")
    group.add_argument(
        "--detector",
        choices=("yunet", "mtcnn"),
        default="yunet",
        help="who says whether a face is still found (%(default)s)",
    )
    group.add_argument(
        "--tell-steps",
        type=int,
        default=600,
        metavar="N",
        help="training batches of the network that tells drawn pictures from real ones; 0 leaves it out (%(default)s)",
    )
    group.add_argument(
        "--attackers",
        choices=("none", "small", "full"),
        default="none",
        help="train attackers too, and spend so much on them (%(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the study, print its table and the path of the results.

    Raises:
        UserError: No such model or picture, numbers out of range, or a judge that is not installed.
    """
    from faceanon.studies.photographs.attackers import attack_figures
    from faceanon.studies.photographs.page import terminal
    from faceanon.studies.photographs.people import find_people
    from faceanon.studies.photographs.run import CACHE, RESULTS, run_study
    from faceanon.studies.photographs.tools import Choice, make_tools

    for option in ("people", "limit"):
        value = getattr(args, option)
        if value is not None and value < 2:
            raise UserError(f"--{option} {value}: give 2 or more")
    choice = Choice(
        args.model,
        args.device,
        args.mobilefacenet,
        not args.no_dlib,
        args.detector,
        args.tell_steps > 0,
        args.size,
    )
    people = find_people(args.pictures, args.people, args.limit)
    further = None
    if args.attackers != "none":
        tools = make_tools(choice)
        further = attack_figures(tools.pipeline, tools.judges[0], tools.mesh, people, args.attackers, args.out / CACHE)
    results = run_study(
        people, partial(make_tools, choice), args.size, args.passwords, args.out, args.jobs, args.tell_steps, further
    )
    print(terminal(results))
    for warning in results.warnings:
        print(f"warning: {warning}")
    print(args.out / RESULTS)
    return 0
