"""What networks on latents share: a codec that they are lent, so that nobody who calls them notices the latents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from faceanon.networks.codec import LatentCodec


class CodecUser(nn.Module):
    """A network that may be lent a codec; the codec is no part of it: no parameters, no keys, no copies.

    A bundle with a codec lends it to each such network that it builds.
    """

    _lent: Callable[[], LatentCodec] | None = None

    def lend(self, codec: Callable[[], LatentCodec]) -> None:
        """Take a codec.

        Args:
            codec: Gives the codec when it is needed. A function, since a bundle builds its codec late, and anew where
                it moves to another device.
        """
        # Past nn.Module.__setattr__, so not registered.
        self.__dict__["_lent"] = codec

    @property
    def has_codec(self) -> bool:
        """Whether it was lent a codec."""
        return self._lent is not None

    @property
    def codec(self) -> LatentCodec:
        """The codec that it was lent.

        Raises:
            ValueError: It was lent none.
        """
        if self._lent is None:
            raise ValueError(f"this {type(self).__name__} works on latents: lend it a codec, as a bundle with one does")
        return self._lent()


class LatentMaps(CodecUser):
    """The latents of a picture as feature maps, for a perceptual distance that needs no weights of its own.

    Args:
        levels: Maps: the latents, then their means over squares of 2, 4, ... cells, which forgive what lies a little
            elsewhere.
    """

    def __init__(self, levels: int = 2) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, image: Tensor) -> list[Tensor]:
        """`(B, 3, S, S)` in [-1, 1], or latents `(B, C, h, h)` -> maps `(B, C, h, h)`, coarse ones first."""
        codec = self.codec
        maps = [image if image.shape[1] == codec.channels else codec.encode(image)]
        for _ in range(self.levels - 1):
            # The latents themselves stay last, where `PerceptualDistance.features` takes them from.
            maps.insert(0, F.avg_pool2d(maps[0], 2))
        return maps
