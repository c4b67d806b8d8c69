"""Bring the faces of anonymized PNGs back with the password they were hidden with.

Needs the PNG as `faceanon anonymize` wrote it, the same model and the same password; nothing else is stored anywhere.
A wrong password cannot be told from a right one by the program: it draws yet another stranger.

  faceanon recover party_anon.png party.png
  FACEANON_PW=... faceanon recover hidden/ photos/ --password-env FACEANON_PW

Exit code: 0 done, 1 failed, 2 wrong usage or input (no faceanon data in the picture, another
model; nothing is written).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from faceanon.commands._files import add_file_arguments, finish, load_pipeline, plan, run_jobs
from faceanon.commands._secret import add_password_arguments, read_password


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    add_file_arguments(parser, "anonymized PNG")
    add_password_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Recover IN into OUT.

    Raises:
        UserError: If an argument, the password, the model or (unless skipped) a picture is unusable.
    """
    from faceanon.pipeline import recover_file

    source, target = Path(args.input), Path(args.output)
    jobs = plan(source, target, frozenset({".png"}), args.overwrite)
    password = read_password(args.password_env, args.password_file, confirm=False)
    pipeline = load_pipeline(args.model, args.device)
    tally = run_jobs(
        jobs,
        lambda png, photo: recover_file(pipeline, png, photo, password),
        skip=source.is_dir() and args.on_error == "skip",
    )
    return finish(tally, "recovered", target)
