"""What the methods share that go from picture to picture, without codes between."""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor

from faceanon.backbones.base import Backbone
from faceanon.types import Codes


class WithoutCodes(Backbone):
    """A method that overrides `anonymize`, and `recover` where there is a way back; the three steps are refused."""

    def encode(self, image: Tensor) -> Codes:
        """Refused.

        Raises:
            NotImplementedError: Always: there are no codes.
        """
        self._refuse()

    def transform(self, identity: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Not available: raises `NotImplementedError`, as there is no code that a key could edit."""
        self._refuse()

    def decode(self, codes: Codes) -> Tensor:
        """Not available: raises `NotImplementedError`, as there is no code to draw a picture from."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no codes; use anonymize and recover")
