"""What travels inside an anonymized picture: all that recovery needs, apart from the weights and the password.

Nothing here is secret. Reading is strict, because the file comes from outside.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from faceanon.errors import UserError
from faceanon.key import KdfParameters
from faceanon.lock import AGE_BEGINNING, Lock, WrappedKey

MANIFEST_VERSION = 5
MAX_FACES = 10_000
MAX_CODE_BYTES = 65_536  # of one face
MAX_CODES_BYTES = 2_800_000  # of all together: with them a manifest still fits where sidecars are read
MAX_SIGNATURE_BYTES = 4096
MAX_RECIPIENTS_BYTES = 16_384  # of the key, sealed for a hundred of them
PASSWORD_BYTES = 60  # of the key, sealed for a password
MOST_RECORDS = 8  # inside each other
MAX_SIDE = 1 << 17
_HEX = re.compile(r"[0-9a-f]*")


@dataclass(frozen=True)
class CropGeometry:
    """Where an aligned face lies in its photo: a square, possibly turned.

    Pixel i covers [i, i + 1), so the middle of the top left pixel is (0.5, 0.5). The face's right is `axis`, its down
    is `axis` turned by 90 degrees, `(-axis_y, axis_x)`.

    Args:
        center_x: Middle of the square, in pixels of the photo.
        center_y: Middle of the square, in pixels of the photo.
        axis_x: From the middle to the middle of the face's right edge, in pixels.
        axis_y: From the middle to the middle of the face's right edge, in pixels.

    Examples:
        >>> from faceanon.manifest import CropGeometry
        >>> upright = CropGeometry(center_x=100.0, center_y=80.0, axis_x=32.0, axis_y=0.0)
        >>> upright.side, upright.reach
        (64.0, 32.0)
    """

    center_x: float
    center_y: float
    axis_x: float
    axis_y: float

    @property
    def side(self) -> float:
        """Side of the square in pixels of the photo."""
        return 2 * math.hypot(self.axis_x, self.axis_y)

    @property
    def reach(self) -> float:
        """Half the side of the upright box around the square, in pixels."""
        return abs(self.axis_x) + abs(self.axis_y)

    def to_dict(self) -> dict[str, float]:
        """Middle and axis of the square by name, as plain numbers for JSON."""
        return {"center_x": self.center_x, "center_y": self.center_y, "axis_x": self.axis_x, "axis_y": self.axis_y}

    @classmethod
    def from_dict(cls, values: object) -> CropGeometry:
        """Read what `to_dict` wrote.

        Raises:
            UserError: If a number is missing, unknown, not finite or absurd.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping) or set(values) != names:
            raise UserError(f"manifest: a face must have exactly {', '.join(sorted(names))}")
        for name, value in values.items():
            if not _is_number(value) or not abs(value) <= MAX_SIDE:
                raise UserError(f"manifest: the face's {name} is not a sensible number: {value!r:.40}")
        numbers = {}
        for name, value in values.items():
            numbers[name] = float(value)
        geometry = cls(**numbers)
        if geometry.side < 1:
            raise UserError(f"manifest: a face of side {geometry.side:.3g} px is too small to exist")
        return geometry


