"""Who opens the files of a run: a password, recipients, or both; and with what somebody opens a file.

password alone:  password + salt --Argon2id--> key of the file
recipients:      random key of the file --age--> for each of them; --AES-256-GCM--> for a password beside them
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from faceanon.errors import UserError
from faceanon.key import MASTER_BYTES, KdfParameters, Password, Secret, new_salt
from faceanon.lock import Lock, WrappedKey
from faceanon.sealed.envelope import NONCE, WrongPasswordError
from faceanon.sealed.recipients import MOST_RECIPIENTS, Identity, checked_recipient, wrap

LABEL = "faceanon/wrapped/1/key"
CONTEXT = b"faceanon/wrapped/1"


class Openers:
    """For whom a run makes files, and with what it opens those that it reads.

    Args:
        password: Opens files, beside the recipients or, without any, alone; None: no password does.
        recipients: `age1...`, for each of whom the key of every file is sealed.
        identity: Opens files that are sealed for it.

    Raises:
        UserError: If a recipient is no key, or there are more than 100.

    Examples:
        >>> from faceanon.sealed.openers import Openers
        >>> from faceanon.sealed.recipients import Identity
        >>> anna = Identity.new()
        >>> camera = Openers(recipients=[anna.recipient])  # holds no secret
        >>> secret, lock = camera.new_key()
        >>> Openers(identity=anna).open(lock, "photo.png") == secret
        True
        >>> secret == camera.new_key()[0]  # each file has a key of its own
        False
    """

    def __init__(
        self, password: Password | None = None, recipients: Sequence[str] = (), identity: Identity | None = None
    ) -> None:
        checked = []
        for recipient in recipients:
            checked.append(checked_recipient(recipient, "recipient"))
        # In this order, each once.
        self.recipients = tuple(dict.fromkeys(checked))
        if len(self.recipients) > MOST_RECIPIENTS:
            raise UserError(f"{len(self.recipients)} recipients; a file is for at most {MOST_RECIPIENTS}")
        self.password = password
        self.identity = identity
        self.salt = new_salt() if password is None else password.salt
        self.kdf = KdfParameters() if password is None else password.kdf

    def of_run(self, salt: bytes, kdf: KdfParameters) -> Openers:
        """The same for what a run makes that has salt and cost already."""
        password = None if self.password is None else self.password.of_run(salt, kdf)
        other = Openers(password, self.recipients, self.identity)
        other.salt = salt
        other.kdf = kdf
        return other

    @property
    def own_keys(self) -> bool:
        """Whether each file gets a random key of its own."""
        return bool(self.recipients)

    def secret(self) -> Secret:
        """The key that the password gives, which is the same in the whole run.

        Raises:
            UserError: If there is no password.
        """
        if self.password is None:
            raise UserError("no password; give one")
        return self.password.secret()

    def new_key(self) -> tuple[Secret, Lock]:
        """The key of a new file, and what the file says of it."""
        if not self.recipients:
            return self.secret(), Lock(self.salt, self.kdf)
        master = os.urandom(MASTER_BYTES)
        wrapped = WrappedKey(wrap(master, self.recipients))
        if self.password is None:
            return Secret(master), Lock(wrapped=wrapped)
        nonce = os.urandom(NONCE)
        by_password = nonce + _cipher(self.secret()).encrypt(nonce, master, CONTEXT)
        return Secret(master), Lock(self.salt, self.kdf, WrappedKey(wrapped.recipients, by_password))

    def open(self, lock: Lock, name: str) -> Secret:
        """The key of a file. Where its password gives the key itself, a wrong one is noticed by what does not open.

        Args:
            lock: What the file says of its key.
            name: What to call the file in messages.

        Raises:
            WrongPasswordError: If the password does not open the sealed key.
            WrongIdentityError: If the identity does not.
            UserError: If the file opens in another way, or asks for more memory than the password allows.
        """
        if lock.wrapped is None:
            return self._derived(lock, name)
        if self.identity is not None:
            return _secret(self.identity.unwrap(lock.wrapped.recipients, name), name)
        if not lock.wrapped.password:
            raise UserError(
                f"{name} is for {lock.wrapped.count} recipient(s), so no password opens it; give --identity FILE"
            )
        sealed = lock.wrapped.password
        try:
            master = _cipher(self._derived(lock, name)).decrypt(sealed[:NONCE], sealed[NONCE:], CONTEXT)
        except InvalidTag:
            raise WrongPasswordError(
                f"{name}: wrong password, or its recovery data were tampered with; check the password"
            ) from None
        return _secret(master, name)

    def _derived(self, lock: Lock, name: str) -> Secret:
        """The key that the password gives for a file."""
        if lock.salt is None or lock.kdf is None:
            raise UserError(f"{name} was made with a secret of its own, not with a password; recover it in Python")
        if self.password is None:
            raise UserError(f"{name} is for a password alone, so no identity opens it; leave --identity away")
        return self.password.secret(lock.salt, lock.kdf)

    def __repr__(self) -> str:
        return "Openers(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Openers cannot be pickled or copied to another process")


def openers(given: Password | Openers) -> Openers:
    """A password as those who open: it alone does."""
    if isinstance(given, Openers):
        return given
    return Openers(given)


def check_deniable(lock: Lock, name: str) -> None:
    """Refuse a deniable recovery of a file whose key is sealed.

    Raises:
        UserError: If it is.
    """
    if lock.wrapped is not None:
        raise UserError(
            f"{name} holds a sealed key, which tells whether a password or an identity is right; --deniable is for "
            "files of a password alone, so leave it away"
        )


def _secret(master: bytes, name: str) -> Secret:
    if len(master) != MASTER_BYTES:
        raise UserError(f"{name}: its sealed key opens but is none; was it forged?")
    return Secret(master)


def _cipher(secret: Secret) -> AESGCM:
    return AESGCM(secret.stream(LABEL, 32))
