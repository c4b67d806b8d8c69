"""What guessing a password costs: measured time of the key derivation, stated prices."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faceanon.key import KdfParameters, Secret
from faceanon.studies.security.base import Finding, SecurityRow, Verdict

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

PRICE = 0.04  # of a core for an hour, in the currency of the reader's cloud
ADVANTAGE = 10.0  # how much cheaper a guess is for an attacker with hardware made for it; Argon2id's memory bounds it
ENOUGH = 1e6  # what an attack on one file should cost at least, in the same currency
# OWASP's least memory for Argon2id; and time that makes it felt.
LEAST_MEMORY_KIB = 19_456
LEAST_CORE_SECONDS = 0.02
CLASSES = {  # bits by class of password; each drawn at random from its class
    "4 digits": 4 * math.log2(10),
    "6 digits": 6 * math.log2(10),
    "one of the million most common passwords": math.log2(1e6),
    "8 lower-case letters": 8 * math.log2(26),
    "4 random words of 7776": 4 * math.log2(7776),
    "12 random letters and digits": 12 * math.log2(62),
    "6 random words of 7776": 6 * math.log2(7776),
}


@dataclass(frozen=True)
class KdfCost(Finding):
    """Time and money.

    Args:
        memory_kib: Of one guess.
        iterations: Of the derivation.
        lanes: Of the derivation.
        seconds: Median wall time of a derivation on this machine.
        core_seconds: Median processor time of one, over all cores.
        key_bits: Size of the method's key space; None where it takes no key.
        price: Of a core for an hour.
        advantage: How much cheaper the attacker's guesses are.
        classes: Names of password classes.
        bits: Of each.
        cost: Expected cost of each: half of the class at this price.
    """

    memory_kib: int
    iterations: int
    lanes: int
    seconds: float
    core_seconds: float
    key_bits: int | None
    price: float
    advantage: float
    classes: tuple[str, ...]
    bits: tuple[float, ...]
    cost: tuple[float, ...]

    def verdicts(self) -> list[Verdict]:
        """On the derivation, on passwords, and on guessing keys themselves."""
        slow = self.memory_kib >= LEAST_MEMORY_KIB and self.core_seconds >= LEAST_CORE_SECONDS
        text = (
            f"a guess takes {self.core_seconds:.3f} core-seconds and {self.memory_kib / 1024:.0f} MiB "
            f"({1 / self.core_seconds:.1f} guesses a second and core; bounds {LEAST_CORE_SECONDS} s, "
            f"{LEAST_MEMORY_KIB / 1024:.0f} MiB)"
        )
        verdicts = [Verdict("holds" if slow else "fails", text, of_people=False)]
        weak = []
        strong = []
        for name, cost in zip(self.classes, self.cost, strict=True):
            if cost < ENOUGH:
                weak.append(name)
            else:
                strong.append(name)
        terms = f"at {self.price:g} a core-hour, {self.advantage:g} times cheaper for the attacker"
        text = f"guessing costs less than {ENOUGH:,.0f} for: {', '.join(weak) or 'none of the classes'}; "
        text += f"more for: {', '.join(strong) or 'none of them'} ({terms})"
        verdicts.append(Verdict("holds" if not weak else "partly" if strong else "fails", text, of_people=False))
        if self.key_bits is not None:
            few = self.key_bits < 80
            text = f"guessing the key itself instead of the password: {self.key_bits} bits (from 80 on out of reach)"
            verdicts.append(Verdict("fails" if few else "holds", text, of_people=False))
        return verdicts

    def rows(self) -> list[SecurityRow]:
        """Times, then the cost by class."""
        rows = [
            SecurityRow("one key derivation, wall time", self.seconds, "s"),
            SecurityRow("one key derivation, processor time", self.core_seconds, "s"),
            SecurityRow("guesses a second and core", 1 / self.core_seconds),
            SecurityRow("memory of a guess, MiB", self.memory_kib / 1024),
            SecurityRow("key space", None if self.key_bits is None else float(self.key_bits), "bits"),
        ]
        each = zip(self.classes, self.bits, self.cost, strict=True)
        costs = []
        for name, bits, cost in each:
            costs.append(SecurityRow(f"cost of {name} ({bits:.0f} bits)", cost))
        return rows + costs


def kdf_cost(target: Target, price: float = PRICE, advantage: float = ADVANTAGE) -> KdfCost:
    """Time the default key derivation, and price guesses.

    Args:
        target: Gives the size of the key space and the number of repetitions.
        price: Of a core for an hour, in any currency.
        advantage: How many times cheaper a guess is for the attacker than on this machine.
    """
    cost = KdfParameters()
    walls = []
    cores = []
    # The median of fewer would be a single measurement.
    for number in range(max(3, target.budget.trials)):
        wall = time.perf_counter()
        core = time.process_time()
        Secret.from_password(f"guess {number}", b"faceanon/attack/salt", cost)
        walls.append(time.perf_counter() - wall)
        cores.append(time.process_time() - core)
    # The clock may not move at all in a cheap derivation, and the verdict divides by this.
    core_seconds = max(statistics.median(cores), 1e-6)
    guess = core_seconds / 3600 * price / advantage
    # On average half of a class is tried before the password is found.
    money = tuple(2 ** (bits - 1) * guess for bits in CLASSES.values())
    bits = target.backbone.key_bits
    measured = (cost.memory_kib, cost.iterations, cost.lanes, statistics.median(walls), core_seconds, bits)
    return KdfCost(*measured, price, advantage, tuple(CLASSES), tuple(CLASSES.values()), money)
