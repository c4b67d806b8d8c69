"""Where a password comes from: an environment variable, a file, or the keyboard. Never the command line."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path

from faceanon.errors import UserError
from faceanon.key import Password

MAX_BYTES = 4096


def add_password_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--password-env` and `--password-file`."""
    group = parser.add_argument_group(
        "password", "Asked for on the terminal by default. Words on a command line show in process lists and histories."
    )
    group.add_argument("--password-env", metavar="NAME", help="environment variable that holds the password")
    group.add_argument(
        "--password-file", metavar="FILE", help="UTF-8 file that holds the password; its last line end is dropped"
    )


def read_password(env: str | None, file: str | None, confirm: bool) -> Password:
    """The password from its one source.

    Args:
        env: Name of an environment variable, or None.
        file: Path of a file, or None.
        confirm: Ask twice on the terminal, since a typing error would lock the faces away for good.

    Raises:
        UserError: If there are two sources or none, or the source is empty or unreadable.
    """
    if env is not None and file is not None:
        raise UserError("give either --password-env or --password-file, not both")
    if env is not None:
        return Password(_from_environment(env))
    if file is not None:
        return Password(_from_file(Path(file)))
    if not sys.stdin.isatty():
        raise UserError("no password and no terminal to ask on; give --password-env NAME or --password-file FILE")
    return Password(_from_terminal(confirm))


def _from_environment(name: str) -> str:
    text = os.environ.get(name)
    if text is None:  # the name is not shown: somebody may have typed the password itself
        raise UserError("the environment variable that --password-env names is not set; export it first")
    return text


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read the password file {path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise UserError(f"the password file {path} is longer than {MAX_BYTES} bytes; is it the right file?")
    try:
        return data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:  # its own message would show a part of the password
        raise UserError(f"the password file {path} is not UTF-8 text; save it as UTF-8") from None


def _from_terminal(confirm: bool) -> str:
    try:
        text = getpass.getpass("Password: ")
        again = getpass.getpass("Again: ") if confirm else text
    except EOFError:
        raise UserError("no password was typed") from None
    if text != again:
        raise UserError("the two passwords differ; start again")
    return text
