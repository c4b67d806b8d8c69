"""Bring the faces of anonymized pictures back with the password they were hidden with.

Needs the file as `faceanon anonymize` wrote it, the same model and the same password; nothing else is stored anywhere.
What a wrong password does depends on the model. One for photographs has sealed codes of the faces in the file: a wrong
password opens none, says so and writes nothing, or with --deniable draws yet another stranger and says what it says of
a right one. Other models always draw another stranger. With --exact the original pixels come back from the vault that
`anonymize --vault` made; the model plays no part, and a wrong password is refused.

  faceanon recover party_anon.png party.png
  FACEANON_PW=... faceanon recover hidden/ photos/ --password-env FACEANON_PW
  faceanon recover party_anon.png party.png --exact
  faceanon recover sent_by_chat.jpg party.png --like hidden/other.png
  faceanon recover party_anon.png party.png --deniable

A file whose metadata were stripped has lost the salt and the places of its faces. --like takes the salt from any other
file of the same run (a picture, its .faceanon.json, or the folder of the run), and the faces are detected again, less
exactly. It has lost sealed codes as well, unless `anonymize --carry pixels` wrote all that recovery needs into the
faces' pixels too, where it is found by itself.
Exit code: 0 done, 1 failed, 2 wrong usage or input (no faceanon data in the picture, another model; nothing is
written).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.commands._files import add_file_arguments, load_pipeline, plan
from faceanon.commands._run import prepare_folder, quiet_pictures, run_jobs
from faceanon.commands._secret import add_password_arguments, check_password, password_of
from faceanon.commands._shares import check_shares
from faceanon.commands._video import add_video_arguments, check_video, is_video, recover_one, settle
from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.key import KdfParameters
    from faceanon.pipeline.many.folder import Job
    from faceanon.pipeline.tasks import Output, Task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    add_file_arguments(parser, "anonymized picture")
    parser.add_argument(
        "--like",
        metavar="FILE",
        help="another file of the same run, for pictures that have lost their recovery data",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="the original faces, pixel by pixel, from the vault of anonymize --vault; a wrong password is refused, "
        "and --model is not read",
    )
    parser.add_argument(
        "--deniable",
        action="store_true",
        help="draw another stranger under a wrong password, with the same messages and exit code as under the right "
        "one, so that nobody can tell from the outcome; some models always do",
    )
    add_video_arguments(parser, follow=False)
    add_password_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Recover IN into OUT.

    Raises:
        UserError: If an argument, the password, the model or (unless skipped) a picture is unusable.
    """
    if not args.exact:
        check_password(args)
    from faceanon.photo.manifests import manifest_like
    from faceanon.photo.metadata import WRITABLE
    from faceanon.pipeline.exact import ExactTask, no_model
    from faceanon.pipeline.many.memory import keep_memory
    from faceanon.pipeline.tasks import Output, RecoverTask

    quiet_pictures()
    keep_memory()
    settle(args)
    if is_video(args.input):
        check_shares(args, folder=False)
        paths, password = check_video(args), password_of(args, confirm=False)
        return recover_one(args, paths, load_pipeline(args.model, args.device), password)
    source, target, output = Path(args.input), Path(args.output), Output(args.quality)
    jobs = plan(source, target, frozenset(WRITABLE), args.overwrite, f".{args.format}")
    settings = {"command": "recover", "format": args.format, "quality": args.quality, "like": args.like}
    settings |= {"exact": args.exact or None}  # None: as in journals of before there were vaults
    settings |= {"deniable": args.deniable or None}
    if args.exact:
        _check_exact(args, jobs, output)
    folder = prepare_folder(args, jobs, settings)
    like = None if args.like is None else manifest_like(Path(args.like))
    password = password_of(args, confirm=False)
    pipeline = no_model() if args.exact else load_pipeline(args.model, args.device)

    def make(picture: Path, file: Path, salt: bytes | None, kdf: KdfParameters | None) -> Task:
        if args.exact:
            return ExactTask(pipeline, picture, file, password, output)
        return RecoverTask(pipeline, picture, file, password, output, like, args.deniable)

    return run_jobs(args, jobs, folder, pipeline, password, make, "recovered")


def _check_exact(args: argparse.Namespace, jobs: Sequence[Job], output: Output) -> None:
    from faceanon.pipeline.exact import check_exact

    if args.deniable:
        raise UserError("--exact opens a vault, which tells whether the password is right; leave --deniable away")
    if args.like is not None:
        raise UserError("--exact needs each file's own recovery data, so --like cannot help; leave one of them away")
    for _, target in jobs:
        check_exact(target, output)
