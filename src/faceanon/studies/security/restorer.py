"""The parrot's network: patches of an aligned face, mixed across the face and across their channels.

After Tolstikhin et al., "MLP-Mixer: An all-MLP Architecture for Vision", NeurIPS 2021. Faces are aligned, so places
have meanings of their own; matrix products are also what a processor without a graphics card does fastest.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SIDE = 16  # patches along a side at most; as many as divide the picture's side


class Mixer(nn.Module):
    """One block: an MLP across places, then one across channels, each added to its input.

    Args:
        places: Number T of patches.
        width: Channels C of a patch.
    """

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        hidden = max(1, places // 2)
        self.across = nn.Sequential(nn.Linear(places, hidden), nn.GELU(), nn.Linear(hidden, places))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` -> the same shape."""
        # `(B, C, T)` inside: the linear layers then mix places instead of channels.
        x = x + self.across(self.norms[0](x).mT).mT
        mixed: Tensor = x + self.within(self.norms[1](x))
        return mixed


class Restorer(nn.Module):
    """Change a picture into another of the same size; it starts out changing nothing.

    Args:
        image_size: Side S of the pictures in pixels.
        width: Channels of a patch.
        depth: Blocks.
    """

    def __init__(self, image_size: int, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        # The smallest patch that divides the side and leaves at most SIDE patches along it.
        patch = next(side for side in range(-(-image_size // SIDE), image_size + 1) if image_size % side == 0)
        self.side = image_size // patch
        inputs = 3 * patch * patch
        self.cut = nn.PixelUnshuffle(patch)
        self.paste = nn.PixelShuffle(patch)
        self.enter = nn.Linear(inputs, width)
        self.leave = nn.Linear(width + inputs, inputs)
        self.place = nn.Parameter(torch.zeros(self.side**2, width))
        self.blocks = nn.Sequential(*(Mixer(self.side**2, width) for _ in range(depth)))
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def forward(self, image: Tensor) -> Tensor:
        """`(B, 3, S, S)` in [-1, 1] -> `(B, 3, S, S)`, not clamped."""
        patches = self.cut(image).flatten(2).mT  # (B, T, 3 p^2)
        mixed = self.blocks(self.enter(patches) + self.place)
        # The patches go around the blocks as well, so that fine detail need not pass through them.
        change = self.leave(torch.cat([mixed, patches], -1)).mT.unflatten(2, (self.side, self.side))
        changed: Tensor = image + self.paste(change)
        return changed
