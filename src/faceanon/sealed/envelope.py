"""A code of a face, encrypted and bound to its model and its place in the picture (AES-256-GCM).

    version, nonce, AES-GCM(length, code, zeros up to one of a few sizes)

The key is a stream of its own from the file's `Secret`, the nonce is fresh for each face. Nothing in a sealed code
tells whether a password is right but opening it, which costs a guess one Argon2id.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from faceanon.errors import UserError
from faceanon.key import Secret

VERSION = b"\x01"
NONCE = 12
TAG = 16
LENGTH = 4  # bytes that count the code's
OVERHEAD = len(VERSION) + NONCE + LENGTH + TAG
LABEL = "faceanon/sealed/1/key"

# A sealed code has one of these lengths, so that its own tells little of the face.
SIZES = (256, 512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 24576, 32768, 65536)


class WrongPasswordError(UserError):
    """A sealed code does not open: the password is another, or somebody changed the file."""


def sealed_size(code: int) -> int:
    """Bytes of a sealed code that holds so many bytes.

    Raises:
        ValueError: If there is no such size.

    Examples:
        >>> from faceanon.sealed.envelope import sealed_size
        >>> sealed_size(700), sealed_size(900), sealed_size(1000)
        (768, 1024, 1280)
    """
    for size in SIZES:
        if code + OVERHEAD <= size:
            return size
    raise ValueError(f"a code of {code} bytes is too long to be sealed; at most {SIZES[-1] - OVERHEAD}")


def binding_of(weights: str, place: Sequence[float]) -> bytes:
    """What ties a code to one place, 32 bytes.

    Args:
        weights: SHA-256 of the model's weights, 64 hex digits.
        place: Whatever says which face of which picture it is, such as its square and the picture's size.

    Examples:
        >>> from faceanon.sealed.envelope import binding_of
        >>> here = binding_of("ab" * 32, place=[100, 80, 32, 0])
        >>> here == binding_of("ab" * 32, place=[100.0, 80.0, 32.0, 0.0])
        True
        >>> here == binding_of("ab" * 32, place=[101, 80, 32, 0])
        False
    """
    # Whole numbers and floats of one value are one place: JSON keeps no difference after a round trip.
    values = list(map(float, place))
    return hashlib.sha256(json.dumps([weights, values]).encode()).digest()


def seal(code: bytes, secret: Secret, binding: bytes) -> bytes:
    """Encrypt a code.

    Args:
        code: Of any length up to 65,503 bytes.
        secret: Of the file's salt.
        binding: Of `binding_of`; the code opens with no other.

    Raises:
        ValueError: If the code is too long.

    Examples:
        >>> from faceanon.key import Secret
        >>> from faceanon.sealed.envelope import binding_of, seal, unseal
        >>> binding = binding_of("ab" * 32, place=[100, 80, 32, 0])
        >>> sealed = seal(b"latents of a face", Secret.random(0), binding)
        >>> unseal(sealed, Secret.random(0), binding, "photo.png")
        b'latents of a face'
        >>> unseal(sealed, Secret.random(1), binding, "photo.png")
        Traceback (most recent call last):
        faceanon.sealed.envelope.WrongPasswordError: ...
    """
    plain = len(code).to_bytes(LENGTH, "big") + code
    # OVERHEAD counts the bytes of the length, which are in `plain` already.
    padded = plain + bytes(sealed_size(len(code)) - OVERHEAD + LENGTH - len(plain))
    nonce = os.urandom(NONCE)
    # The binding is authenticated but not stored: elsewhere the code does not open.
    return VERSION + nonce + _cipher(secret).encrypt(nonce, padded, VERSION + binding)


def check_sealed(sealed: bytes, name: str) -> None:
    """Refuse what cannot be a sealed code, without a password.

    Args:
        sealed: Of any origin.
        name: What to call the picture in messages.

    Raises:
        UserError: If its version is unknown, or its length is none that `seal` writes.

    Examples:
        >>> from faceanon.key import Secret
        >>> from faceanon.sealed.envelope import check_sealed, seal
        >>> sealed = seal(b"latents of a face", Secret.random(0), b"binding")
        >>> check_sealed(sealed, "photo.png")  # needs no password
        >>> check_sealed(sealed[:-1], "photo.png")
        Traceback (most recent call last):
        faceanon.errors.UserError: photo.png: the sealed code of a face is damaged or cut short; ...
    """
    if sealed[:1] != VERSION:
        raise UserError(
            f"{name}: the sealed code of a face is of a version that this faceanon does not read; update it"
        )
    if len(sealed) not in SIZES:
        raise UserError(f"{name}: the sealed code of a face is damaged or cut short; give the file as it was written")


def unseal(sealed: bytes, secret: Secret, binding: bytes, name: str) -> bytes:
    """Decrypt what `seal` gave.

    Args:
        sealed: Of any origin.
        secret: Of the file's salt.
        binding: As at `seal`.
        name: What to call the picture in messages.

    Raises:
        WrongPasswordError: If it does not open.
        UserError: If it is damaged.
    """
    check_sealed(sealed, name)
    nonce = sealed[len(VERSION) : len(VERSION) + NONCE]
    try:
        plain = _cipher(secret).decrypt(nonce, sealed[len(VERSION) + NONCE :], VERSION + binding)
    # AES-GCM cannot tell a wrong key from changed bytes, so the message names both.
    except InvalidTag:
        raise WrongPasswordError(
            f"{name}: wrong password, or its recovery data were tampered with; check the password"
        ) from None
    length = int.from_bytes(plain[:LENGTH], "big")
    code = plain[LENGTH : LENGTH + length]
    # The tag was right, so whoever wrote this had the key, but `seal` pads with zeros and never writes such a length.
    if length > len(plain) - LENGTH or any(plain[LENGTH + length :]):
        raise UserError(f"{name}: the sealed code of a face opens but is malformed; was it forged?")
    return code


def _cipher(secret: Secret) -> AESGCM:
    return AESGCM(secret.stream(LABEL, 32))
