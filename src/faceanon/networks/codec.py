"""A frozen autoencoder between pictures and normalised latents."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor, nn

from faceanon.networks.taef2 import LATENT_CHANNELS, SHRINK, Taef2Decoder, Taef2Encoder


class LatentCodec(nn.Module):
    """The codec of photographs, with latents shifted and scaled to mean 0 and standard deviation 1 per channel.

    Args:
        channels: Channels of the latents.

    Attributes:
        shrink: Pixels of the picture along one cell of the latents.
        mean: `(channels,)` mean of the public latents over the photographs that the bundle was made with.
        std: `(channels,)` their standard deviation.
        preview_weight: `(3, channels)` of the linear map from a cell of latents to the mean colour of its pixels.
        preview_bias: `(3,)` of the same map.

    Examples:
        >>> import torch
        >>> from faceanon.weights.bundle import Bundle
        >>> codec = Bundle("photo128").codec
        >>> latents = codec.encode(torch.zeros(1, 3, 128, 128))
        >>> latents.shape
        torch.Size([1, 32, 16, 16])
        >>> codec.decode(latents).shape, codec.preview(latents).shape
        (torch.Size([1, 3, 128, 128]), torch.Size([1, 3, 16, 16]))
    """

    shrink = SHRINK

    mean: Tensor
    std: Tensor
    preview_weight: Tensor
    preview_bias: Tensor

    def __init__(self, channels: int = LATENT_CHANNELS) -> None:
        super().__init__()
        self.channels = channels
        self.encoder = Taef2Encoder()
        self.decoder = Taef2Decoder()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))
        self.register_buffer("preview_weight", torch.zeros(3, channels))
        self.register_buffer("preview_bias", torch.zeros(3))
        # Convolutions on CPUs are faster in this layout (see `layout.channels_last`).
        self.to(memory_format=torch.channels_last)
        self._known: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def know(self, image: Tensor, latents: Tensor) -> None:
        """Remember the latents of a picture: `encode` of this very tensor gives them and computes nothing.

        Args:
            image: `(B, 3, H, W)`; it is not kept alive.
            latents: `(B, channels, H / 8, W / 8)`, as `encode` would give them.
        """
        # The version counts changes in place, after which nothing is known of it.
        self._known = (weakref.ref(image), image._version, latents)

    def _remembered(self, image: Tensor) -> Tensor | None:
        if self._known is None:
            return None
        known, version, latents = self._known
        if known() is image and image._version == version:
            return latents
        return None

    def encode(self, image: Tensor) -> Tensor:
        """Picture `(B, 3, H, W)` in [-1, 1] -> latents `(B, channels, H / 8, W / 8)` float32.

        Raises:
            ValueError: If H or W is no multiple of 8.
        """
        known = self._remembered(image)
        if known is not None:
            return known
        height, width = image.shape[-2:]
        if height % SHRINK or width % SHRINK:
            raise ValueError(f"the codec takes sides that are multiples of {SHRINK} px, not {width} x {height}")
        unit = ((image + 1) / 2).to(self._dtype).contiguous(memory_format=torch.channels_last)
        # The convolutions alone may compute in bfloat16; latents stay float32.
        latents = _one_by_one(self.encoder, unit).float()
        return (latents - self.mean.float()[:, None, None]) / self.std.float()[:, None, None]

    def decode(self, latents: Tensor) -> Tensor:
        """Latents `(B, channels, h, w)` -> picture `(B, 3, 8 h, 8 w)` float32, nominally in [-1, 1], not clamped."""
        unit = _one_by_one(self.decoder, self._public(latents)).float()
        return unit * 2 - 1

    def decode_part(self, latents: Tensor, window: tuple[int, int, int, int]) -> Tensor:
        """A part of what `decode` gives, in less time.

        Args:
            latents: `(B, channels, h, w)`.
            window: Top, bottom, left and right of the part, in cells of the latents.

        Returns:
            `(B, 3, 8 (bottom - top), 8 (right - left))` float32.
        """
        unit = _one_by_one(lambda some: self.decoder.part(some, window), self._public(latents))
        return unit.float() * 2 - 1

    def _public(self, latents: Tensor) -> Tensor:
        """What the public decoder takes, from normalised latents."""
        public = latents * self.std.float()[:, None, None] + self.mean.float()[:, None, None]
        return public.to(self._dtype).contiguous(memory_format=torch.channels_last)

    def preview(self, latents: Tensor) -> Tensor:
        """Colours without the decoder: latents `(B, channels, h, w)` -> pictures `(B, 3, h, w)` in about [-1, 1].

        One pixel a cell, by a linear map that explains some three quarters of the variance.
        """
        colours = torch.einsum("bchw,dc->bdhw", latents, self.preview_weight.float())
        return colours + self.preview_bias.float()[:, None, None]

    def forward(self, image: Tensor) -> Tensor:
        """Round trip of a picture: `(B, 3, H, W)` in [-1, 1] -> the same, as the codec keeps it."""
        return self.decode(self.encode(image))

    @property
    def _dtype(self) -> torch.dtype:
        """The numbers that the convolutions compute with: float32, or bfloat16 after `.bfloat16()`."""
        return self.encoder[0].weight.dtype  # type: ignore[return-value]


def _one_by_one(network: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """What a network makes of a batch `(B, C, H, W)`; in use on a CPU a row at a time.

    The maps of one picture fit into a core's cache, those of a batch do not, and cost a third more time. In training
    the layers' calls would become as many, and their gradients too.
    """
    if torch.is_grad_enabled() or inputs.device.type != "cpu" or len(inputs) < 2:
        return network(inputs)
    return torch.cat([network(inputs[row : row + 1]) for row in range(len(inputs))])
