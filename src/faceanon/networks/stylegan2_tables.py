"""Sizes that follow from the resolution of a StyleGAN2."""

from __future__ import annotations

from collections.abc import Mapping


def channel_table(size: int, multiplier: int = 2, channels: Mapping[int, int] | None = None) -> dict[int, int]:
    """Channels per side in px, 4 to `size`: those given, or the public table.

    Raises:
        ValueError: If `size` is not a power of two from 8, or a resolution is missing from `channels`.

    Examples:
        >>> from faceanon.networks.stylegan2_tables import channel_table
        >>> channel_table(128)
        {4: 512, 8: 512, 16: 512, 32: 512, 64: 512, 128: 256}
    """
    if size < 8 or size & (size - 1):
        raise ValueError(f"size {size} is not a power of two from 8 up")
    sides = [2**i for i in range(2, size.bit_length())]
    if channels is None:
        channels = {}
        for side in sides:
            # The public table: from 64 to 1024 px it is 256, 128, 64, 32 and 16 times the multiplier.
            channels[side] = 512 if side <= 32 else 16384 * multiplier // side
    if missing := [side for side in sides if side not in channels]:
        raise ValueError(f"channels has no entry for {missing} px; a {size} px network needs {sides}")
    return {side: int(channels[side]) for side in sides}


def layer_count(size: int, depth: int = 2) -> int:
    """Rows of a w+ code for images of side `size`: 10 at 64 px, 14 at 256 px, 18 at 1024 px.

    Args:
        size: Side in px, or in cells of latents.
        depth: Layers of each resolution from 8 up.

    Examples:
        >>> from faceanon.networks.stylegan2_tables import layer_count
        >>> layer_count(64), layer_count(256), layer_count(16, depth=6)
        (10, 14, 14)
    """
    # The 2 are the first layer and the last projection. Any other projection shares the row of the layer after it.
    return depth * (size.bit_length() - 3) + 2
