"""Networks on the latents of photographs: one paints a face into its surroundings, the other tells it from photographs.

Both work on the normalised latents of a `LatentCodec`, `(B, 32, h, h)`: 16 cells a side for a face of 128 px, 32 cells
for one of 256 px.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = 16
HEADS = 8
COARSEST = 8  # cells a side where every cell attends to every other one


class ModulatedBlock(nn.Module):
    """Two convolutions with a residual; a condition scales and shifts the normalised middle (FiLM).

    Perez et al., "FiLM: Visual Reasoning with a General Conditioning Layer", AAAI 2018.

    Args:
        inputs: Channels of the input.
        outputs: Channels of the output.
        condition: Length of the condition.
        dropout: Share of the middle's numbers that are dropped in training.
    """

    def __init__(self, inputs: int, outputs: int, condition: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm1 = nn.GroupNorm(GROUPS, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2 = nn.GroupNorm(GROUPS, outputs)
        self.film = nn.Linear(condition, 2 * outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip: nn.Module
        if inputs != outputs:
            self.skip = nn.Conv2d(inputs, outputs, 1)
        else:
            self.skip = nn.Identity()
        # The block starts close to the identity, so that a deep painter trains from its first step on; at the identity
        # itself an untrained painter would not hear its condition.
        with torch.no_grad():
            for parameter in self.conv2.parameters():
                parameter.mul_(0.01)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """`(B, inputs, h, w)` and `(B, condition)` -> `(B, outputs, h, w)`."""
        scale, shift = self.film(condition)[:, :, None, None].chunk(2, 1)
        middle = self.norm2(self.conv1(F.silu(self.norm1(x))))
        shifted = F.silu(middle * (1 + scale) + shift)
        out: Tensor = self.conv2(F.dropout(shifted, self.dropout, self.training))
        kept: Tensor = self.skip(x)
        return kept + out


class CellAttention(nn.Module):
    """Self-attention over the cells of a map, with a residual.

    Args:
        channels: Channels of the map, a multiple of 8.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.query_key_value = nn.Linear(channels, 3 * channels)
        self.project = nn.Linear(channels, channels)
        # Zeros, so that at first the attention adds nothing.
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, channels, h, w)` -> the same shape."""
        batch, channels, height, width = x.shape
        cells = self.norm(x).flatten(2).transpose(1, 2)
        packed = self.query_key_value(cells).view(batch, height * width, 3, HEADS, channels // HEADS)
        # Each is (B, heads, cells, channels / heads).
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        added: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, height * width, channels))
        return x + added.transpose(1, 2).reshape(batch, channels, height, width)


class PainterLevel(nn.Module):
    """The blocks of one resolution: before the coarser ones, and after them.

    Args:
        width: Channels here.
        deeper: Channels of the next coarser resolution.
        condition: Length of the condition.
        before: Number of blocks on the way down.
        after: Number of blocks on the way up.
        attention: Whether the cells attend to each other on the way up.
        dropout: Of the blocks.
    """

    def __init__(
        self,
        width: int,
        deeper: int,
        condition: int,
        before: int,
        after: int,
        attention: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.before = nn.ModuleList(ModulatedBlock(width, width, condition, dropout) for _ in range(before))
        self.down = nn.Conv2d(width, deeper, 3, stride=2, padding=1)
        self.up = nn.Conv2d(deeper, width, 3, padding=1)
        # The first block on the way up also sees what the way down kept.
        joined = [2 * width] + [width] * (after - 1)
        self.after = nn.ModuleList(ModulatedBlock(inputs, width, condition, dropout) for inputs in joined)
        self.attention = CellAttention(width) if attention else None

    def descend(self, x: Tensor, condition: Tensor) -> Tensor:
        """`(B, width, h, h)` -> `(B, width, h, h)`, what the way up is to remember."""
        for block in self.before:
            x = block(x, condition)
        return x

    def ascend(self, coarse: Tensor, kept: Tensor, condition: Tensor) -> Tensor:
        """`(B, deeper, h / 2, h / 2)` and `(B, width, h, h)` -> `(B, width, h, h)`."""
        grown = self.up(F.interpolate(coarse, scale_factor=2.0))
        x = torch.cat([grown, kept], 1)
        for number, block in enumerate(self.after):
            x = block(x, condition)
            if number == 0 and self.attention is not None:
                x = self.attention(x)
        return x


class FacePainter(nn.Module):
    """Paint a face into latents: what lies around the face, drawings of it and a condition give the new cells.

    Args:
        cells: Cells a side of the latents: 16 for faces of 128 px, 32 for 256 px.
        channels: Channels of the latents.
        maps: Channels of the spatial condition beside the latents.
        condition: Length of the vector condition.
        widths: Channels by cells a side; 8 is the coarsest.
        hidden: Length of the condition that the blocks see.
        dropout: Of the blocks.
    """

    def __init__(
        self,
        cells: int = 16,
        channels: int = 32,
        maps: int = 116,
        condition: int = 85,
        widths: dict[int, int] | None = None,
        hidden: int = 320,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = widths or {32: 64, 16: 128, 8: 256}
        self.embed = nn.Sequential(
            nn.Linear(condition, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden)
        )
        self.sides = [side for side in sorted(widths, reverse=True) if COARSEST < side <= cells]
        # By the side of the latents, as all levels are named.
        self.enter = nn.ModuleDict({str(cells): nn.Conv2d(channels + maps, widths[cells], 3, padding=1)})
        self.levels = nn.ModuleDict()
        for side in self.sides:
            after = 3 if side == 16 else 2
            level = PainterLevel(widths[side], widths[side // 2], hidden, 1, after, side == 16, dropout)
            self.levels[str(side)] = level
        width = widths[COARSEST]
        self.coarse = nn.ModuleList(ModulatedBlock(width, width, hidden, dropout) for _ in range(4))
        self.attention = nn.ModuleList(CellAttention(width) for _ in range(3))
        self.leave = nn.ModuleDict({str(cells): _out(widths[cells], channels)})

    def forward(self, latents: Tensor, mask: Tensor, maps: Tensor, condition: Tensor) -> Tensor:
        """The latents with a new face.

        Args:
            latents: `(B, channels, cells, cells)`; what lies under the mask is not looked at.
            mask: `(B, 1, cells, cells)` of 0 and 1, the cells to paint.
            maps: `(B, maps, cells, cells)` drawings of the face.
            condition: `(B, condition)` float32.

        Returns:
            `(B, channels, cells, cells)`, outside the mask as given.
        """
        around = latents * (1 - mask)
        film = self.embed(condition)
        cells = str(latents.shape[-1])
        x = self.enter[cells](torch.cat([around, maps], 1))
        kept: list[Tensor] = []
        for side in self.sides:
            level = self.levels[str(side)]
            x = level.descend(x, film)  # type: ignore[operator]
            kept.append(x)
            x = level.down(x)  # type: ignore[operator]
        for number, block in enumerate(self.coarse):
            x = block(x, film)
            if number < len(self.attention):
                x = self.attention[number](x)
        for side in reversed(self.sides):
            x = self.levels[str(side)].ascend(x, kept.pop(), film)  # type: ignore[operator]
        painted: Tensor = self.leave[cells](x)
        return around + mask * painted


def _out(width: int, channels: int) -> nn.Sequential:
    """The last layers: `(B, width, h, h)` -> `(B, channels, h, h)`."""
    return nn.Sequential(nn.GroupNorm(GROUPS, width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))


class PaintingDiscriminator(nn.Module):
    """Tell latents of photographs from painted ones, cell by cell and as a whole.

    Its layers are normalised by groups. With spectral norm in their place it told hardly more after 100 batches than by
    a guess (AUC .72 on new pictures, against .99), and a painter learnt nothing from it.

    Args:
        cells: Cells a side of the latents.
        channels: Channels of the latents.
        maps: Channels that say what should be there: the mask and the drawings.
        width: Channels of the first layers.
    """

    def __init__(self, cells: int = 16, channels: int = 32, maps: int = 8, width: int = 96) -> None:
        super().__init__()
        # The first layer has no norm: it would hide how strong the contrasts of a whole picture are.
        fine = [nn.Conv2d(channels + maps, width, 3, 1, 1), nn.LeakyReLU(0.2), _seen(width, width)]
        # Larger latents are halved once more: `whole_head` is built for the 4 x 4 places that 16 cells end in.
        if cells == 32:
            fine += [_seen(width, width, 2)]
        self.fine = nn.Sequential(*fine, _seen(width, width))
        self.middle = nn.Sequential(_seen(width, 2 * width, 2), _seen(2 * width, 2 * width))
        self.coarse = nn.Sequential(_seen(2 * width, 3 * width, 2), _seen(3 * width, 3 * width))
        self.fine_head = nn.Conv2d(width, 1, 1)
        self.middle_head = nn.Conv2d(2 * width, 1, 1)
        self.whole_head = nn.Linear(3 * width * 16, 1)

    def forward(self, drawn: Tensor) -> Tensor:
        """Logits, higher for photographs; in training the input is partly hidden first.

        Args:
            drawn: `(B, channels + maps, cells, cells)`: latents, then what should be there.

        Returns:
            `(B, 3 N)` of N places: of fine cells, of coarser cells and of the whole, a third each.
        """
        fine = self.fine(_partly_hidden(drawn) if self.training else drawn)
        middle = self.middle(fine)
        whole = self.whole_head(self.coarse(middle).flatten(1))
        fine_logits: Tensor = self.fine_head(fine).flatten(1)
        middle_logits: Tensor = self.middle_head(middle).flatten(1)
        places = fine_logits.shape[1]
        # Repeated, so that each of the three looks has the same weight in a mean over all logits.
        repeated = middle_logits.repeat_interleave(places // middle_logits.shape[1], 1)
        return torch.cat([fine_logits, repeated, whole.expand(-1, places)], 1)


def _partly_hidden(drawn: Tensor) -> Tensor:
    """Hide the same square in a whole batch, in two of five batches.

    Zhao et al., "Differentiable Augmentation for Data-Efficient GAN Training", NeurIPS 2020, without its shifts: faces
    are aligned, and a discriminator that must allow for shifts of a cell or two learns ten times more slowly.
    """
    if torch.rand(()) >= 0.4:
        return drawn
    side = drawn.shape[-1]
    hidden = side // 3
    corner = torch.randint(0, side - hidden + 1, (2,)).tolist()
    keep = torch.ones(1, 1, side, side, device=drawn.device, dtype=drawn.dtype)
    keep[..., corner[0] : corner[0] + hidden, corner[1] : corner[1] + hidden] = 0
    return drawn * keep


def _seen(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A layer of the discriminator."""
    # Groups and not a spectral norm, under which it learnt to tell new pictures apart too slowly to teach a painter.
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(GROUPS, outputs), nn.LeakyReLU(0.2))
