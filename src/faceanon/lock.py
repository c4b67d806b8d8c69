"""What a file says of its key. Nothing of it is secret.

Either the password under `salt` and `kdf` gives the key itself, or the key is random and lies in the file, sealed: once
for all recipients together, and once for a password beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from faceanon.key import KdfParameters

AGE_BEGINNING = b"age-encryption.org/v1\n"
_STANZA = b"-> X25519 "


@dataclass(frozen=True)
class WrappedKey:
    """A random key, sealed for those who may open the file.

    Args:
        recipients: A file of age (age-encryption.org) with an X25519 stanza for each recipient. Who they are does not
            show.
        password: Nonce, and AES-256-GCM of the key under the password of the lock; empty: no password opens it.
    """

    recipients: bytes
    password: bytes = b""

    @property
    def count(self) -> int:
        """Number of recipients."""
        header = self.recipients.partition(b"\n---")[0]
        count = 0
        for line in header.split(b"\n"):
            # Age adds a stanza for nobody, which only shows that readers pass over what they do not know.
            if line.startswith(_STANZA):
                count += 1
        return count


@dataclass(frozen=True)
class Lock:
    """For whom a file opens.

    Args:
        salt: Salt of the password, or None where no password opens the file.
        kdf: Cost of the key derivation, or None with `salt`.
        wrapped: The sealed key, or None where the password gives the key itself.
    """

    salt: bytes | None = None
    kdf: KdfParameters | None = None
    wrapped: WrappedKey | None = None