@dataclass(frozen=True)
class HiddenFace:
    """A face that was hidden for good, by a classical method.

    Args:
        box: x1, y1, x2, y2 in pixels of the photo.
        by: `blur`, `pixelate` or `mask`.

    Examples:
        >>> from faceanon.manifest import HiddenFace
        >>> HiddenFace((10.0, 20.0, 25.0, 38.0), by="blur").to_dict()
        {'box': [10.0, 20.0, 25.0, 38.0], 'by': 'blur'}
    """

    box: tuple[float, float, float, float]
    by: str

    def to_dict(self) -> dict[str, object]:
        """Box, rounded to a tenth of a pixel, and treatment by name, as plain values for JSON."""
        return {"box": [round(edge, 1) for edge in self.box], "by": self.by}

    @classmethod
    def from_dict(cls, values: object) -> HiddenFace:
        """Read what `to_dict` wrote.

        Raises:
            UserError: If an entry is missing or unknown, or no sensible number.
        """
        if not isinstance(values, Mapping) or set(values) != {"box", "by"}:
            raise UserError("manifest: a hidden face must have exactly box, by")
        box = values["box"]
        if not isinstance(box, list) or len(box) != 4 or not all(_is_number(e) and abs(e) <= MAX_SIDE for e in box):
            raise UserError(f"manifest: the box of a hidden face is not four sensible numbers: {box!r:.40}")
        return cls((float(box[0]), float(box[1]), float(box[2]), float(box[3])), _text(values, "by"))


@dataclass(frozen=True)
class Manifest:
    """The public record of one anonymized photo.

    Args:
        method: Import path of the backbone class.
        model: Name of the model, for people to read.
        weights: SHA-256 of the model's weights, 64 hex digits; recovery needs the same.
        image_size: Side of the model's faces in pixels.
        width: Width of the photo in pixels.
        height: Height of the photo in pixels.
        layers: Faces in the order they were pasted. Squares of one layer do not touch; recovery takes the layers
            backwards, so that overlapping faces come back.
        salt: Salt of the password, or None where none opens it: it is for recipients alone, or the caller keeps the
            secret himself.
        kdf: Cost of the key derivation, or None with `salt`.
        hidden: Faces that were hidden for good, so that nothing brings them back.
        encoding: How the picture was written, for people to read, such as `PNG` or `JPEG 95`.
        codes: Sealed codes of the faces, layer after layer, for a method that needs them to recover; else empty. They
            are encrypted, and tell nothing to who lacks the password.
        signature: What the anonymized picture looks like, coarsely (`faceanon.photo.signature`); empty: unknown.
        earlier: The record of the picture before it was anonymized once more, or None.
        wrapped: The key of the file, sealed for those who may open it; None where the password gives the key itself.

    Examples:
        >>> from faceanon.manifest import CropGeometry, Manifest
        >>> face = CropGeometry(100.0, 80.0, 32.0, 0.0)
        >>> manifest = Manifest("package.Method", "model", "ab" * 32, 64, 640, 480, layers=((face,),))
        >>> manifest.faces
        1
        >>> Manifest.from_json(manifest.to_json()) == manifest
        True
        >>> Manifest.from_json("{}")
        Traceback (most recent call last):
        faceanon.errors.UserError: manifest: version None is unknown here; this faceanon reads 5
    """

    method: str
    model: str
    weights: str
    image_size: int
    width: int
    height: int
    layers: tuple[tuple[CropGeometry, ...], ...]
    salt: bytes | None = None
    kdf: KdfParameters | None = None
    hidden: tuple[HiddenFace, ...] = ()
    encoding: str = "PNG"
    codes: tuple[bytes, ...] = ()
    signature: bytes = b""
    earlier: Manifest | None = None
    wrapped: WrappedKey | None = None

    @property
    def lock(self) -> Lock:
        """For whom the file opens."""
        return Lock(self.salt, self.kdf, self.wrapped)

    def locked(self, lock: Lock) -> Manifest:
        """The same record for those whom `lock` says."""
        return replace(self, salt=lock.salt, kdf=lock.kdf, wrapped=lock.wrapped)

    @property
    def faces(self) -> int:
        """Number of faces that can be brought back."""
        return sum(map(len, self.layers))

    @property
    def carried(self) -> int:
        """Bytes that recovery needs beside the picture and the password, of all faces and records together."""
        own = sum(map(len, self.codes))
        if self.earlier is None:
            return own
        return own + self.earlier.carried

    @property
    def records(self) -> int:
        """How often the picture was anonymized: this record and those inside it."""
        if self.earlier is None:
            return 1
        return 1 + self.earlier.records

    def to_json(self) -> str:
        """The manifest as one line of JSON, which `from_json` reads."""
        return json.dumps(self._to_dict(), separators=(",", ":"))

    def _to_dict(self) -> dict[str, object]:
        layers = []
        for layer in self.layers:
            layers.append([geometry.to_dict() for geometry in layer])
        hidden = []
        for face in self.hidden:
            hidden.append(face.to_dict())
        codes = []
        for code in self.codes:
            codes.append(base64.b64encode(code).decode())
        values: dict[str, object] = {
            "version": MANIFEST_VERSION,
            "method": self.method,
            "model": self.model,
            "weights": self.weights,
            "image_size": self.image_size,
            "width": self.width,
            "height": self.height,
            "layers": layers,
            "salt": None,
            "kdf": None,
            "hidden": hidden,
            "encoding": self.encoding,
            "codes": codes,
            "signature": base64.b64encode(self.signature).decode(),
            "earlier": None,
            "wrapped": None,
        }
        if self.salt is not None:
            values["salt"] = self.salt.hex()
        if self.kdf is not None:
            values["kdf"] = self.kdf.to_dict()
        if self.earlier is not None:
            values["earlier"] = self.earlier._to_dict()
        if self.wrapped is not None:
            values["wrapped"] = {
                "recipients": base64.b64encode(self.wrapped.recipients).decode(),
                "password": base64.b64encode(self.wrapped.password).decode(),
            }
        return values

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `to_json` wrote.

        Raises:
            UserError: If the text is no manifest of a known version, or a value is missing, unknown or out of range.
        """
        try:
            values: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError("manifest: not valid JSON; the picture's metadata is damaged") from error
        return cls._from_values(values, MOST_RECORDS)

    @classmethod
    def _from_values(cls, given: object, most: int) -> Manifest:
        """The manifest that JSON's values say, with at most `most` records in all."""
        if most == 0:
            raise UserError(f"manifest: more than {MOST_RECORDS} records inside each other")
        values = _entries(given)
        hidden = _hidden(values["hidden"])
        layers = _layers(values["layers"], len(hidden))
        lock = _lock(values)
        count = 0
        for layer in layers:
            count += len(layer)
        return cls(
            method=_text(values, "method"),
            model=_text(values, "model"),
            weights=_hex(values["weights"], "weights", 32).hex(),
            image_size=_integer(values, "image_size", 8, 4096),
            width=_integer(values, "width", 1, MAX_SIDE),
            height=_integer(values, "height", 1, MAX_SIDE),
            layers=layers,
            salt=lock.salt,
            kdf=lock.kdf,
            wrapped=lock.wrapped,
            hidden=hidden,
            encoding=_text(values, "encoding"),
            codes=_codes(values["codes"], count),
            signature=_signature(values["signature"]),
            earlier=None if values["earlier"] is None else cls._from_values(values["earlier"], most - 1),
        )


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # A whole number may be too large to become a float.
    return isinstance(value, int) or math.isfinite(value)


