"""Measure a model on photographs of persons: every figure that says whether their pictures are in good hands.

  faceanon report photographs --model runs/mine/model --pictures DIR --out runs/study --mobilefacenet 068.ckpt
  faceanon report photographs --model runs/dbaf_s2/model --pictures DIR --out runs/trial --people 12 --limit 8

The pictures are FFHQ-aligned faces, a folder a person, of persons whom no training saw. Each is anonymized through PNG
files under several passwords, recovered with the right and with a wrong one, and looked at by recognisers, a detector
and a face mesh. --out gets results.json, table.md and sheet.png; all pictures are kept in its folder `cache`, so an
interrupted study resumes with the same command. Keep --out away from what is published: it shows real persons.
Exit code: 0 done, whatever the figures are; 2 wrong usage or input.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faceanon.commands._typed import typed
from faceanon.commands.report._faces import MODEL_HELP
from faceanon.errors import UserError


@dataclass(frozen=True)
class PhotographsOptions:
    """What is studied, and who looks at it.

    Args:
        model: Folder, shipped name or .ckpt of a model, or a preset that needs no training.
        pictures: FFHQ-aligned face pictures, a folder a person.
        out: Folder to write.
        passwords: Passwords a picture.
        same_stranger: Whether a person becomes one stranger in all pictures.
        size: Side of the pictures in pixels.
        people: Persons at most; None for all.
        limit: Pictures of a person at most; None for all.
        jobs: Processes that share the work.
        device: Where it computes.
        mobilefacenet: Public checkpoint of MobileFaceNet, as a judge; None: without it.
        no_dlib: Whether dlib's judge is left out.
        detector: Name of the detector.
        tell_steps: Training batches of the network that tells drawn pictures from real ones; 0 leaves it out.
        attackers: What trained attackers may spend; `none` leaves them out.
    """

    model: str
    pictures: Path
    out: Path
    passwords: int
    same_stranger: bool
    size: int
    people: int | None
    limit: int | None
    jobs: int
    device: str
    mobilefacenet: Path | None
    no_dlib: bool
    detector: str
    tell_steps: int
    attackers: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the study takes."""
    parser.add_argument("--model", required=True, help=MODEL_HELP)
    parser.add_argument(
        "--pictures", required=True, type=Path, metavar="DIR", help="FFHQ-aligned face pictures, a folder a person"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write")
    parser.add_argument("--passwords", type=int, default=3, metavar="N", help="passwords a picture (%(default)s)")
    parser.add_argument(
        "--same-stranger",
        action="store_true",
        help="anonymize all pictures as one folder in which a person becomes one stranger, as anonymize does with the "
        "same option; trained attackers do not know it",
    )
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
    options = typed(PhotographsOptions, args)
    _check(options)

    from faceanon.studies.photographs.attackers import attack_figures
    from faceanon.studies.photographs.page import terminal
    from faceanon.studies.photographs.people import find_people
    from faceanon.studies.photographs.run import CACHE, RESULTS, check_numbers, run_study
    from faceanon.studies.photographs.tools import ToolsChoice, make_tools

    # Before the attackers, who train for a quarter of an hour.
    check_numbers(options.size, options.passwords, options.jobs, options.tell_steps)
    choice = ToolsChoice(
        model=options.model,
        device=options.device,
        mobilefacenet=options.mobilefacenet,
        dlib=not options.no_dlib,
        detector=options.detector,
        round_trip=options.tell_steps > 0,
        side=options.size,
    )
    people = find_people(options.pictures, options.people, options.limit)
    further = None
    if options.attackers != "none":
        tools = make_tools(choice)
        cache = options.out / CACHE
        # The first judge: the shipped recogniser, with which the attackers train, comes last.
        further = attack_figures(tools.pipeline, tools.judges[0], tools.mesh, people, options.attackers, cache)
    # The study gets a recipe of its tools: every process of `--jobs` makes its own.
    results = run_study(
        people,
        partial(make_tools, choice),
        options.size,
        options.passwords,
        options.out,
        options.jobs,
        options.tell_steps,
        further,
        options.same_stranger,
    )
    print(terminal(results))
    for warning in results.warnings:
        print(f"warning: {warning}")
    print(options.out / RESULTS)
    return 0


def _check(options: PhotographsOptions) -> None:
    # A person needs another one to be told from, and a second picture to be recognised by.
    for option, value in (("--people", options.people), ("--limit", options.limit)):
        if value is not None and value < 2:
            raise UserError(f"{option} {value}: give 2 or more")
