"""The attention of DBAF and HFORD: over encoder features (MAAR, ARM), and over layers of a W+ code (CID, IDM)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

AttentionAxis = Literal["layers", "batch"]
RetentionForm = Literal["printed", "cbam"]


class CBAM(nn.Module):
    """Channel attention, then spatial attention (Woo et al., ECCV 2018): HFORD eqs. (3)-(5) behind their convolution.

    Eq. (5) prints the spatial attention of the channel weights, which have no places. That it looks at the weighed map,
    as in CBAM, is our reading. Kernel, reduction and batch norm are CBAM's, and those of DBAF's released code.

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


class PrintedRetention(nn.Module):
    """DBAF's MAAR of one resolution as eqs. (6)-(8) print it, behind M W.

    Psi_CME and Psi_CAE are the largest and the mean number over the channels of a place, repeated over the channels;
    Psi_SME and Psi_SAE those over the places of a channel, repeated over the places. Phi_CA and Phi_SA are one layer
    with d units and a sigmoid each, at every place.

    Phi_CA sees the same number d times, so of the weights of a unit only their sum counts, and that is what is kept.
    Ranger centres the gradients of a matrix, whose rows would then keep their sums for ever.

    Args:
        channels: Channels d of the map.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        # The deviation of a sum of d weights as a linear layer with d inputs begins with.
        self.channel_weight = nn.Parameter(torch.randn(channels) / 3**0.5)
        self.channel_bias = nn.Parameter(torch.zeros(channels))
        self.spatial = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, d, k, k)` -> the same shape."""
        pooled = x.amax(1, keepdim=True) + x.mean(1, keepdim=True)
        weight = self.channel_weight[:, None, None]
        bias = self.channel_bias[:, None, None]
        by_channel = torch.sigmoid(weight * pooled + bias)
        largest = by_channel.amax((2, 3), keepdim=True).expand_as(x)
        mean = by_channel.mean((2, 3), keepdim=True).expand_as(x)
        by_place = torch.sigmoid(self.spatial(torch.cat([largest, mean], 1)))
        return by_place * by_channel * x


class MAAR(nn.Module):
    """A 1x1 convolution to the generator's width, then an attention, per resolution.

    DBAF eq. (9) puts the maps "into the decoder". That they take the place of the generator's noise is our reading.

    Args:
        inputs: Channels of the encoder's maps by side in px.
        outputs: Channels of the generator by side in px; sides that `inputs` lacks are left out.
        form: `printed` is MAAR as DBAF's text has it, eqs. (6)-(8); `cbam` is HFORD's ARM, eqs. (3)-(5), and what
            DBAF's released code has.

    Attributes:
        init_args: Arguments that build it again, plain values.
    """

    def __init__(self, inputs: dict[int, int], outputs: dict[int, int], form: RetentionForm = "cbam") -> None:
        super().__init__()
        used = {side: outputs[side] for side in inputs}
        self.init_args = {"inputs": dict(inputs), "outputs": used, "form": form}
        block = CBAM if form == "cbam" else PrintedRetention
        self.levels = nn.ModuleDict()
        for side, width in inputs.items():
            self.levels[str(side)] = nn.Sequential(nn.Conv2d(width, outputs[side], 1), block(outputs[side]))

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
        bias: Whether the output has a bias.
    """

    def __init__(self, dim: int, heads: int, head_dim: int, dropout: float, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * heads * head_dim, bias=False)
        self.out = nn.Sequential(nn.Linear(heads * head_dim, dim, bias=bias), nn.Dropout(dropout))

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
    """A pre-norm transformer (ViT) whose tokens are layers of a W+ code.

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


class SharedAttention(nn.Module):
    """CID as DBAF prints it, eqs. (1)-(3): one multi-head attention for all levels, each of which it sees by itself.

    W^Q, W^K and W^V are d x d, and W^O is hd x d, all without a bias. Eq. (3) prints the same Q, K and V for every
    head, which would make all heads alike; that each head has weights of its own, as in HFORD's eq. (2), is our
    reading, and so is their number.

    Args:
        dim: Width d of a layer's code.
        heads: Number h of heads.
        levels: Layers of each level.
    """

    def __init__(self, dim: int, heads: int, levels: Sequence[int]) -> None:
        super().__init__()
        self.levels = list(levels)
        self.attention = Attention(dim, heads, head_dim=dim, dropout=0.0, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        """`(B, L, D)` -> attribute codes `(B, L, D)`."""
        return torch.cat([self.attention(level) for level in torch.split(codes, self.levels, 1)], 1)


class LevelTransformers(nn.Module):
    """HFORD's IDM, and CID in DBAF's released code: a transformer of its own for each level.

    HFORD gives no sizes; depth, heads and widths are the released code's.

    Args:
        levels: Layers of each level.
        dim: Width D.
        depth: Number of blocks of each.
        heads: Attention heads.
        head_dim: Width of a head.
        mlp_dim: Hidden width of the feed-forward part.
        dropout: After attention and in the feed-forward part.
        axis: As in `LayerTransformer`.
    """

    def __init__(
        self,
        levels: Sequence[int],
        dim: int,
        depth: int,
        heads: int,
        head_dim: int,
        mlp_dim: int,
        dropout: float,
        axis: AttentionAxis,
    ) -> None:
        super().__init__()
        self.counts = list(levels)
        self.levels = nn.ModuleList()
        for count in levels:
            self.levels.append(LayerTransformer(count, dim, depth, heads, head_dim, mlp_dim, dropout, axis))

    def forward(self, codes: Tensor) -> Tensor:
        """`(B, L, D)` -> attribute codes `(B, L, D)`."""
        parts = zip(self.levels, torch.split(codes, self.counts, 1), strict=True)
        return torch.cat([network(level) for network, level in parts], 1)


class PlainDisentangler(nn.Module):
    """What takes the place of CID and IDM in the papers' ablations: an MLP of four layers.

    The papers say no more of it. That it sees each layer's code by itself, with LeakyReLU of 0.2 between layers as wide
    as the code, is our reading.

    Args:
        dim: Width D of a layer's code.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Linear(dim, dim), nn.LeakyReLU(0.2)]
        self.net = nn.Sequential(*layers, nn.Linear(dim, dim))

    def forward(self, codes: Tensor) -> Tensor:
        """`(B, L, D)` -> attribute codes `(B, L, D)`."""
        attributes: Tensor = self.net(codes)
        return attributes