def _entries(values: object) -> dict[str, object]:
    if not isinstance(values, dict):
        raise UserError("manifest: expected an object; the picture's metadata is damaged")
    version = values.get("version")
    # `True` is 1 to Python, and 4.0 is 4: only the number itself is one of ours.
    if type(version) is not int or version != MANIFEST_VERSION:
        raise UserError(f"manifest: version {version!r:.40} is unknown here; this faceanon reads {MANIFEST_VERSION}")
    expected = {field.name for field in fields(Manifest)} | {"version"}
    if odd := sorted(expected.symmetric_difference(values)):
        raise UserError(f"manifest: missing or unknown entries: {', '.join(odd[:5])!r:.120}")
    return values


def _text(values: Mapping[str, object], name: str) -> str:
    value = values[name]
    # Commands print it, and a terminal would obey control characters.
    if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        raise UserError(f"manifest: {name} must be a short text, not {value!r:.40}")
    return value


def _integer(values: Mapping[str, object], name: str, low: int, high: int) -> int:
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"manifest: {name} must be a whole number from {low} to {high}, not {value!r:.40}")
    return value


def _hex(value: object, name: str, count: int) -> bytes:
    # The pattern too: `fromhex` alone would also take spaces and capital letters.
    if not isinstance(value, str) or len(value) != 2 * count or not _HEX.fullmatch(value):
        raise UserError(f"manifest: {name} must be {2 * count} hex digits, not {value!r:.40}")
    return bytes.fromhex(value)


