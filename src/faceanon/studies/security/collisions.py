"""Ten thousand keys: do two of them coincide, as bytes, as codes, or as strangers?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from faceanon.key import Secret
from faceanon.studies.security.base import DoesNotApplyError, Finding, SecurityRow, Verdict, graded

if TYPE_CHECKING:
    from faceanon.studies.security.target import Target

BYTES = 32
CHUNK = 500
LONGEST = 256
ROUNDING = 1e-10  # of the mean square: nearer rows are equal
NEAR = 0.1  # nearest pair of codes, over that of independent normal codes of the same spread
# Share of pairs of keys that the judge takes for one person.
STRANGERS_HOLDS = 0.05
STRANGERS_PARTLY = 0.2


@dataclass(frozen=True)
class Collisions(Finding):
    """Many keys on one face.

    Args:
        keys: Number of keys.
        same_bytes: Pairs of keys with equal bytes.
        nearest_bits: Bits in which the nearest pair of keys differs, of 256.
        same_codes: Pairs of equal transformed codes; None without codes.
        nearest: Distance of the nearest pair of transformed codes, over the median distance.
        nearest_ideal: The same of independent normal codes with the same mean and covariance.
        strangers: Keys whose pictures were drawn.
        alike: Share of pairs of these pictures that the judge takes for one person.
        alike_faces: Number of faces that this was averaged over.
    """

    keys: int
    same_bytes: int
    nearest_bits: int
    same_codes: int | None
    nearest: float | None
    nearest_ideal: float | None
    strangers: int
    alike: float
    alike_faces: int

    def verdicts(self) -> list[Verdict]:
        """One verdict each on key bytes, identity codes and pictures."""
        fine = self.same_bytes == 0
        text = f"{self.same_bytes} pairs of {self.keys} keys coincide; the nearest differ in {self.nearest_bits} bits"
        verdicts = [Verdict("holds" if fine else "fails", text, of_people=False)]
        if self.nearest is not None and self.nearest_ideal is not None:
            ratio = 0.0
            if self.nearest_ideal > 0:
                ratio = self.nearest / self.nearest_ideal
            apart = not self.same_codes and ratio >= NEAR
            text = f"the nearest two codes of {self.keys} keys lie at {ratio:.2f} times the distance that chance gives"
            text = f"{text} (from {NEAR} on nothing collides)"
            verdicts.append(Verdict("holds" if apart else "fails", text, of_people=False))
        return [*verdicts, self._strangers()]

    def _strangers(self) -> Verdict:
        fits = f"{self.alike:.1%} of the pairs of keys make strangers that the judge takes for one person"
        some = "all are told apart"
        if self.alike > 0:
            some = f"about {1 / self.alike:.0f} strangers are told apart"
        bounds = f"up to {STRANGERS_HOLDS:.0%} counts as diverse, above {STRANGERS_PARTLY:.0%} as poor"
        outcome = graded(self.alike, STRANGERS_HOLDS, STRANGERS_PARTLY)
        return Verdict(outcome, f"{fits}: {some} ({bounds})", of_people=False)

    def rows(self) -> list[SecurityRow]:
        """The counts of keys and collisions, and the distances of the nearest pairs, as lines of a table."""
        if self.same_codes is None:
            codes = None
        else:
            codes = float(self.same_codes)
        return [
            SecurityRow("keys", float(self.keys)),
            SecurityRow("pairs of equal key bytes", float(self.same_bytes)),
            SecurityRow("nearest pair of keys", float(self.nearest_bits), "bits"),
            SecurityRow("pairs of equal codes", codes),
            SecurityRow("nearest pair of codes, in median distances", self.nearest),
            SecurityRow("the same for independent codes", self.nearest_ideal),
            SecurityRow(f"pairs of {self.strangers} strangers taken for one person", self.alike, "%"),
        ]


def collisions(target: Target) -> Collisions:
    """Compare the keys of many secrets, one code under all of them, and some faces under a few.

    Raises:
        DoesNotApplyError: The method takes no key.
    """
    target.need_key()
    secrets = list(map(Secret.random, range(target.budget.keys)))
    streams = np.stack([np.frombuffer(s.stream("faceanon/attack/collision", BYTES), np.uint8) for s in secrets])
    bits = torch.from_numpy(np.unpackbits(streams, axis=1)).float()
    # Between rows of -1 and 1 the squared distance is four times the number of bits that differ.
    equal, nearest, _ = nearest_pair(2 * bits - 1)
    keys = torch.cat([target.backbone.key_from_secret(secret, 1) for secret in secrets])
    alike, faces = strangers(target, keys[: target.budget.strangers])
    return Collisions(
        len(secrets),
        equal,
        round(nearest**2 / 4),
        *_codes(target, keys),
        min(len(keys), target.budget.strangers),
        alike,
        faces,
    )


def _codes(target: Target, keys: Tensor) -> tuple[int | None, float | None, float | None]:
    """Equal pairs, nearest pair over the median, and the same by chance, of one face's code under all keys."""
    try:
        code = target.codes(target.probes.image[:1]).identity
    except DoesNotApplyError:
        return None, None, None
    # `batched` gives the last pieces of keys fewer rows, so the code is cut to their number.
    same = code.to(target.device).expand(target.budget.batch, *code.shape[1:])
    codes = target.batched(lambda k: _short(target.backbone.transform(same[: len(k)], k)), keys, title="codes")
    equal, nearest, median = nearest_pair(codes)
    # All keys give one code, so there is no usual distance to compare with.
    if median == 0:
        return equal, 0.0, 0.0
    _, ideal, ideal_median = nearest_pair(_like(codes))
    return equal, nearest / median, ideal / ideal_median


