"""The attention blocks of DBAF: CBAM over encoder features, MAAR, and a small transformer over W+ layers (CID)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

AttentionAxis = Literal["layers", "batch"]


class CBAM(nn.Module):
    """Channel attention, then spatial attention (Woo et al., ECCV 2018); DBAF eqs. (6)-(8).

    Args:
        channels: Channels C of the map.
        reduction: The channel MLP's bottleneck is C / reduction.
        kernel: Side of the spatial convolution.
    """

    def __init__(self, channels: int, reduction: int = 16, kernel: int = 7) -> None:
        super().__init__()
        hidden = max(1, channels // reduction)
        self.mlp = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, channels))
        self.spatial = nn.Sequential(nn.Conv2d(2, 1, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(1))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` -> the same shape."""
        # Both poolings go through the same MLP, as in CBAM's eq. (2).
        gate = torch.sigmoid(self.mlp(x.mean((2, 3))) + self.mlp(x.amax((2, 3))))
        x = x * gate[:, :, None, None]
        pooled = torch.cat([x.amax(1, keepdim=True), x.mean(1, keepdim=True)], 1)
        return x * torch.sigmoid(self.spatial(pooled))


class MAAR(nn.Module):
    """A 1x1 convolution to the generator's width, then CBAM, per resolution.

    Args:
        inputs: Channels of the encoder's maps by side in px.
        outputs: Channels of the generator by side in px; sides that `inputs` lacks are left out.

    Attributes:
        init_args: Arguments that build it again, plain values.
    """

    def __init__(self, inputs: dict[int, int], outputs: dict[int, int]) -> None:
        super().__init__()
        used = {side: outputs[side] for side in inputs}
        self.init_args = {"inputs": dict(inputs), "outputs": used}
        self.levels = nn.ModuleDict()
        for side, width in inputs.items():
            self.levels[str(side)] = nn.Sequential(nn.Conv2d(width, outputs[side], 1), CBAM(outputs[side]))

    def forward(self, maps: dict[int, Tensor]) -> dict[int, Tensor]:
        """Maps by side -> maps for the generator's noise inputs by side."""
        return {side: self.levels[str(side)](item) for side, item in maps.items()}


class Attention(nn.Module):
    """Multi-head self-attention over `(N, T, D)`.

    Args:
        dim: Width D.
        heads: Number of heads.
        head_dim: Width of a head.
        dropout: On the output.
    """

    def __init__(self, dim: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * heads * head_dim, bias=False)
        self.out = nn.Sequential(nn.Linear(heads * head_dim, dim), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        """`(N, T, D)` -> `(N, T, D)`."""
        # Each is (N, heads, T, head_dim).
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        output: Tensor = self.out(mixed)
        return output


class AttentionBlock(nn.Module):
    """Pre-norm attention and feed-forward part, each added to its input; arguments as in `LayerTransformer`."""

    def __init__(self, dim: int, heads: int, head_dim: int, mlp_dim: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(dim), Attention(dim, heads, head_dim, dropout))
        hidden = [nn.Linear(dim, mlp_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(mlp_dim, dim), nn.Dropout(dropout)]
        self.feed = nn.Sequential(nn.LayerNorm(dim), *hidden)

    def forward(self, x: Tensor) -> Tensor:
        """`(N, T, D)` -> `(N, T, D)`."""
        x = x + self.attention(x)
        output: Tensor = x + self.feed(x)
        return output


class LayerTransformer(nn.Module):
    """CID's attribute branch: a pre-norm transformer whose tokens are the layers of a W+ code, DBAF eq. (3).

    Args:
        layers: Number L of tokens.
        dim: Width D.
        depth: Number of blocks.
        heads: Attention heads.
        head_dim: Width of a head.
        mlp_dim: Hidden width of the feed-forward part.
        dropout: After attention and in the feed-forward part.
        axis: `layers` attends across the tokens of one picture; `batch` across the pictures of the batch, layer by
            layer, as the released code does (its axes are swapped, so a result depends on its neighbours).
    """

    def __init__(
        self,
        layers: int,
        dim: int,
        depth: int = 6,
        heads: int = 14,
        head_dim: int = 64,
        mlp_dim: int = 2048,
        dropout: float = 0.1,
        axis: AttentionAxis = "layers",
    ) -> None:
        super().__init__()
        self.axis = axis
        self.project = nn.Linear(dim, dim)
        self.position = nn.Parameter(torch.randn(layers, 1, dim) * 0.02)
        self.blocks = nn.Sequential(*(AttentionBlock(dim, heads, head_dim, mlp_dim, dropout) for _ in range(depth)))

    @torch.no_grad()
    def soften(self, share: float) -> None:
        """Make an untrained network's attributes `share` as large, by each last layer that adds to them."""
        self.project.weight.mul_(share)
        self.project.bias.mul_(share)
        for block in self.blocks:
            for part in block.children():
                last = [layer for layer in part.modules() if isinstance(layer, nn.Linear)]
                for layer in last[-1:]:
                    layer.weight.mul_(share)
                    if layer.bias is not None:
                        layer.bias.mul_(share)

    def forward(self, codes: Tensor) -> Tensor:
        """`(B, L, D)` -> attribute codes `(B, L, D)`."""
        x: Tensor = self.project(codes) + self.position[:, 0]
        # Attention runs along the second axis. After the swap this is the batch: (L, B, D).
        if self.axis == "batch":
            x = x.transpose(0, 1)
        x = self.blocks(x)
        if self.axis == "batch":
            return x.transpose(0, 1)
        return x