def _lock(values: Mapping[str, object]) -> Lock:
    salt = values["salt"]
    kdf = values["kdf"]
    if (salt is None) != (kdf is None):
        raise UserError("manifest: salt and kdf must be given together")
    wrapped = _wrapped(values["wrapped"])
    # A salt without a password to it would say that there is one.
    if wrapped is not None and bool(wrapped.password) != (salt is not None):
        raise UserError("manifest: a key that is sealed for a password must come with its salt, and no other")
    return Lock(
        None if salt is None else _hex(salt, "salt", 16),
        None if kdf is None else KdfParameters.from_dict(kdf),
        wrapped,
    )


def _wrapped(value: object) -> WrappedKey | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"password", "recipients"}:
        raise UserError("manifest: a sealed key must have exactly password, recipients")
    wrapped = WrappedKey(
        _base64(value["recipients"], "the key sealed for recipients", 0, MAX_RECIPIENTS_BYTES),
        _base64(value["password"], "the key sealed for a password", 0, PASSWORD_BYTES),
    )
    for_recipients = wrapped.recipients.startswith(AGE_BEGINNING) and wrapped.count > 0
    if not for_recipients or len(wrapped.password) not in (0, PASSWORD_BYTES):
        raise UserError("manifest: the sealed key is damaged; give the file as it was written")
    return wrapped


def _layers(value: object, hidden: int) -> tuple[tuple[CropGeometry, ...], ...]:
    if not isinstance(value, list) or not all(isinstance(layer, list) and layer for layer in value):
        raise UserError("manifest: layers must be lists of faces")
    count = 0
    for layer in value:
        count += len(layer)
    # Counted first, so that no more squares are built than a photo may have.
    if not 1 <= count + hidden <= MAX_FACES:
        raise UserError(f"manifest: a photo must have between 1 and {MAX_FACES} faces")
    layers = []
    for layer in value:
        layers.append(tuple(map(CropGeometry.from_dict, layer)))
    return tuple(layers)


def _hidden(value: object) -> tuple[HiddenFace, ...]:
    if not isinstance(value, list):
        raise UserError("manifest: hidden must be a list of faces")
    return tuple(map(HiddenFace.from_dict, value))


def _codes(value: object, faces: int) -> tuple[bytes, ...]:
    if not isinstance(value, list) or len(value) not in (0, faces):
        raise UserError("manifest: codes must be a list with one text for each face, or an empty one")
    codes = []
    for text in value:
        codes.append(_base64(text, "the code of a face", 1, MAX_CODE_BYTES))
    size = sum(map(len, codes))
    if size > MAX_CODES_BYTES:
        raise UserError(f"manifest: codes of more than {MAX_CODES_BYTES} bytes")
    return tuple(codes)


def _signature(value: object) -> bytes:
    return _base64(value, "the signature", 0, MAX_SIGNATURE_BYTES)


def _base64(text: object, name: str, least: int, most: int) -> bytes:
    # base64 writes three bytes as four characters; a longer text is refused before it is decoded.
    longest = 4 * ((most + 2) // 3)
    if not isinstance(text, str) or not least <= len(text) <= longest:
        raise UserError(f"manifest: {name} must be a text of at least {least} and at most {longest} characters")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"manifest: {name} is not base64; the picture's metadata is damaged") from error
