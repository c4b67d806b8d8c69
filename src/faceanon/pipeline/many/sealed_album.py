"""The album of a run in its journal: encrypted under the password, since it says what people look like."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.landmarks.album import Album
from faceanon.sealed.envelope import binding_of, seal, unseal

PIECE = 60_000  # bytes that are sealed at once: an envelope holds no more


def sealed_album(album: Album, secret: Secret, weights: str) -> list[str]:
    """An album as text that tells nothing without the password.

    Args:
        album: Of the run.
        secret: Of the run.
        weights: SHA-256 of the model's weights, 64 hex digits; the album opens with no other model.

    Examples:
        >>> from faceanon.key import Secret
        >>> from faceanon.landmarks.album import Album
        >>> from faceanon.pipeline.many.sealed_album import opened_album, sealed_album
        >>> pieces = sealed_album(Album.empty(), Secret.random(0), "ab" * 32)
        >>> len(opened_album(pieces, Secret.random(0), "ab" * 32, "the journal"))
        0
    """
    data = album.to_bytes()
    parts = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
    pieces = []
    for number, part in enumerate(parts):
        sealed = seal(part, secret, _binding(weights, number, len(parts)))
        pieces.append(base64.b64encode(sealed).decode())
    return pieces


def opened_album(pieces: Sequence[str], secret: Secret, weights: str, name: str) -> Album:
    """Read what `sealed_album` gave.

    Args:
        pieces: Of any origin.
        secret: Of the run.
        weights: As at `sealed_album`.
        name: Of the file, for errors.

    Raises:
        WrongPasswordError: If it does not open.
        UserError: If it is damaged.
    """
    data = b""
    for number, piece in enumerate(pieces):
        try:
            sealed = base64.b64decode(piece, validate=True)
        except ValueError as error:
            raise UserError(f"{name} is damaged; give --overwrite to start again") from error
        data += unseal(sealed, secret, _binding(weights, number, len(pieces)), name)
    return Album.from_bytes(data)


def _binding(weights: str, number: int, count: int) -> bytes:
    # A hash of its own: no sealed code of a face is bound to the same.
    return binding_of(hashlib.sha256(b"album" + weights.encode()).hexdigest(), [number, count])
