"""The end of a flow that paints faces, in a network of a sixth of the size.

Where a picture is nearly a face (t of .65 and more), nothing coarse is left to be found: cells that look at their
neighbours, and once at all others, give the directions of a whole `FlowPainter` (`examples/shrink_flow_painter.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.face_painter import GROUPS, CellAttention, ModulatedBlock
from faceanon.networks.flow_painter import TIME, FlowPainter, waves

LOOKS_ROUND = 1  # block behind which every cell attends to every other one


class FaceRedrawer(nn.Module):
    """Directions of the end of a flow that paints faces into latents; see `FlowPainter`.

    Args:
        channels: Channels of the latents.
        maps: Channels of the spatial condition beside the latents.
        condition: Length of the vector condition.
        width: Channels inside.
        hidden: Length of the condition that the blocks see.
        blocks: Number of blocks, two at least.

    Examples:
        >>> import torch
        >>> from faceanon.networks.face_redrawer import FaceRedrawer
        >>> redrawer = FaceRedrawer(maps=1, condition=2, width=16, hidden=16)
        >>> latents = torch.randn(1, 32, 16, 16)
        >>> mask = torch.zeros(1, 1, 16, 16)
        >>> mask[..., 4:12, 4:12] = 1
        >>> direction = redrawer(torch.randn_like(latents), torch.ones(1), latents, mask, mask, torch.zeros(1, 2))
        >>> direction.shape
        torch.Size([1, 32, 16, 16])
    """

    def __init__(
        self,
        channels: int = 32,
        maps: int = 116,
        condition: int = 85,
        width: int = 192,
        hidden: int = 384,
        blocks: int = 2,
    ) -> None:
        super().__init__()
        self.embed = nn.Sequential(
            nn.Linear(condition + TIME, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
        )
        self.enter = nn.Conv2d(2 * channels + maps, width, 3, padding=1)
        self.blocks = nn.ModuleList(ModulatedBlock(width, width, hidden) for _ in range(blocks))
        self.attention = CellAttention(width)
        self.norm = nn.GroupNorm(GROUPS, width)
        self.leave = nn.Conv2d(width, channels, 3, padding=1)

    def forward(
        self, noisy: Tensor, time: Tensor, latents: Tensor, mask: Tensor, maps: Tensor, condition: Tensor
    ) -> Tensor:
        """As `FlowPainter.forward`."""
        film = self.embed(torch.cat([condition, waves(time)], 1))
        x = self.enter(torch.cat([latents * (1 - mask), maps, noisy * mask], 1))
        for number, block in enumerate(self.blocks):
            x = block(x, film)
            if number == LOOKS_ROUND:
                x = self.attention(x)
        painted: Tensor = self.leave(F.silu(self.norm(x)))
        return painted * mask


def begin_from(redrawer: FaceRedrawer, painter: FlowPainter) -> None:
    """Give a redrawer the weights that it shares with a painter of the same width: those of the finest level.

    The painter's first block on the way up also sees what comes from below; the redrawer's leaves that out.
    """
    whole = painter.painter
    level = whole.levels["16"]
    redrawer.embed.load_state_dict(whole.embed.state_dict())
    redrawer.enter.load_state_dict(whole.enter["16"].state_dict())
    redrawer.attention.load_state_dict(level.attention.state_dict())  # type: ignore[union-attr]
    redrawer.norm.load_state_dict(whole.leave["16"][0].state_dict())  # type: ignore[index]
    redrawer.leave.load_state_dict(whole.leave["16"][2].state_dict())  # type: ignore[index]
    sources = [*level.before, *level.after]  # type: ignore[misc]
    for block, source in zip(redrawer.blocks, sources, strict=False):
        own = block.state_dict()
        for name, tensor in source.state_dict().items():
            if name in own and tensor.shape == own[name].shape:
                own[name] = tensor
            elif name in own and tensor.ndim == 1:
                own[name] = tensor[-len(own[name]) :]
            elif name in own:
                own[name] = tensor[:, -own[name].shape[1] :]
        block.load_state_dict(own)
