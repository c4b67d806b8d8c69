"""RiDDLE's latent encryptor: one transformer decoder layer per group of W+ layers (Li et al., CVPR 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, cat, nn
from torch.nn import functional as F

SPLIT = (4, 4, 6)
HEADS = 4


class DecoderLayer(nn.Module):
    """Post-norm decoder layer: self-attention, attention to the password, feed-forward, each with residual and norm.

    Args:
        width: Width D of the tokens.
        hidden: Width of the feed-forward part.
        dropout: Probability, in training.
        norm: Whether a layer norm follows each sum.
    """

    def __init__(self, width: int = 512, hidden: int = 1024, dropout: float = 0.1, norm: bool = True) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, HEADS, dropout)
        self.multihead_attn = nn.MultiheadAttention(width, HEADS, dropout)
        self.linear1 = nn.Linear(width, hidden)
        self.linear2 = nn.Linear(hidden, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) if norm else None for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, memory: Tensor) -> Tensor:
        """Tokens `(L, B, D)` that attend to each other and to `memory` `(L, B, D)`."""
        # Without the weights torch takes its fast attention.
        attended = self.self_attn(tokens, tokens, tokens, need_weights=False)[0]
        tokens = _normed(self.norm1, tokens + self.dropout(attended))
        attended = self.multihead_attn(tokens, memory, memory, need_weights=False)[0]
        tokens = _normed(self.norm2, tokens + self.dropout(attended))
        fed = self.linear2(self.dropout(F.relu(self.linear1(tokens))))
        return _normed(self.norm3, tokens + self.dropout(fed))


def _normed(norm: nn.LayerNorm | None, x: Tensor) -> Tensor:
    if norm is None:
        return x
    out: Tensor = norm(x)
    return out


class TransformerMapperSplit(nn.Module):
    """Turn the W+ code of a face and a password into the code of another face; the same call turns it back.

    The result is the new code itself: nothing is added to it. The released checkpoint (`iteration_90000.pt`) most
    likely has both options; the published training script builds neither. `mapper_layout` tells from the keys.

    Args:
        split: Number of layers in each group; their sum is the L of the codes, 14 for a generator of 256 px.
        add_linear: Pass codes and password through a linear layer each before they meet.
        add_pos_embedding: Add a learnt vector per layer to the codes (not to the password).
        norm: Whether the layers have layer norms. The published code's `instancenorm` does not run and is not offered.
        width: Width D of the codes.
    """

    def __init__(
        self,
        split: Sequence[int] = SPLIT,
        add_linear: bool = False,
        add_pos_embedding: bool = False,
        norm: bool = True,
        width: int = 512,
    ) -> None:
        super().__init__()
        self.split = list(split)
        self.pos_embedding = nn.Parameter(torch.randn(sum(split), 1, width)) if add_pos_embedding else None
        self.linear_ori = nn.Linear(width, width) if add_linear else None
        self.linear_pwd = nn.Linear(width, width) if add_linear else None
        self.layers = nn.ModuleList(DecoderLayer(width, 2 * width, norm=norm) for _ in split)

    def forward(self, codes: Tensor, password: Tensor) -> Tensor:
        """Encrypt a code, or decrypt an encrypted one.

        Args:
            codes: `(B, L, D)` W+ codes, absolute (`latent_avg` included).
            password: `(B, D)` W code of the password, the same for all layers, or `(B, L, D)`.

        Returns:
            `(B, L, D)`.

        Raises:
            ValueError: `codes` have another number of layers, or `password` does not fit them.
        """
        tokens, memory = self._tokens(codes, password)
        if self.linear_ori is not None and self.linear_pwd is not None:
            tokens = self.linear_ori(tokens)
            memory = self.linear_pwd(memory)
        if self.pos_embedding is not None:
            tokens = tokens + self.pos_embedding
        groups = zip(self.layers, torch.split(tokens, self.split), torch.split(memory, self.split), strict=True)
        parts = []
        for layer, part, key in groups:
            parts.append(layer(part, key))
        return cat(parts).transpose(0, 1)

    def _tokens(self, codes: Tensor, password: Tensor) -> tuple[Tensor, Tensor]:
        """Code and key as sequences `(L, B, D)`, as attention takes them."""
        if codes.ndim != 3 or codes.shape[1] != sum(self.split):
            raise ValueError(f"codes are {tuple(codes.shape)}; this mapper takes (B, {sum(self.split)}, D)")
        if password.ndim == 2:
            password = password[:, None].expand(-1, codes.shape[1], -1)
        if password.shape != codes.shape:
            raise ValueError(f"password {tuple(password.shape)} does not fit codes {tuple(codes.shape)}")
        return codes.transpose(0, 1), password.transpose(0, 1)


def mapper_layout(public: Mapping[str, Tensor]) -> dict[str, Any]:
    """Arguments of `TransformerMapperSplit` for a public state dict, read off its keys.

    The split is the public (4, 4, 6): no key tells it.

    Args:
        public: `mapper_state_dict` of a checkpoint, without a `module.` prefix.

    Raises:
        ValueError: The tensors are no such mapper's.
    """
    first = "layers.0.self_attn.in_proj_weight"
    if first not in public:
        raise ValueError(f"no transformer mapper: {first} is missing")
    if "pos_embedding" in public:
        rows = public["pos_embedding"].shape[0]
    else:
        rows = sum(SPLIT)
    numbers = set()
    for name in public:
        if name.startswith("layers."):
            numbers.add(name.split(".")[1])
    groups = len(numbers)
    if (groups, rows) != (len(SPLIT), sum(SPLIT)):
        raise ValueError(f"this mapper has {groups} groups and {rows} layers; the public split is {SPLIT}")
    return {
        "add_linear": "linear_ori.weight" in public,
        "add_pos_embedding": "pos_embedding" in public,
        "norm": "layers.0.norm1.weight" in public,
        "width": public[first].shape[1],
    }
