"""Random numbers by name: every use of a training's seed has a stream of its own."""

from __future__ import annotations

import hashlib

import torch


def stream(*names: object) -> torch.Generator:
    """A generator of its own for each combination of names.

    Examples:
        >>> import torch
        >>> from faceanon.data.streams import stream
        >>> first = torch.rand(3, generator=stream(0, "train", "identity"))
        >>> bool((first == torch.rand(3, generator=stream(0, "train", "identity"))).all())
        True
        >>> bool((first == torch.rand(3, generator=stream(1, "train", "identity"))).any())
        False
    """
    # Hashed: streams whose names differ in a number alone must have nothing in common.
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    # Seven bytes always fit a signed 64-bit seed.
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
