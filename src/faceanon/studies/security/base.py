"""What all attacks share: how much is spent, what an attack finds, and the verdict in plain words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "partly", "fails", "open"]
FAR = 1e-2  # false accept rate that sets thresholds
RIGHT_NEEDED = 0.5  # share that the right key must bring back, or there was nothing to lock
FEWEST_PEOPLE = 16  # of fewer, nobody found leaves room for a fifth of all people: Wilson's interval of 0 in 15


@dataclass(frozen=True)
class Budget:
    """What the attacker, and whoever waits for the page, may spend.

    Args:
        name: Stated beside every result.
        people: Held-out people that are attacked, of those in the test.
        known_people: People of the attacker's own, with all their pictures; never those in the test.
        steps: Training batches of each attacker that is a network.
        batch: Pictures in such a batch, and in a pass.
        keys: Keys among which collisions are sought.
        strangers: Keys under which one face is drawn, to count strangers.
        trials: Passwords tried in the one-bit test, and repetitions of the key derivation.
        disturbed: Pictures that are disturbed before they are opened.
        detected: The attacker's pictures from which right and wrong keys are learnt.
        members: Training people whose membership is tested, against as many outsiders.
    """

    name: str
    people: int
    known_people: int
    steps: int
    batch: int = 16
    keys: int = 10_000
    strangers: int = 64
    trials: int = 8
    disturbed: int = 40
    detected: int = 150
    members: int = 100


BUDGETS = {
    "small": Budget("small", people=60, known_people=250, steps=400),
    "full": Budget("full", 200, 3000, 6000, strangers=256, trials=32, disturbed=200, detected=1500, members=1000),
}


@dataclass(frozen=True)
class Verdict:
    """One sentence that can be acted upon.

    Args:
        outcome: `holds`: protects; `partly`; `fails`: does not protect; `open`: the figures cannot tell.
        text: The sentence, with the figures and the bound that decided.
        of_people: Whether it rests on the people attacked, so that a few of them cannot carry it.
    """

    outcome: Outcome
    text: str
    of_people: bool = True


@dataclass(frozen=True)
class SecurityRow:
    """A line of a table.

    Args:
        label: What the figure is.
        value: The figure, None where there is none.
        unit: "%" also multiplies by 100; "s", "bits", "dB" are appended.
    """

    label: str
    value: float | None
    unit: str = ""


class Finding(ABC):
    """What an attack found: a frozen dataclass of plain figures. Verdicts are computed from them, never stored."""

    @abstractmethod
    def verdicts(self) -> list[Verdict]:
        """What the figures mean, by the bounds of the attack's file."""

    @abstractmethod
    def rows(self) -> list[SecurityRow]:
        """The figures as a table."""


class DoesNotApplyError(Exception):
    """The attack has no object in this method; the message says why."""


def graded(value: float, holds: float, partly: float) -> Outcome:
    """The outcome of a figure that should be low: up to `holds`, up to `partly`, above."""
    # A share that meets its bound exactly counts, whatever rounding made of its last bits.
    if value <= holds + 1e-6:
        return "holds"
    if value <= partly + 1e-6:
        return "partly"
    return "fails"


def cautious(verdict: Verdict, people: int) -> Verdict:
    """The verdict, but none of `holds` from too few people."""
    if verdict.outcome != "holds" or not verdict.of_people or people >= FEWEST_PEOPLE:
        return verdict
    return Verdict("open", f"{verdict.text}; {people} people are too few to conclude from (at least {FEWEST_PEOPLE})")


def worst(*outcomes: Outcome) -> Outcome:
    """The worst of several outcomes."""
    # What cannot be told is the worst: no other verdict may hide it.
    return max(outcomes, key=("holds", "partly", "fails", "open").index)
