"""Recipients and identities of age (X25519): who is sealed to, and who opens.

A recipient is public, `age1...`. Its identity is secret, `AGE-SECRET-KEY-1...`, and lies in a file that a passphrase
protects. Both are those of the tool `age`, and so are the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pyrage

from faceanon.errors import UserError

MOST_RECIPIENTS = 100
SECRET_BEGINNING = "AGE-SECRET-KEY-"
ADVICE = "give age1..., or the .pub file that `faceanon keys new` wrote"


class WrongIdentityError(UserError):
    """A sealed key does not open: it is for others, or somebody changed the file."""


def checked_recipient(text: str, name: str) -> str:
    """A recipient as age writes it.

    Args:
        text: `age1...`.
        name: What to call it in messages.

    Raises:
        UserError: If it is none. A secret key that was given by mistake is not shown.

    Examples:
        >>> from faceanon.sealed.recipients import Identity, checked_recipient
        >>> mine = Identity.new().recipient
        >>> checked_recipient(mine, "--to") == mine
        True
        >>> checked_recipient("age1abc", "--to")
        Traceback (most recent call last):
        faceanon.errors.UserError: --to: 'age1abc' is no key of a recipient; give age1..., or the .pub file ...
    """
    refuse_secret(text, name)
    try:
        return str(pyrage.x25519.Recipient.from_str(text))
    # The second of bytes that are no text.
    except (pyrage.RecipientError, UnicodeEncodeError):
        raise UserError(f"{name}: {text[:70]!r} is no key of a recipient; {ADVICE}") from None


def refuse_secret(text: str, name: str) -> None:
    """Refuse a secret key where none belongs, before a message could show it.

    Raises:
        UserError: If there is one anywhere in `text`.
    """
    # Text of two bytes a letter has zeros between.
    if SECRET_BEGINNING in text.replace("\0", "").upper():
        raise UserError(f"{name}: this is a secret key, which others have now seen; {ADVICE}")


def wrap(key: bytes, recipients: Sequence[str]) -> bytes:
    """Seal a key for some recipients, each of whom can open it alone.

    Args:
        key: Any bytes.
        recipients: As `checked_recipient` gives them.
    """
    public = []
    for recipient in recipients:
        public.append(pyrage.x25519.Recipient.from_str(recipient))
    sealed: bytes = pyrage.encrypt(key, public)
    return sealed


class Identity:
    """The secret keys of one person. They show nowhere: `repr` hides them and pickling is refused.

    Args:
        keys: `AGE-SECRET-KEY-1...`, one or several.

    Raises:
        UserError: If one is none.

    Examples:
        >>> from faceanon.sealed.recipients import Identity, wrap
        >>> anna, ben = Identity.new(), Identity.new()
        >>> anna
        Identity(hidden)
        >>> sealed = wrap(b"key of a file", [anna.recipient, ben.recipient])
        >>> ben.unwrap(sealed, "photo.png")
        b'key of a file'
        >>> Identity.new().unwrap(sealed, "photo.png")
        Traceback (most recent call last):
        faceanon.sealed.recipients.WrongIdentityError: photo.png: the identity does not open it: it is for others, ...
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys: list[Any] = []
        for key in keys:
            try:
                self._keys.append(pyrage.x25519.Identity.from_str(key))
            except pyrage.IdentityError:  # its own message may show a part of the key
                raise UserError("a secret key is damaged; restore the identity from your copy") from None
        if not self._keys:
            raise UserError("no secret key; make one by `faceanon keys new`")

    @classmethod
    def new(cls) -> Identity:
        """A new one, of the system's randomness."""
        return cls([str(pyrage.x25519.Identity.generate())])

    @property
    def recipient(self) -> str:
        """The public key of the first secret one, `age1...`."""
        return str(self._keys[0].to_public())

    def secret_text(self) -> str:
        """The secret keys, one a line, for the file that keeps them."""
        return "\n".join(map(str, self._keys))

    def unwrap(self, sealed: bytes, name: str) -> bytes:
        """Open what `wrap` gave.

        Args:
            sealed: Of any origin.
            name: What to call the file in messages.

        Raises:
            WrongIdentityError: If it is for others, or was changed.
        """
        try:
            key: bytes = pyrage.decrypt(sealed, self._keys)
        except pyrage.DecryptError:
            raise WrongIdentityError(
                f"{name}: the identity does not open it: it is for others, or its recovery data were tampered with; "
                "give the identity of a recipient"
            ) from None
        return key

    def __repr__(self) -> str:
        return "Identity(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Identity cannot be pickled or copied to another process")
