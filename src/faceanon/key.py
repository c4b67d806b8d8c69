"""Password + salt -> memory-hard KDF -> named key streams. Nothing else knows how a key is made.

One `Secret` feeds every consumer through its own label, so the pattern that one part of a method draws tells nothing
about another's. Training draws its random keys from the same streams (`Secret.random`).
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import NoReturn

import numpy as np
from argon2.exceptions import HashingError
from argon2.low_level import Type, hash_secret_raw
from numpy.typing import NDArray

from faceanon.errors import UserError

SALT_BYTES = 16
MASTER_BYTES = 32
MAX_MEMORY_KIB = 1 << 20  # 1 GiB: a manifest comes from outside, and must not be able to exhaust the machine
MAX_ITERATIONS = 16
MAX_LANES = 16


@dataclass(frozen=True)
class KdfParameters:
    """Cost of turning a password into a key; public, stored beside every output.

    The defaults are RFC 9106's second recommended option (64 MiB), about a tenth of a second on a laptop.

    Args:
        name: The function; only `argon2id`.
        memory_kib: Memory in KiB, at least 8 a lane and at most 1 GiB.
        iterations: Passes over the memory, 1 to 16.
        lanes: Degree of parallelism, 1 to 16; part of the result, so never taken from the machine.
        version: Version of the function, 19 for Argon2 1.3.

    Raises:
        UserError: If a value is out of its bounds.

    Examples:
        >>> from faceanon.key import KdfParameters
        >>> KdfParameters().memory_kib
        65536
        >>> KdfParameters(iterations=0)
        Traceback (most recent call last):
        faceanon.errors.UserError: key derivation: iterations must be a whole number from 1 to 16, not 0
    """

    name: str = "argon2id"
    memory_kib: int = 65536
    iterations: int = 3
    lanes: int = 4
    version: int = 19

    def __post_init__(self) -> None:
        if self.name != "argon2id":
            raise UserError(f"key derivation: unknown function {self.name!r:.40}; this version knows argon2id")
        if self.version != 19:
            raise UserError(f"key derivation: unknown argon2id version {self.version!r:.40}; this version knows 19")
        # Lanes first: the least memory depends on them, as Argon2 needs 8 KiB for each.
        _check_bounds("lanes", self.lanes, 1, MAX_LANES)
        _check_bounds("iterations", self.iterations, 1, MAX_ITERATIONS)
        _check_bounds("memory_kib", self.memory_kib, 8 * self.lanes, MAX_MEMORY_KIB)

    def check_within(self, most: KdfParameters) -> None:
        """Refuse a derivation that needs more memory than `most`, or more of it in all passes together.

        Raises:
            UserError: If it does.
        """
        if self.memory_kib > most.memory_kib or self.work > most.work:
            raise UserError(
                f"key derivation: the file asks for {self.memory_kib / 1024:g} MiB in {self.iterations} passes, and at "
                f"most {most.memory_kib / 1024:g} MiB, {most.work / 1024:g} MiB in all passes together, is done here; "
                "if you trust the file, use `faceanon recover`"
            )

    @property
    def work(self) -> int:
        """KiB in all passes together: what the time goes by."""
        return self.memory_kib * self.iterations

    def to_dict(self) -> dict[str, str | int]:
        """The parameters by name, as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: object) -> KdfParameters:
        """Read what `to_dict` wrote.

        Raises:
            UserError: If a key is missing or unknown, or a value is out of its bounds.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping) or set(values) != names:
            raise UserError(f"key derivation: expected exactly the parameters {', '.join(sorted(names))}")
        return cls(**values)


def _check_bounds(name: str, value: object, low: int, high: int) -> None:
    # In Python a bool is an int: `true` in a JSON file would count as 1.
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"key derivation: {name} must be a whole number from {low} to {high}, not {value!r:.40}")


def new_salt() -> bytes:
    """16 fresh random bytes; public, one for each file or each run.

    Examples:
        >>> from faceanon.key import new_salt
        >>> len(new_salt()), new_salt() == new_salt()
        (16, False)
    """
    return os.urandom(SALT_BYTES)


class Secret:
    """What a password stands for: a master key that can only be expanded into named streams.

    It shows itself nowhere: `repr` hides it and pickling is refused.

    Args:
        master: 32 bytes of uniform key material.

    Examples:
        >>> from faceanon.key import Secret
        >>> secret = Secret.from_password("correct horse battery staple", salt=b"of this album")
        >>> secret
        Secret(hidden)
        >>> secret.normal("hair", (2, 3)).shape
        (2, 3)
    """

    __slots__ = ("_master",)

    def __init__(self, master: bytes) -> None:
        if len(master) != MASTER_BYTES:
            raise ValueError(f"the master key must have {MASTER_BYTES} bytes, not {len(master)}")
        self._master = bytes(master)

    @classmethod
    def from_password(cls, password: str, salt: bytes, parameters: KdfParameters | None = None) -> Secret:
        """Derive the key of `password`; the same on every machine and in every version.

        Args:
            password: Any text; NFKC-normalised, so that every keyboard's way to type it counts as one.
            salt: Public bytes, normally `new_salt()`; any length but zero.
            parameters: Cost of the derivation; `KdfParameters()` when None.

        Raises:
            UserError: If the password is empty or not valid Unicode, or there is not enough memory.
            ValueError: If the salt is empty.

        Examples:
            >>> from faceanon.key import KdfParameters, Secret
            >>> fast = KdfParameters(memory_kib=8, iterations=1, lanes=1)
            >>> mine = Secret.from_password("correct horse", b"salt", fast)
            >>> mine == Secret.from_password("correct horse", b"salt", fast)
            True
            >>> mine == Secret.from_password("correct horse", b"another salt", fast)
            False
        """
        if not salt:
            raise ValueError("the salt is empty; make one with new_salt()")
        cost = parameters or KdfParameters()
        encoded = _encode_password(password)
        try:
            master = hash_secret_raw(
                secret=encoded,
                salt=hashlib.sha3_256(b"faceanon/salt/1" + salt).digest(),  # Argon2 itself refuses less than 8 bytes
                time_cost=cost.iterations,
                memory_cost=cost.memory_kib,
                parallelism=cost.lanes,
                hash_len=MASTER_BYTES,
                type=Type.ID,
                version=cost.version,
            )
        # Without the cause, whose traceback would hold the password.
        except HashingError:
            raise UserError(
                f"the key derivation needs {cost.memory_kib // 1024} MB of memory, which this machine has not free"
            ) from None
        return cls(master)

    @classmethod
    def random(cls, seed: int) -> Secret:
        """A repeatable key for training and tests, from an integer of any size. It protects nothing.

        Examples:
            >>> from faceanon.key import Secret
            >>> Secret.random(7) == Secret.random(7), Secret.random(7) == Secret.random(8)
            (True, False)
        """
        return cls(hashlib.sha3_256(f"faceanon/seed/1/{seed}".encode()).digest())

    def stream(self, label: str, n: int) -> bytes:
        """The first `n` bytes of the stream `label`: independent per label, and a prefix of any longer read.

        Examples:
            >>> from faceanon.key import Secret
            >>> secret = Secret.random(0)
            >>> secret.stream("eyes", 8) == secret.stream("eyes", 32)[:8]
            True
            >>> secret.stream("eyes", 8) == secret.stream("mouth", 8)
            False
        """
        name = label.encode()
        head = b"faceanon/stream/1" + self._master + len(name).to_bytes(4, "big")
        # The key in front of the label is enough: SHAKE allows no length extension, so this needs no HMAC.
        return hashlib.shake_256(head + name).digest(n)

    def uniform(self, label: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Uniform float32 in [0, 1) of `shape`, from the stream `label`.

        Examples:
            >>> from faceanon.key import Secret
            >>> numbers = Secret.random(0).uniform("dots", (1000,))
            >>> bool(numbers.min() >= 0), bool(numbers.max() < 1)
            (True, True)
        """
        # Little-endian whatever the machine, so that a password gives one key everywhere.
        words = np.frombuffer(self.stream(label, 4 * math.prod(shape)), dtype="<u4")
        return ((words >> 8) * 2.0**-24).astype(np.float32).reshape(shape)  # 24 bits: exact in float32, never 1

    def normal(self, label: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Standard normal float32 of `shape`, from the stream `label` (Box-Muller in float64).

        Examples:
            >>> from faceanon.key import Secret
            >>> numbers = Secret.random(0).normal("key", (10000,))
            >>> bool(abs(numbers.mean()) < 0.05), bool(abs(numbers.std() - 1) < 0.05)
            (True, True)
        """
        count = math.prod(shape)
        # Box-Muller makes two numbers of two words; of an odd count the last one is left out.
        pairs = np.frombuffer(self.stream(label, 16 * ((count + 1) // 2)), dtype="<u8").reshape(-1, 2)
        unit = ((pairs >> 11) + 0.5) * 2.0**-53  # in (0, 1): the logarithm stays finite
        radius = np.sqrt(-2 * np.log(unit[:, 0]))
        angle = 2 * np.pi * unit[:, 1]
        both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return both.reshape(-1)[:count].astype(np.float32).reshape(shape)

    def after(self, number: int) -> Secret:
        """The secret that chooses a stranger when `number` of this one's are passed over; itself for 0.

        Examples:
            >>> from faceanon.key import Secret
            >>> secret = Secret.random(0)
            >>> secret.after(0) == secret, secret.after(1) == secret, secret.after(1) == secret.after(1)
            (True, False, True)
        """
        return Secret(self.stream(f"faceanon/stranger/{number}", MASTER_BYTES)) if number else self

    def __eq__(self, other: object) -> bool:
        # `compare_digest` takes as long wherever two keys differ.
        return isinstance(other, Secret) and hmac.compare_digest(self._master, other._master)

    def __hash__(self) -> int:
        # Equal secrets have equal streams, and the key itself does not go into the hash.
        return hash(self.stream("faceanon/hash", 8))

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied to another process; derive it there from the password")

    def __copy__(self) -> Secret:
        # `copy` would fall back to `__reduce__`, which refuses; a secret never changes, so one object is enough.
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Secret:
        return self


class Password:
    """A password for one run: derives each salt's secret once, so a folder that shares its salt costs one derivation.

    Args:
        text: The password itself; kept, since recovery meets its salts one by one.
        salt: Salt of what this run makes; a new one when None.
        kdf: Cost of what this run makes.
        most: The highest cost that is accepted from files from unknown hands; when None only the bounds of
            `KdfParameters` hold.

    Raises:
        UserError: If the password is empty or not valid Unicode.

    Examples:
        >>> from faceanon.key import KdfParameters, Password
        >>> password = Password("correct horse", kdf=KdfParameters(memory_kib=8, iterations=1, lanes=1))
        >>> password
        Password(hidden)
        >>> first = password.secret()  # for what this run makes
        >>> old = password.secret(b"salt of an old file", password.kdf)  # for what another run made
        >>> first == old, first is password.secret()
        (False, True)
    """

    def __init__(
        self,
        text: str,
        salt: bytes | None = None,
        kdf: KdfParameters | None = None,
        most: KdfParameters | None = None,
    ) -> None:
        # Only for its errors: a password that cannot be used is refused before there is any work.
        _encode_password(text)
        self._text = text
        self._most = most
        self.salt = salt or new_salt()
        self.kdf = kdf or KdfParameters()
        self._known: dict[tuple[bytes, KdfParameters], Secret] = {}

    def of_run(self, salt: bytes, kdf: KdfParameters) -> Password:
        """The same password for what a run makes that has salt and cost already."""
        other = Password(self._text, salt, kdf, self._most)
        # No salt costs a second derivation.
        other._known = self._known
        return other

    def secret(self, salt: bytes | None = None, kdf: KdfParameters | None = None) -> Secret:
        """The secret under `salt` and `kdf`, those of this run by default.

        Raises:
            UserError: If it costs more than this password's `most`.
        """
        salt_and_cost = salt or self.salt, kdf or self.kdf
        if self._most is not None:
            salt_and_cost[1].check_within(self._most)
        if salt_and_cost not in self._known:
            self._known[salt_and_cost] = Secret.from_password(self._text, *salt_and_cost)
        return self._known[salt_and_cost]

    def __repr__(self) -> str:
        return "Password(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Password cannot be pickled or copied to another process")


def _encode_password(password: str) -> bytes:
    try:
        # Systems type one letter in different code points; NFKC makes one of them.
        encoded = unicodedata.normalize("NFKC", password).encode()
    except UnicodeEncodeError:  # its own message would show the password
        raise UserError("the password is not valid Unicode text; save it as UTF-8") from None
    if not encoded:
        raise UserError("the password is empty; give at least one character")
    return encoded
