"""The original faces, encrypted, so that recovery can be exact. Off unless it is asked for.

    original pixels of every changed window --PNG each--> plain --AES-256-GCM--> vault

The key is a stream of its own from the file's `Secret`, under a random salt of the vault. A guess costs one Argon2id as
everywhere, but a vault tells whether the guess was right. In front of the ciphertext stand a checksum, the hash of the
manifest that the vault belongs to, that salt, a check of the key and the nonce. All but the checksum is authenticated;
that tells damage from forgery. So damage, another picture's vault, a wrong password and forgery can each be named.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray
from PIL import Image

from faceanon.errors import UserError
from faceanon.key import Secret
from faceanon.manifest import Manifest
from faceanon.photo.align import Box, crop_window
from faceanon.photo.decode import MAX_PIXELS
from faceanon.photo.policy import SMALL_FACES, Face, hidden_window

MAGIC = b"faceanon vault 1\n"
SUM = 8
BINDING = 32
SALT = 16
CHECK = 32
NONCE = 12
TAG = 16
HEAD = len(MAGIC) + SUM + BINDING + SALT + CHECK + NONCE
MOST_PIXELS = 4 * MAX_PIXELS  # of all regions: who knows the password could else seal what exhausts the machine
PAD = 4096  # the length of the ciphertext tells the compressed size of the faces no closer than this


@dataclass(frozen=True)
class VaultOriginals:
    """What a vault holds.

    Args:
        regions: Box (left, top, right, bottom) in the photo, and its pixels `(h, w, 3)` uint8.
        sha256: Of all pixels of the original photo, 64 hex digits.
    """

    regions: tuple[tuple[Box, NDArray[np.uint8]], ...]
    sha256: str

    def restore(self, pixels: NDArray[np.uint8]) -> bool:
        """Put the originals into `pixels` `(H, W, 3)` uint8, in place; whether the whole photo is the original now."""
        for (left, top, right, bottom), original in self.regions:
            pixels[top:bottom, left:right] = original
        return _digest(pixels) == self.sha256


def touched(faces: Sequence[Face], width: int, height: int) -> list[Box]:
    """Windows of a photo of this size, in pixels, outside which anonymizing these faces changes nothing."""
    boxes = []
    for face in faces:
        if face.treatment == "model" and face.geometry is not None:
            boxes.append(crop_window(face.geometry, width, height))
    for face in faces:
        if face.treatment in SMALL_FACES and (window := hidden_window(face, width, height)) is not None:
            boxes.append(window)
    return boxes


def seal(original: NDArray[np.uint8], boxes: Sequence[Box], secret: Secret, manifest: Manifest) -> bytes:
    """Encrypt parts of a photo.

    Args:
        original: RGB `(H, W, 3)` uint8.
        boxes: Which parts.
        secret: The key of the file.
        manifest: As the file will carry it; the vault opens with no other.

    Raises:
        UserError: If the parts are together larger than `unseal` takes.

    Examples:
        >>> import numpy as np
        >>> from faceanon.key import Secret
        >>> from faceanon.manifest import CropGeometry, Manifest
        >>> from faceanon.photo.vault import seal, unseal
        >>> face = CropGeometry(20, 20, 9, 0)
        >>> manifest = Manifest("package.Method", "model", "ab" * 32, 64, 60, 40, layers=((face,),))
        >>> photo = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
        >>> vault = seal(photo, [(10, 10, 30, 30)], Secret.random(0), manifest)
        >>> hidden = photo.copy()
        >>> hidden[10:30, 10:30] = 0
        >>> unseal(vault, Secret.random(0), manifest, "photo.png").restore(hidden)  # every pixel is back
        True
    """
    if sum(map(_area, boxes)) > MOST_PIXELS:
        raise UserError("the faces overlap so much that a vault cannot hold them all; leave --vault away")
    return _encrypted(_pack(original, boxes), secret, manifest)


def reseal(vault: bytes, old: Secret, new: Secret, manifest: Manifest, name: str) -> bytes:
    """The vault of the same picture under another key.

    Args:
        vault: Of any origin.
        old: The key that it opens with.
        new: The key that it is to open with.
        manifest: Of the picture; for whom it opens is not bound.
        name: What to call the picture in messages.

    Raises:
        UserError: As `unseal`.
    """
    return _encrypted(_decrypted(vault, old, manifest, name), new, manifest)


def belongs(vault: bytes, manifest: Manifest) -> bool:
    """Whether a vault is of the picture that a manifest describes; whether it opens is another matter."""
    start = len(MAGIC) + SUM
    return vault[start : start + BINDING] == _binding(manifest)


def unseal(vault: bytes, secret: Secret, manifest: Manifest, name: str) -> VaultOriginals:
    """Decrypt what `seal` gave.

    Args:
        vault: Of any origin.
        secret: The key of the file.
        manifest: Of the picture.
        name: What to call the picture in messages.

    Raises:
        UserError: If the vault is damaged, another picture's or forged, or the password is wrong.
    """
    plain = _decrypted(vault, secret, manifest, name)
    try:
        return _unpack(plain, manifest.width, manifest.height)
    except MemoryError:
        raise
    except Exception as error:  # on what was made to harm Pillow raises nearly every class there is
        raise UserError(f"{name}: its vault opens but holds no faces that can be read; was it forged?") from error


def _encrypted(plain: bytes, secret: Secret, manifest: Manifest) -> bytes:
    salt = os.urandom(SALT)
    nonce = os.urandom(NONCE)
    rest = _binding(manifest) + salt + _stream(secret, "check", salt, CHECK) + nonce
    body = AESGCM(_stream(secret, "key", salt, 32)).encrypt(nonce, plain, MAGIC + rest)
    return MAGIC + hashlib.sha256(rest + body).digest()[:SUM] + rest + body


def _decrypted(vault: bytes, secret: Secret, manifest: Manifest, name: str) -> bytes:
    rest = vault[len(MAGIC) + SUM : HEAD]
    body = vault[HEAD:]
    # In this order every fault has a line of its own: damage, another picture's vault, a wrong password, forgery.
    if not vault.startswith(MAGIC):
        raise UserError(f"{name}: its vault is damaged, or of a version that this faceanon does not read")
    if len(body) < TAG or hashlib.sha256(rest + body).digest()[:SUM] != vault[len(MAGIC) :][:SUM]:
        raise UserError(f"{name}: its vault is damaged or cut short; without --exact the faces can still be recovered")
    binding, salt, check, nonce = _split(rest, BINDING, SALT, CHECK, NONCE)
    if binding != _binding(manifest):
        raise UserError(f"{name}: the vault belongs to another picture; put its own beside it, or leave --exact away")
    # Takes as long whatever part of the check is right.
    if not hmac.compare_digest(check, _stream(secret, "check", salt, CHECK)):
        raise UserError(f"{name}: wrong password; its vault does not open with it")
    try:
        return AESGCM(_stream(secret, "key", salt, 32)).decrypt(nonce, body, MAGIC + rest)
    except InvalidTag:
        # The key was checked above, so it is not the password.
        raise UserError(f"{name}: its vault has been tampered with; do not trust the file") from None


def _split(data: bytes, *sizes: int) -> list[bytes]:
    ends = np.cumsum(sizes).tolist()
    parts = []
    for size, end in zip(sizes, ends, strict=True):
        parts.append(data[end - size : end])
    return parts


def _stream(secret: Secret, what: str, salt: bytes, count: int) -> bytes:
    return secret.stream(f"faceanon/vault/1/{what}/{salt.hex()}", count)


def _binding(manifest: Manifest) -> bytes:
    """Hash of what recovery goes by. The model's name is for people, and may change; so may who opens the file."""
    squares = []
    for layer in manifest.layers:
        squares.append([[g.center_x, g.center_y, g.axis_x, g.axis_y] for g in layer])
    fields = [manifest.method, manifest.weights, manifest.image_size, manifest.width, manifest.height]
    hidden = []
    for face in manifest.hidden:
        edges = []
        for edge in face.box:
            # As a float: JSON writes 8 and 8.0 differently, and the box of a manifest that was read holds floats.
            edges.append(float(edge))
        hidden.append([*edges, face.by])
    return hashlib.sha256(json.dumps([fields, squares, hidden, manifest.encoding]).encode()).digest()


