"""A painter that draws many faces for one description: rectified flow on the latents of a codec.

Liu et al., "Flow Straight and Fast", ICLR 2023. From noise x(0) to the latents of a face x(1) runs the straight line
x(t) = (1 - t) x(0) + t x(1). A network learns its direction x(1) - x(0) from x(t), t and what is known of the face.
Following what it learned from noise on, step by step, paints a face; another noise paints another one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faceanon.networks.face_painter import FacePainter

TIME = 64  # numbers that say how far along its line a picture is
FASTEST = 1000.0  # of the waves that these numbers are, in units of the slowest


class FlowPainter(nn.Module):
    """Directions of a flow that paints faces into latents.

    Args:
        cells: Cells a side of the latents.
        channels: Channels of the latents.
        maps: Channels of the spatial condition beside the latents.
        condition: Length of the vector condition.
        widths: Channels by cells a side; 8 is the coarsest.
        hidden: Length of the condition that the blocks see.
        dropout: Share of the blocks' numbers that are dropped in training.

    Examples:
        >>> import torch
        >>> from faceanon.networks.flow_painter import FlowPainter
        >>> painter = FlowPainter(maps=1, condition=2, widths={16: 16, 8: 32}, hidden=16)
        >>> latents = torch.randn(1, 32, 16, 16)
        >>> mask = torch.zeros(1, 1, 16, 16)
        >>> mask[..., 4:12, 4:12] = 1
        >>> direction = painter(torch.randn_like(latents), torch.zeros(1), latents, mask, mask, torch.zeros(1, 2))
        >>> direction.shape
        torch.Size([1, 32, 16, 16])
    """

    def __init__(
        self,
        cells: int = 16,
        channels: int = 32,
        maps: int = 116,
        condition: int = 85,
        widths: dict[int, int] | None = None,
        hidden: int = 384,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        widths = widths or {16: 192, 8: 384}
        self.painter = FacePainter(cells, channels, maps + channels, condition + TIME, widths, hidden, dropout)

    def forward(
        self, noisy: Tensor, time: Tensor, latents: Tensor, mask: Tensor, maps: Tensor, condition: Tensor
    ) -> Tensor:
        """The direction to the latents of a face.

        Args:
            noisy: `(B, channels, cells, cells)`, x(t); looked at under the mask alone.
            time: `(B,)` in [0, 1], t; 0 is noise.
            latents: `(B, channels, cells, cells)`; what lies under the mask is not looked at.
            mask: `(B, 1, cells, cells)` of 0 and 1, the cells to paint.
            maps: `(B, maps, cells, cells)` drawings of the face.
            condition: `(B, condition)` float32.

        Returns:
            `(B, channels, cells, cells)`, 0 outside the mask.
        """
        shown = torch.cat([maps, noisy * mask], 1)
        told = torch.cat([condition, _waves(time)], 1)
        painted: Tensor = self.painter(latents, mask, shown, told)
        return painted * mask


def _waves(time: Tensor) -> Tensor:
    """How far along its line a picture is: times `(B,)` -> `(B, TIME)`, sines and cosines from slow to fast."""
    steps = torch.linspace(0, 1, TIME // 2, device=time.device)
    angles = time.float()[:, None] * FASTEST**steps
    return torch.cat([angles.sin(), angles.cos()], 1)


def flow_error(drawn: Tensor, latents: Tensor, mask: Tensor, time: Tensor) -> Tensor:
    """Squared error of a flow's directions, a mean over the cells of the mask: `(B,)`.

    Who at x(t) expects the face x(1) looks in the direction (x(1) - x(t)) / (1 - t). So the error of a direction is
    that of the expected face over 1 - t.

    Args:
        drawn: `(B, C, h, h)`, x(1) as the flow expects it at x(t).
        latents: `(B, C, h, h)`, x(1).
        mask: `(B, 1, h, h)` of 0 and 1; one cell of each row at least is 1.
        time: `(B,)` in [0, 1), t.
    """
    off = ((drawn - latents) / (1 - time)[:, None, None, None]).square() * mask
    return off.sum((1, 2, 3)) / mask.sum((1, 2, 3)) / latents.shape[1]
