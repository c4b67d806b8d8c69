"""Who opens results, and with what files are opened: a password, recipients, the identity of a recipient."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from faceanon.commands._secret import PasswordOptions, passphrase_of, password_of
from faceanon.errors import UserError

if TYPE_CHECKING:
    from faceanon.sealed.openers import Openers

MAX_BYTES = 65_536  # of a file of recipients


@dataclass(frozen=True)
class SealOptions:
    """For whom results are made.

    Args:
        password: Where the password comes from.
        to: Values of `--to`: recipients, or files of them; None: a password alone opens the results.
    """

    password: PasswordOptions
    to: list[str] | None

    @property
    def source(self) -> PasswordOptions | None:
        """Where the password comes from; None where there is none: beside recipients its source has to be named."""
        if self.to and not self.password.named:
            return None
        return self.password

    def settings(self) -> str | None:
        """For a journal: a run is resumed for the same recipients only.

        Raises:
            UserError: As `recipients_of`.
        """
        if not self.to:
            return None
        return hashlib.sha256("\n".join(sorted(recipients_of(self.to))).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class OpenOptions:
    """With what files are opened.

    Args:
        password: Where the password comes from, or the passphrase of the identity.
        identity: File of an identity; None: a password opens the files.
    """

    password: PasswordOptions
    identity: str | None

    @property
    def source(self) -> PasswordOptions | None:
        """Where the password comes from; None where an identity needs none.

        Raises:
            UserError: If the identity cannot be read.
        """
        from faceanon.sealed.identity_file import is_protected

        if self.identity is None:
            return self.password
        file = Path(self.identity)
        protected = self.password.named
        # A pipe can be read only once, so what is in it is seen later.
        if not file.exists() or file.is_file():
            protected = is_protected(file)
        return self.password if protected else None


def add_recipient_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--to`."""
    parser.add_argument(
        "--to",
        action="append",
        metavar="WHO",
        help="recipient who opens the result: age1... or a file (faceanon keys). Repeat it for several; a password "
        "opens it too if one of these names it",
    )


def add_identity_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--identity`."""
    parser.add_argument(
        "--identity",
        metavar="FILE",
        help="open with this identity of a recipient (faceanon keys new); the password is then its passphrase",
    )


def sealing(options: SealOptions) -> Openers:
    """Those for whom results are made; asks for a password where one is wanted.

    Raises:
        UserError: If a recipient is none, or there is no password.
    """
    from faceanon.sealed.openers import Openers

    recipients = recipients_of(options.to or ())
    password = None
    if options.source is not None:
        password = password_of(options.source, confirm=True)
    return Openers(password, recipients)


def opening(options: OpenOptions) -> Openers:
    """What opens files: the identity, else the password. It is asked for once: a typing error costs another try.

    Raises:
        UserError: If the identity cannot be read or opened, or there is no password.
    """
    from faceanon.sealed.identity_file import read_identity
    from faceanon.sealed.openers import Openers

    if options.identity is None:
        return Openers(password_of(options.password, confirm=False))

    def passphrase() -> str:
        return passphrase_of(options.password, confirm=False, what=f"Passphrase of {options.identity}")

    return Openers(identity=read_identity(Path(options.identity), passphrase))


def recipients_of(values: Sequence[str]) -> list[str]:
    """The recipients that `--to` names, each once.

    Raises:
        UserError: If one is no key and no file of keys. A secret key that was given by mistake is not shown.
    """
    from faceanon.sealed.recipients import ADVICE, checked_recipient, refuse_secret

    found: list[str] = []
    for value in values:
        refuse_secret(value, "--to")
        if value.lower().startswith("age1"):
            found.append(checked_recipient(value, "--to"))
        elif Path(value).is_file():
            found += _recipients_in(Path(value))
        else:
            raise UserError(f"--to: {value[:70]!r} is no key of a recipient, and no file; {ADVICE}")
    return list(dict.fromkeys(found))


def _recipients_in(path: Path) -> list[str]:
    from faceanon.files import read_small
    from faceanon.lock import AGE_BEGINNING
    from faceanon.sealed.identity_file import ARMOR
    from faceanon.sealed.recipients import ADVICE, checked_recipient, refuse_secret

    try:
        data = read_small(path, MAX_BYTES, str(path))
    except UserError as error:
        raise UserError(f"--to: {error}") from None
    if data.startswith((AGE_BEGINNING, ARMOR)):
        raise UserError(f"--to: {path} is an identity, which is secret, or another encrypted file; {ADVICE}")
    found = []
    text = data.decode("utf-8-sig", "replace")
    # Of the whole file, since a line of it would stand in the message.
    refuse_secret(text, f"--to: {path}")
    for line in text.splitlines():
        word = line.strip()
        if word and not word.startswith("#"):
            found.append(checked_recipient(word, f"--to: {path}"))
    if not found:
        raise UserError(f"--to: {path} holds no key of a recipient; {ADVICE}")
    return found
