"""The objective of iFADIT's second phase as the paper prints it, eqs. (15)-(22).

The norms of eq. (20) are means over entries, the parser's of squares, without a root, of the logits of all its classes:
our reading.
Without a parser eq. (20) has three terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from faceanon.losses.diversity import inter_identity, inter_key
from faceanon.losses.identity import attract, repel

RECOVERED = (10.0, 1.0, 0.1, 0.01)  # lambda_1 to lambda_4 of eq. (21) for the recovered picture
HIDDEN = (0.01, 0.1, 0.1, 0.01)  # for anonymized and falsely recovered ones


@dataclass(frozen=True)
class PhaseTwo:
    """What phase II draws of B pictures, `(n B, 3, S, S)` each, whole batches behind each other.

    Args:
        original: X, n = 1.
        anonymized: Under two keys, n = 2. The second is one key for all rows.
        recovered: Opened with the right key, n = 1.
        wrong: Opened with wrong keys.
        identity: `(B,)` int64 label of the person, -1 where unknown.
    """

    original: Tensor
    anonymized: Tensor
    recovered: Tensor
    wrong: Tensor
    identity: Tensor


@dataclass(frozen=True)
class PhaseTwoTerms:
    """L_Anon, L_Div, L_DeAnon and L_Img, which eq. (22) adds up.

    Args:
        nets: Has the frozen networks `recogniser` (E_ID), `perceptual` (LPIPS), `landmarks` (E_LM), and
            `parser` (E_FP) where it `has` one.
    """

    nets: Any

    def anonymity(self, drawn: PhaseTwo) -> Tensor:
        """L_Anon, eqs. (15)-(16): anonymized faces are nobody in the picture."""
        return repel(self._faces(drawn.anonymized), self._original_faces(drawn, drawn.anonymized))

    def diversity(self, drawn: PhaseTwo) -> Tensor:
        """L_Div, eq. (17): people under one key differ, and one face under two keys does."""
        first, second = self._faces(drawn.anonymized).chunk(2)
        # Under the first keys, of which every row has its own, strangers would differ by these alone.
        return inter_identity(second, drawn.identity) + inter_key(first, second)

    def recovery(self, drawn: PhaseTwo) -> Tensor:
        """L_DeAnon, eqs. (18)-(19): the right key brings the person back, and a wrong one does not."""
        back = attract(self._faces(drawn.recovered), self._original_faces(drawn, drawn.recovered))
        return back + repel(self._faces(drawn.wrong), self._original_faces(drawn, drawn.wrong))

    def image(self, drawn: PhaseTwo) -> Tensor:
        """L_Img, eqs. (20)-(21), of each form of drawn picture; that their terms are added up is our reading."""
        back = self._image_of(drawn.recovered, drawn.original, RECOVERED)
        hidden = self._image_of(drawn.anonymized, drawn.original, HIDDEN)
        return back + hidden + self._image_of(drawn.wrong, drawn.original, HIDDEN)

    def _image_of(self, pictures: Tensor, original: Tensor, weights: tuple[float, float, float, float]) -> Tensor:
        """Eq. (20) for one form of picture: the mean over its pictures."""
        original = _repeated(original, pictures)
        with torch.no_grad():
            points = self.nets.landmarks(original)
        terms = [
            F.l1_loss(pictures, original),
            self.nets.perceptual(pictures, original).mean(),
            F.l1_loss(self.nets.landmarks(pictures), points),
        ]
        if self.nets.has("parser"):
            with torch.no_grad():
                classes = self.nets.parser(original)
            terms.append(F.mse_loss(self.nets.parser(pictures), classes))
        return torch.stack([weight * term for weight, term in zip(weights, terms, strict=False)]).sum()

    def _faces(self, pictures: Tensor) -> Tensor:
        faces: Tensor = self.nets.recogniser(pictures)
        return faces

    @torch.no_grad()
    def _original_faces(self, drawn: PhaseTwo, pictures: Tensor) -> Tensor:
        return _repeated(self._faces(drawn.original), pictures)


def _repeated(item: Tensor, pictures: Tensor) -> Tensor:
    """`(B, ...)` as often as `(n B, ...)` pictures have it."""
    return item.repeat(len(pictures) // len(item), *[1] * (item.ndim - 1))
