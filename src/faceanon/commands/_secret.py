"""Where a password comes from: an environment variable, a file, the system's keyring, or the keyboard.

Never the command line, unless somebody insists.
"""

from __future__ import annotations

import argparse
import getpass
import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.commands._files import FileOptions
from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.key import Password

MAX_BYTES = 4096
SERVICE = "faceanon"
USUAL_VARIABLE = "FACEANON_PASSWORD"
SOURCES = ("--password-env", "--password-file", "--password-keyring", "--insecure-password")


class _Typed:
    """A password from the command line that no `repr` of a namespace or of options shows."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "(hidden)"


@dataclass(frozen=True)
class PasswordOptions:
    """Where the password comes from; without any of them from the usual variable, else from the terminal.

    Args:
        password_env: Name of an environment variable.
        password_file: Path of a file.
        password_keyring: Name of an entry in the system's keyring.
        insecure_password: The password itself.
    """

    password_env: str | None
    password_file: str | None
    password_keyring: str | None
    insecure_password: _Typed | None

    @property
    def named(self) -> bool:
        """Whether a source is named at all."""
        sources = (self.password_env, self.password_file, self.password_keyring, self.insecure_password)
        return any(source is not None for source in sources)

    @property
    def asks(self) -> bool:
        """Whether the terminal has to ask: no source is named, and the usual variable is not set."""
        return not self.named and _usual() is None

    @property
    def pipe(self) -> bool:
        """Whether the file can be read only once: `<(...)`, a FIFO, a terminal, `/dev/stdin` behind a pipe."""
        file = Path(self.password_file or "")
        return file.exists() and not file.is_file() and not file.is_dir()


def add_password_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that name a source; without one it is the usual variable, else the terminal.

    Returns:
        Their group.
    """
    group = parser.add_argument_group(
        "password",
        f"By default {USUAL_VARIABLE} of the environment is read; where it is not set, the terminal asks. Words on a "
        "command line show in process lists and histories.",
    )
    group.add_argument("--password-env", metavar="NAME", help="environment variable that holds the password")
    group.add_argument(
        "--password-file", metavar="FILE", help="UTF-8 file that holds the password; its last line end is dropped"
    )
    group.add_argument(
        "--password-keyring",
        metavar="NAME",
        help="entry of the system's keyring, stored once by `python -m keyring set faceanon NAME`",
    )
    group.add_argument(
        "--insecure-password",
        metavar="TEXT",
        type=_Typed,
        help="the password, for all who list processes; for tests",
    )
    return group


def check_password(files: FileOptions, source: PasswordOptions) -> None:
    """Notice a missing or unreadable password at once, before anything slow is imported; asks nothing.

    Only for the common case, one photo into a new PNG file. Otherwise a wrong path or option is to be named first, and
    what checks those needs imports of its own.

    Raises:
        UserError: As `read_password`.
    """
    target = Path(files.output or "")
    one_new_png = files.source.is_file() and target.suffix.lower() == ".png" and not target.exists()
    if files.csv is not None or not one_new_png:
        return
    if sys.stdin.isatty() and source.asks:
        return
    # What is typed on the command line is warned of once, when it is used; a keyring may ask, so it is opened once; a
    # pipe is empty the second time.
    if source.insecure_password is None and source.password_keyring is None and not source.pipe:
        password_of(source, confirm=False)


def _usual() -> str | None:
    """The password in the usual environment variable; an empty one counts as not set."""
    return os.environ.get(USUAL_VARIABLE) or None


def password_of(source: PasswordOptions, confirm: bool) -> Password:
    """The password from the source that was named.

    Args:
        source: Which it is.
        confirm: Ask twice on the terminal.

    Raises:
        UserError: As `read_password`.
    """
    text = None if source.insecure_password is None else source.insecure_password.text
    return read_password(source.password_env, source.password_file, confirm, source.password_keyring, text)