def _digest(pixels: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()


def _pack(original: NDArray[np.uint8], boxes: Sequence[Box]) -> bytes:
    """Length of a JSON head, the head, a PNG for each box, zeros."""
    parts = []
    for left, top, right, bottom in boxes:
        parts.append(_png(original[top:bottom, left:right]))
    regions = []
    for box, part in zip(boxes, parts, strict=True):
        regions.append({"box": list(box), "bytes": len(part)})
    head = json.dumps({"sha256": _digest(original), "regions": regions}).encode()
    plain = b"".join([len(head).to_bytes(4, "big"), head, *parts])
    # The zeros need no length of their own: the head says where each PNG ends.
    return plain + bytes(-len(plain) % PAD)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def _unpack(plain: bytes, width: int, height: int) -> VaultOriginals:
    start = 4 + int.from_bytes(plain[:4], "big")
    head = json.loads(plain[4:start])
    regions = []
    area = 0
    for region in head["regions"]:
        left, top, right, bottom = map(int, region["box"])
        stop = start + int(region["bytes"])
        if not (0 <= left < right <= width and 0 <= top < bottom <= height and start < stop <= len(plain)):
            raise ValueError("a region outside the picture")
        area += _area((left, top, right, bottom))
        if area > MOST_PIXELS:
            raise ValueError("more regions than a picture has")
        regions.append(((left, top, right, bottom), _pixels(plain[start:stop], right - left, bottom - top)))
        start = stop
    return VaultOriginals(tuple(regions), str(head["sha256"]))


def _area(box: Box) -> int:
    left, top, right, bottom = box
    return (right - left) * (bottom - top)


def _pixels(png: bytes, width: int, height: int) -> NDArray[np.uint8]:
    # PNG alone: who knows the password could otherwise reach any of Pillow's decoders.
    with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
        if image.size != (width, height) or image.mode != "RGB":
            raise ValueError("a region of another size")
        return np.array(image, dtype=np.uint8)
