"""A run over a folder by several processes: what may be asked for, and who reports."""

from __future__ import annotations

import sys
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.commands._files import FileOptions
    from faceanon.commands._run import Tally
    from faceanon.commands._secret import PasswordOptions
    from faceanon.pipeline.many.folder import FolderRun
    from faceanon.pipeline.steps import Outcome

DEVICES = ("cpu", "cuda")


def check_shares(files: FileOptions, password: PasswordOptions, folder: bool) -> None:
    """Refuse what cannot be shared, before anything is started.

    Raises:
        UserError: If a number is below one, or one photo, a single device, or a password from the terminal is to be
            shared.
    """
    for option, value in (("--devices", files.devices), ("--nodes", files.nodes)):
        if not 1 <= value <= 1024:
            raise UserError(f"{option} must be 1 to 1024, not {value}")
    if not files.shared:
        return
    if not folder:
        raise UserError("--devices and --nodes share a folder; this is one file")
    if files.device not in DEVICES:
        raise UserError(
            f"--devices and --nodes give out the devices themselves: --device cpu or cuda, not {files.device}"
        )
    if not password.named:
        raise UserError("several processes cannot ask for a password; give --password-env NAME or --password-file FILE")


def share(files: FileOptions, run: FolderRun, own: Tally, stop: bool) -> Tally | None:
    """Do a run with several processes.

    Args:
        files: How many processes there are.
        run: The run.
        own: Counts what this process does; nothing but what was done before stands in it yet.
        stop: Whether each process stops at its first bad file.

    Returns:
        What all processes have done; None in all but the first, which is the one that reports.

    Raises:
        UserError: If the run cannot be resumed, or there are too few devices.
    """
    from faceanon.pipeline.many.processes import folder_trainer, is_first, run_shares

    def report(result: Outcome | UserError) -> bool:
        if isinstance(result, UserError):
            own.failures.append(str(result))
            return not stop
        own.add(result)
        return True

    def summary() -> Tally:
        own.look_back(run.pipeline)
        return own

    trainer = folder_trainer(files.devices, files.nodes, files.device)
    # Every process comes by here; one of them speaks for all.
    if is_first(trainer):
        print(f"{len(run.todo)} photo(s) for {files.devices * files.nodes} processes", file=sys.stderr)
    summaries = run_shares(trainer, run, report, summary)
    if not summaries:
        return None
    whole: Tally = reduce(add, summaries)
    return whole