def read_password(
    env: str | None, file: str | None, confirm: bool, keyring: str | None = None, insecure: str | None = None
) -> Password:
    """The password from its one source.

    Args:
        env: Name of an environment variable, or None.
        file: Path of a file, or None.
        confirm: Ask twice on the terminal, since a typing error would lock the faces away for good.
        keyring: Name of an entry in the system's keyring, or None.
        insecure: The password itself, or None.

    Raises:
        UserError: If there are two sources or none, or the source is empty or unreadable.
    """
    # Here, since it imports numpy: `--help` would take half as long again.
    from faceanon.key import Password

    return Password(_text(env, file, confirm, keyring, insecure, "Password"))


def passphrase_of(source: PasswordOptions, confirm: bool, what: str) -> str:
    """The words that protect an identity, from where passwords come from.

    Args:
        source: Which source it is.
        confirm: Ask twice on the terminal.
        what: What the terminal asks for.

    Raises:
        UserError: As `read_password`.
    """
    typed = None if source.insecure_password is None else source.insecure_password.text
    text = _text(source.password_env, source.password_file, confirm, source.password_keyring, typed, what)
    if not text:
        raise UserError("the passphrase is empty; give at least one character")
    try:
        text.encode()
    # Without the cause, which holds the text.
    except UnicodeEncodeError:
        raise UserError("the passphrase is not valid text; give it in UTF-8") from None
    return text


def _text(
    env: str | None, file: str | None, confirm: bool, keyring: str | None, insecure: str | None, what: str
) -> str:
    """The words from their one source; see `read_password`."""
    given = []
    for name, value in zip(SOURCES, (env, file, keyring, insecure), strict=True):
        if value is not None:
            given.append(name)
    if len(given) > 1:
        raise UserError(f"give either {' or '.join(given)}, not both")
    if env is not None:
        return _from_environment(env)
    if file is not None:
        return _from_file(Path(file))
    if keyring is not None:
        return _from_keyring(keyring)
    if insecure is not None:
        print("faceanon: a password on the command line shows in process lists and histories", file=sys.stderr)
        return insecure
    usual = _usual()
    if usual is not None:
        return usual
    if not sys.stdin.isatty():
        raise UserError(
            f"no password and no terminal to ask on; set {USUAL_VARIABLE}, or give --password-env NAME or "
            "--password-file FILE"
        )
    return from_terminal(what, confirm)


def _from_environment(name: str) -> str:
    text = os.environ.get(name)
    if text is None:  # the name is not shown: somebody may have typed the password itself
        raise UserError("the environment variable that --password-env names is not set; export it first")
    return text


def _from_file(path: Path) -> str:
    # Here, since it imports numpy: `--help` would take half as long again.
    from faceanon.files import read_small

    data = read_small(path, MAX_BYTES, f"the password file {path}")
    try:
        # Editors on Windows put a mark in front and \r\n behind, which nobody typed. Other spaces may be meant and
        # stay.
        text = data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:  # its own message would show a part of the password
        raise UserError(f"the password file {path} is not UTF-8 text; save it as UTF-8") from None
    # Nobody can type these: a list of passwords, or UTF-16, would lock the faces away from whoever knows the word.
    for letter, what in (("\n", "several lines"), ("\0", "zero bytes")):
        if letter in text:
            raise UserError(f"the password file {path} holds {what}; save the password alone, as one line of UTF-8")
    return text


def _from_keyring(name: str) -> str:
    try:
        keyring = importlib.import_module("keyring")
        refusal = importlib.import_module("keyring.errors").KeyringError
    except ImportError:
        raise UserError("--password-keyring needs the package keyring: pip install 'faceanon[keyring]'") from None
    try:
        text: str | None = keyring.get_password(SERVICE, name)
    except refusal as error:
        raise UserError(f"the system's keyring does not open ({type(error).__name__}); unlock or set it up") from None
    if text is None:  # the name is not shown, as above
        raise UserError(f"no such entry in the keyring; store it by: python -m keyring set {SERVICE} NAME")
    return text


def from_terminal(what: str, confirm: bool) -> str:
    """Words that are typed and not shown.

    Args:
        what: What is asked for.
        confirm: Ask twice.

    Raises:
        UserError: If nothing was typed, or two different things.
    """
    try:
        text = getpass.getpass(f"{what}: ")
        again = getpass.getpass("Again: ") if confirm else text
    except EOFError:
        raise UserError(f"no {what.lower()} was typed") from None
    if text != again:
        raise UserError("the two differ; start again")
    return text