def _short(codes: Tensor) -> Tensor:
    """`(B, D)` of codes `(B, ...)`; very long ones are projected at random, which keeps distances."""
    rows = codes.flatten(1).double()
    if rows.shape[1] <= LONGEST:
        return rows
    # The generator starts anew in each call, so that all batches are projected onto the same axes.
    axes = torch.randn(rows.shape[1], LONGEST, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return rows @ axes.to(rows) / math.sqrt(LONGEST)


def _like(rows: Tensor) -> Tensor:
    """Normal rows with the covariance of `(N, D)`."""
    centred = rows - rows.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(rows))
    # Rounding can make an eigenvalue of 0 slightly negative.
    drawn: Tensor = torch.randn(rows.shape, dtype=torch.float64) @ (vectors * values.clamp(min=0).sqrt()).T
    return drawn


def nearest_pair(rows: Tensor) -> tuple[int, float, float]:
    """Pairs of equal rows of `(N, D)` (up to rounding), distance of the nearest pair, and a median distance."""
    # In float64 and around the mean: a distance is the small difference of large squares.
    double = rows.double() - rows.double().mean(0)
    squares = double.square().sum(1)
    equal = 0
    nearest = math.inf
    medians = []
    for start in tqdm(range(0, len(rows), CHUNK), desc="pairs of keys", delay=2, leave=False):
        part = double[start : start + CHUNK]
        distance = (squares[start : start + CHUNK, None] + squares - 2 * part @ double.T).clamp(min=0)
        # Every pair once, and no row with itself.
        later = torch.arange(len(rows)) > torch.arange(start, start + len(part))[:, None]
        equal += int((later & (distance <= ROUNDING * squares.mean())).sum())
        nearest = min(nearest, float(distance.masked_fill(~later, math.inf).min()))
        # A median of the pieces' medians is near enough, and holds no more than a piece in memory.
        medians.append(float(distance.median()))
    return equal, math.sqrt(nearest), math.sqrt(sorted(medians)[len(medians) // 2])


def strangers(target: Target, keys: Tensor, faces: int = 2) -> tuple[float, int]:
    """Share of pairs of keys whose pictures of one face the judge takes for one person, and faces tried."""
    rates = []
    # Every second picture, since those of one person stand side by side.
    for image in target.probes.image[: 2 * faces : 2]:
        drawn = target.anonymize(image.expand(len(keys), *image.shape), keys, title="strangers")
        embedding = target.embed(drawn)
        row, column = torch.triu_indices(len(keys), len(keys), offset=1)
        rates.append(float(((embedding[row] * embedding[column]).sum(1) > target.threshold).float().mean()))
    return sum(rates) / len(rates), len(rates)
