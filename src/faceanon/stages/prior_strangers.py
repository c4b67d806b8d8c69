"""Strangers in the training of a prior: what a key makes of the codes of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from faceanon.backbones.dbaf import flipped
from faceanon.errors import UserError
from faceanon.networks.keyed import stretched
from faceanon.networks.stylegan2 import Generator
from faceanon.types import FaceBatch
from faceanon.weights.bundle import Bundle


@dataclass(frozen=True)
class Strangers:
    """Which strangers a prior draws in its training: those that DBAF makes of its codes with the same settings.

    Args:
        kept: First numbers of a code that no key changes, DBAF's `flips`.
        share: Of the other numbers, how many change their sign, DBAF's `flip_share`.
        stretch: By how much strangers lie farther from the mean code, DBAF's `flip_stretch`.
        keep_light: As DBAF's: strangers get the soft light of the person's picture before anybody looks at them. Only
            for a bundle with a frame.
        seen: Share of the drawn faces without a picture of their own that are strangers, in the discriminator's
            batches; the others are samples of the mapping.

    Raises:
        UserError: A share is not in [0, 1], or the stretch not above 0.
    """

    kept: int = 0
    share: float = 0.5
    stretch: float = 1.0
    keep_light: float = 0.0
    seen: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or not 0 <= self.seen <= 1:
            raise UserError(f"strangers: share is {self.share} and seen {self.seen}; both are parts of 1")
        if self.stretch <= 0:
            raise UserError(f"strangers: stretch is {self.stretch}; give a number above 0")

    def codes(self, codes: Tensor, key: Tensor) -> Tensor:
        """Strangers' codes `(B, L, D)` of persons' codes and keys `(B, 3, D)`, normally distributed."""
        return stretched(flipped(codes, key, self.kept, self.share), self.stretch, self.kept)

    def pictures(self, bundle: Bundle, generator: Generator, codes: Tensor, batch: FaceBatch) -> Tensor:
        """Strangers `(B, 3, S, S)` in [-1, 1] as a method shows them, of their codes `(B, L, D)`.

        Args:
            bundle: Whose frame the faces lie in.
            generator: Draws latents.
            codes: Of strangers.
            batch: The persons; its first faces belong to the codes.
        """
        drawn = generator.decode(generator.draw(codes))
        if not self.keep_light:
            return drawn
        if bundle.frame is None:
            raise UserError(f"strangers: keep_light needs a bundle with a frame, and {bundle.name!r} has none")
        return bundle.frame.in_light_of(drawn, batch.image[: len(codes)], self.keep_light)
