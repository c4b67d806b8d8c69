"""What it would take to guess a password: zxcvbn's number of guesses, at the price of the key derivation."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from zxcvbn import zxcvbn

from faceanon.key import KdfParameters, Secret, new_salt

Level = Literal["very weak", "weak", "fair", "strong"]
MACHINES = 1000  # an attacker with money
LAPTOP = 10.0  # guesses a second at the default cost
MOST_JUDGED = 72  # characters; zxcvbn's time grows fast with the length, and what follows only makes it better
HOUR = 3600.0
DAY = 86400.0
YEAR = 31_557_600.0
BOUNDS: tuple[tuple[float, Level], ...] = ((DAY, "very weak"), (YEAR, "weak"), (100 * YEAR, "fair"))
UNITS = (("second", 1.0), ("minute", 60.0), ("hour", HOUR), ("day", DAY), ("month", YEAR / 12), ("year", YEAR))


@dataclass(frozen=True)
class Strength:
    """How well a password holds.

    Args:
        guesses: How many guesses zxcvbn expects until it is found.
        seconds: How long `MACHINES` computers like this one take for them.
        level: In a word.
        advice: What zxcvbn says of it; none of it quotes the password.
    """

    guesses: float
    seconds: float
    level: Level
    advice: str

    def describe(self) -> str:
        """One line for people."""
        alone = duration(self.seconds * MACHINES)
        many = duration(self.seconds)
        when = f"{alone} for one computer like this, {many} for {MACHINES:,} of them"
        if alone == many:
            when = f"{many}, even for {MACHINES:,} computers like this"
        line = f"{self.level.capitalize()} password. Time to guess it: {when}."
        return f"{line} {self.advice}".rstrip()


def guess_rate(kdf: KdfParameters | None = None) -> float:
    """Passwords that a computer like this tries a second; the best of three measurements, and at least a laptop's.

    A busy machine would measure a price that an attacker does not pay.
    """
    salt = new_salt()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        Secret.from_password("measure", salt, kdf)
        times.append(time.perf_counter() - start)
    return max(1 / min(times), LAPTOP)


def judge_password(password: str, rate: float) -> Strength:
    """Estimate how long a password holds.

    Args:
        password: At least one character.
        rate: Guesses a second of one computer.
    """
    judged = zxcvbn(password[:MOST_JUDGED])
    guesses = float(judged["guesses"])
    seconds = guesses / (rate * MACHINES)
    level: Level = next((word for bound, word in BOUNDS if seconds < bound), "strong")
    words = [judged["feedback"]["warning"], *judged["feedback"]["suggestions"][:1]] if level != "strong" else []
    sentences = []
    for word in words:
        if word:
            sentences.append(f"{word.rstrip('.')}.")
    return Strength(guesses, seconds, level, " ".join(sentences))


def duration(seconds: float) -> str:
    """A span of time in one unit, such as `3 hours`; beyond a million years, `over a million years`."""
    if seconds < 1:
        return "less than a second"
    if seconds > 1e6 * YEAR:
        return "over a million years"
    name, unit = next((name, unit) for name, unit in reversed(UNITS) if seconds >= unit)
    count = round(seconds / unit)
    return f"{count:,} {name}{'s' if count != 1 else ''}"


def price(rate: float, kdf: KdfParameters | None = None) -> str:
    """What a guess costs, for people."""
    cost = kdf or KdfParameters()
    each = f"{cost.memory_kib // 1024} MiB of memory and {cost.iterations} passes over it"
    return f"A guess costs {each} (Argon2id): about {rate:.0f} guesses a second on a computer like this."
