"""A run over a folder by several processes: what may be asked for, and who reports."""

from __future__ import annotations

import argparse
import sys
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.commands._run import Tally
    from faceanon.pipeline.many.folder import FolderRun
    from faceanon.pipeline.steps import Outcome

DEVICES = ("cpu", "cuda")
_SOURCES = ("password_env", "password_file", "password_keyring", "insecure_password")


def shared(args: argparse.Namespace) -> bool:
    """Whether several processes are asked for."""
    return bool(args.devices > 1 or args.nodes > 1)


def check_shares(args: argparse.Namespace, folder: bool) -> None:
    """Refuse what cannot be shared, before anything is started.

    Raises:
        UserError: If a number is below one, or one photo, a single device, or a password from the terminal is to be
            shared.
    """
    for option in ("devices", "nodes"):
        if not 1 <= getattr(args, option) <= 1024:
            raise UserError(f"--{option} must be 1 to 1024, not {getattr(args, option)}")
    if not shared(args):
        return
    if not folder:
        raise UserError("--devices and --nodes share a folder; this is one file")
    if args.device not in DEVICES:
        raise UserError(
            f"--devices and --nodes give out the devices themselves: --device cpu or cuda, not {args.device}"
        )
    if all(getattr(args, source) is None for source in _SOURCES):
        raise UserError("several processes cannot ask for a password; give --password-env NAME or --password-file FILE")


def share(args: argparse.Namespace, run: FolderRun, tally: Tally, stop: bool) -> bool:
    """Do a run with several processes.

    Args:
        args: The command's arguments.
        run: The run.
        tally: In the first process, ends up with what all have done.
        stop: Whether each process stops at its first bad file.

    Returns:
        Whether this is the first process, the one that reports.

    Raises:
        UserError: If the run cannot go on, or there are too few devices.
    """
    from faceanon.pipeline.many.processes import folder_trainer, is_first, run_shares

    own = type(tally)(before=tally.before)

    def report(result: Outcome | UserError) -> bool:
        if isinstance(result, UserError):
            own.failures.append(str(result))
            return not stop
        own.add(result)
        return True

    def summary() -> Tally:
        own.look_back(run.pipeline)
        return own

    trainer = folder_trainer(args.devices, args.nodes, args.device)
    if is_first(trainer):
        print(f"{len(run.todo)} photo(s) for {args.devices * args.nodes} processes", file=sys.stderr)
    summaries = run_shares(trainer, run, report, summary)
    if summaries:
        vars(tally).update(vars(reduce(add, summaries)))
    return bool(summaries)
