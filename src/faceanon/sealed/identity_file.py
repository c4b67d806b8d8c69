"""Files that hold an identity: written under a passphrase, and read, also those of the tool `age`.

    # public key: age1...
    AGE-SECRET-KEY-1...

This text, encrypted by age under a passphrase (scrypt), is what lies on the disk.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

import pyrage

from faceanon.errors import UserError
from faceanon.files import read_small, write_new
from faceanon.lock import AGE_BEGINNING
from faceanon.sealed.recipients import SECRET_BEGINNING, Identity, refuse_secret

ARMOR = b"-----BEGIN AGE ENCRYPTED FILE-----"
MAX_BYTES = 65_536
MOST_WORK = 20  # 2^20 rounds of scrypt take 1 GB
_WORK = re.compile(rb"-> scrypt \S+ (\d{1,9})")
OWNER_ALONE = 0o600


def write_identity(path: Path, identity: Identity, passphrase: str) -> None:
    """Write an identity that the passphrase opens; only its owner may read the file.

    Args:
        path: The file.
        identity: What to keep.
        passphrase: Not empty.

    Raises:
        UserError: If the file is there already, or cannot be written.
    """
    text = f"# public key: {identity.recipient}\n{identity.secret_text()}\n"
    write_new(path, pyrage.passphrase.encrypt(text.encode(), passphrase, armored=True), OWNER_ALONE)


def is_protected(path: Path) -> bool:
    """Whether an identity lies under a passphrase; `age-keygen` writes them without.

    Raises:
        UserError: If the file cannot be read.
    """
    return _read(path).startswith((AGE_BEGINNING, ARMOR))


def read_identity(path: Path, passphrase: Callable[[], str]) -> Identity:
    """The identity in a file.

    Args:
        path: The file.
        passphrase: Asked only where the file is protected.

    Raises:
        UserError: If the file cannot be read or holds no identity, or the passphrase is wrong.
    """
    data = _read(path)
    if data.startswith((AGE_BEGINNING, ARMOR)):
        _check_work(data, path)
        try:
            data = pyrage.passphrase.decrypt(data, passphrase())
        except pyrage.DecryptError:
            raise UserError(f"the identity {path} does not open: wrong passphrase, or the file is damaged") from None
    keys = []
    # Of what is no text only a message would come out, which must not show a part of a key.
    for line in data.decode("utf-8-sig", "replace").splitlines():
        word = line.strip()
        if word and not word.startswith("#"):
            keys.append(word)
    if not keys or not all(key.startswith(SECRET_BEGINNING) for key in keys):
        raise UserError(f"{path} is no identity; give the file that `faceanon keys new` wrote")
    try:
        return Identity(keys)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _check_work(data: bytes, path: Path) -> None:
    """Refuse a file whose passphrase would take more memory than machines have.

    Raises:
        UserError: If scrypt is to take more than 1 GB.
    """
    if data.startswith(ARMOR):
        lines = data.split(b"\n")[1:]
        # The head is short; what follows need not be whole here.
        data = base64.b64decode(b"".join(lines[:8]) + b"==", validate=False)
    work = _WORK.search(data)
    if work is not None and int(work[1]) > MOST_WORK:
        raise UserError(f"the identity {path} asks for 2^{int(work[1])} rounds of scrypt; make it again with fewer")


def _read(path: Path) -> bytes:
    refuse_secret(str(path), "the identity")
    return read_small(path, MAX_BYTES, f"the identity {path}")
