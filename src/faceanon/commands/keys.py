"""Make the keys of a recipient: one to give away, one to keep.

    faceanon keys new anna.key           # writes anna.key and anna.key.pub
    faceanon keys show anna.key          # prints the public key again

anna.key is the identity: it opens what is made for anna, so she keeps it, and its passphrase. anna.key.pub is public:
whoever has it can make files for anna (faceanon anonymize --to anna.key.pub) and opens none.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from faceanon.commands._secret import PasswordOptions, add_password_arguments, passphrase_of
from faceanon.commands._typed import typed
from faceanon.errors import UserError

NEW = """Write a new identity, protected by a passphrase, and its public key beside it. Nothing is replaced.

    faceanon keys new anna.key
    faceanon keys new anna.key --password-file words.txt

Both are those of the tool age. A lost identity is lost: keep a copy, and its passphrase elsewhere.
"""
SHOW = """Print the public key of an identity.

    faceanon keys show anna.key > anna.key.pub
"""


@dataclass(frozen=True)
class KeyOptions:
    """Which identity.

    Args:
        file: The file of the identity.
        password: Where its passphrase comes from.
    """

    file: Path
    password: PasswordOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.usage = "%(prog)s {new,show} FILE"
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text, short in (("new", NEW, "make an identity"), ("show", SHOW, "print the public key of one")):
        one = commands.add_parser(
            name, help=short, description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        one.add_argument("file", metavar="FILE", type=Path, help="the file of the identity")
        add_password_arguments(one)


def run(args: argparse.Namespace) -> int:
    """Make or show an identity.

    Raises:
        UserError: If the file is there already, or cannot be read or written, or there is no passphrase.
    """
    options = typed(KeyOptions, args, password=typed(PasswordOptions, args))
    if args.action == "new":
        return _new(options)
    return _show(options)


def _new(options: KeyOptions) -> int:
    from faceanon.files import check_name, write_new
    from faceanon.sealed.identity_file import write_identity
    from faceanon.sealed.recipients import Identity

    public = options.file.with_name(options.file.name + ".pub")
    check_name(public)
    if options.file.suffix == ".pub":
        raise UserError(f"{options.file}: .pub is the ending of the public key, which is given away; name it otherwise")
    for path in (options.file, public):
        # Who replaces an identity loses all that was made for it.
        if path.exists():
            raise UserError(f"{path} exists; choose another name, or move it")
    passphrase = passphrase_of(options.password, confirm=True, what=f"Passphrase for {options.file}")
    identity = Identity.new()
    write_identity(options.file, identity, passphrase)
    write_new(public, f"{identity.recipient}\n".encode())
    print(identity.recipient)
    return 0


def _show(options: KeyOptions) -> int:
    from faceanon.sealed.identity_file import read_identity

    def passphrase() -> str:
        return passphrase_of(options.password, confirm=False, what=f"Passphrase of {options.file}")

    print(read_identity(options.file, passphrase).recipient)
    return 0
