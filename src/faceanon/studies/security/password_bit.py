"""One bit of the password changes: does everything change?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from faceanon.key import KdfParameters, Secret
from faceanon.studies.security.base import RIGHT_NEEDED, Finding, SecurityRow, Verdict, graded

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

STREAM_BYTES = 4096
LABEL = "faceanon/attack/bit"
SALT = b"faceanon/attack/salt"
# Cheap on purpose: what is tested does not depend on the cost, and dozens of passwords are tried.
KDF = KdfParameters(memory_kib=64, iterations=1, lanes=1)
SPREAD = 0.02  # how far from one half the share of changed bits may lie, on average
OPEN_HOLDS = 0.05
OPEN_PARTLY = 0.2


@dataclass(frozen=True)
class PasswordBit(Finding):
    """Passwords that differ in one bit.

    Args:
        hamming: Mean share of key-stream bits that change; one half is ideal.
        hamming_low: Lowest share over the passwords.
        hamming_high: Highest.
        pairs: Number of pairs of passwords.
        opened: Share of faces that the changed password brings back; None without a way back.
        opened_cosine: Mean cosine of these with the original.
        alike: Share accepted as what the right password brings back.
        right: Share of faces that the right password brings back.
    """

    hamming: float
    hamming_low: float
    hamming_high: float
    pairs: int
    opened: float | None = None
    opened_cosine: float | None = None
    alike: float | None = None
    right: float | None = None

    def verdicts(self) -> list[Verdict]:
        """On the key stream, and on the pictures."""
        even = abs(self.hamming - 0.5) <= SPREAD
        text = (
            f"one bit of the password changes {self.hamming:.1%} of the key stream (50% within {SPREAD:.0%} is ideal)"
        )
        verdicts = [Verdict("holds" if even else "fails", text, of_people=False)]
        if self.opened is not None and self.right is not None:
            outcome = graded(self.opened, OPEN_HOLDS, OPEN_PARTLY)
            text = f"a password wrong in one bit brings back {self.opened:.1%} of the faces"
            if outcome == "holds" and self.right < RIGHT_NEEDED:
                text = f"{text}, but the right one only {self.right:.0%}, so that proves nothing"
                return [*verdicts, Verdict("open", text)]
            verdicts.append(
                Verdict(outcome, f"{text} (up to {OPEN_HOLDS:.0%} counts as locked, above {OPEN_PARTLY:.0%} as open)")
            )
        return verdicts

    def rows(self) -> list[SecurityRow]:
        """Shares of bits and of faces."""
        return [
            SecurityRow("key-stream bits that change, mean", self.hamming, "%"),
            SecurityRow("lowest of all passwords", self.hamming_low, "%"),
            SecurityRow("highest of all passwords", self.hamming_high, "%"),
            SecurityRow("recognised with the right password", self.right, "%"),
            SecurityRow("recognised with one bit wrong", self.opened, "%"),
            SecurityRow("one bit wrong, mean cosine with the original", self.opened_cosine),
            SecurityRow("one bit wrong, accepted as the right recovery", self.alike, "%"),
        ]


def flipped(password: str, place: int) -> str:
    """`password` with the lowest bit of one character changed."""
    place %= len(password)
    return password[:place] + chr(ord(password[place]) ^ 1) + password[place + 1 :]


def password_bit(target: Target) -> PasswordBit:
    """Anonymize under passwords, and open with passwords that differ from them in one bit.

    Raises:
        DoesNotApplyError: The method takes no key.
    """
    target.need_key()
    words = []
    for number in range(target.budget.trials):
        words.append(f"correct horse {number} battery")
    pairs = []
    for number, word in enumerate(words):
        # At another place in each password.
        pairs.append((derive(word), derive(flipped(word, 3 * number))))
    shares = [changed(*pair) for pair in pairs]
    bits = (float(np.mean(shares)), min(shares), max(shares), len(pairs))
    # No key opens its pictures, so the key stream alone can be tested.
    if not target.backbone.recovers_from_pictures:
        return PasswordBit(*bits)
    right = torch.cat([target.backbone.key_from_secret(pair[0], 1) for pair in pairs])
    wrong = torch.cat([target.backbone.key_from_secret(pair[1], 1) for pair in pairs])
    # The passwords take turns over the pictures.
    rows = torch.arange(len(target.probes)) % len(pairs)
    hidden = target.anonymize(target.probes.image, right[rows], title="passwords")
    opened = target.embed(target.recover(hidden, right[rows], title="right passwords"))
    near = target.embed(target.recover(hidden, wrong[rows], title="passwords wrong in one bit"))
    cosine = (near * target.gallery).sum(1)
    return PasswordBit(
        *bits,
        float((cosine > target.threshold).float().mean()),
        float(cosine.mean()),
        float(((near * opened).sum(1) > target.threshold).float().mean()),
        float(((opened * target.gallery).sum(1) > target.threshold).float().mean()),
    )


def derive(password: str) -> Secret:
    """The secret of a password under this test's salt."""
    return Secret.from_password(password, SALT, KDF)


def changed(one: Secret, other: Secret) -> float:
    """Share of key-stream bits in which two secrets differ."""
    streams = []
    for item in (one, other):
        streams.append(np.frombuffer(item.stream(LABEL, STREAM_BYTES), np.uint8))
    return float(np.unpackbits(streams[0] ^ streams[1]).mean())
