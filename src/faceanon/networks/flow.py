"""Flows on identity codes under a secret: exactly invertible, with the log-determinant of their Jacobian."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.compensation import mlp

FlowKind = Literal["realnvp", "all_in_one"]


class FlowBlock(nn.Module, ABC):
    """One invertible step. Subclasses give both directions, each with its log-determinant `(B,)`."""

    @abstractmethod
    def onward(self, code: Tensor, secret: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, K)` under `(B, C)` -> `(B, K)`."""

    @abstractmethod
    def back(self, code: Tensor, secret: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse of `onward` under the same secret: `(B, K)` under `(B, C)` -> `(B, K)`."""


class RealNVPBlock(FlowBlock):
    """Both halves in turn, four sub-networks (iFADIT eqs. 5-8; the secret joins the input of each).

    The second half is moved first, by the first: z2' = z2 exp(a(f(z1, s))) + g(z1, s), then
    z1' = z1 exp(a(h(z2', s))) + k(z2', s). The inverse takes z2' as it came and z1 as recovered: eqs. (7) and (8) print
    other indices, which cannot be inverted. The paper's a is "sigmoid times a constant"; ours is centred,
    a(x) = c (2 sigmoid(x) - 1), so that a fresh flow neither stretches nor shrinks. The sub-networks see a half at no
    more than unit size (root mean square): shifts then do not grow with the code, and a large one survives float32.

    Args:
        dim: Length K of a code.
        secret_dim: Length C of a secret.
        hidden: Width of the sub-networks, which have three layers.
        bound: c; a block scales an entry by at most e^c.
    """

    def __init__(self, dim: int, secret_dim: int, hidden: int, bound: float) -> None:
        super().__init__()
        self.first = dim // 2
        self.bound = bound
        second = dim - self.first
        to_second = (self.first + secret_dim, hidden, hidden)
        to_first = (second + secret_dim, hidden, hidden)
        self.scale_second = mlp(*to_second, second)
        self.shift_second = mlp(*to_second, second)
        self.scale_first = mlp(*to_first, self.first)
        self.shift_first = mlp(*to_first, self.first)

    @staticmethod
    def _seen(half: Tensor, secret: Tensor) -> Tensor:
        """What the sub-networks see: the secret, and the half over sqrt(1 + its mean square)."""
        return torch.cat([half * (1 + half.square().mean(1, keepdim=True)).rsqrt(), secret], 1)

    def _bounded(self, raw: Tensor) -> Tensor:
        return self.bound * (2 * raw.sigmoid() - 1)

    def onward(self, code: Tensor, secret: Tensor) -> tuple[Tensor, Tensor]:
        """Move both halves by eqs. (5) and (6)."""
        z1 = code[:, : self.first]
        z2 = code[:, self.first :]
        known = self._seen(z1, secret)
        log_second = self._bounded(self.scale_second(known))
        z2 = z2 * log_second.exp() + self.shift_second(known)
        # The z2 that has moved already: the inverse knows only this one.
        known = self._seen(z2, secret)
        log_first = self._bounded(self.scale_first(known))
        z1 = z1 * log_first.exp() + self.shift_first(known)
        return torch.cat([z1, z2], 1), log_second.sum(1) + log_first.sum(1)

    def back(self, code: Tensor, secret: Tensor) -> tuple[Tensor, Tensor]:
        """Eqs. (7) and (8), in our reading."""
        z1 = code[:, : self.first]
        z2 = code[:, self.first :]
        # `onward` moved the first half last, by the z2 that is given here. So the first half is recovered first.
        known = self._seen(z2, secret)
        log_first = self._bounded(self.scale_first(known))
        z1 = (z1 - self.shift_first(known)) * (-log_first).exp()
        known = self._seen(z1, secret)
        log_second = self._bounded(self.scale_second(known))
        z2 = (z2 - self.shift_second(known)) * (-log_second).exp()
        return torch.cat([z1, z2], 1), -(log_second.sum(1) + log_first.sum(1))


class AllInOneBlock(FlowBlock):
    """What iFADIT's released code takes from FrEIA: half a coupling, a learned affine map, a fixed permutation.

    One sub-network on [z1, s] gives scale and shift of z2; log scales are c tanh(x / 10 of its output); then every
    entry has its own scale (a softplus, 1 at the start) and offset (FrEIA calls it ActNorm, but nothing is measured),
    and a random permutation, drawn once and stored, mixes the halves.

    Args:
        dim: Length K of a code; the sub-network's hidden widths are K/2, K/4, K/4, K/2.
        secret_dim: Length C of a secret.
        bound: c.
        seed: Of the permutation.
    """

    permutation: Tensor

    def __init__(self, dim: int, secret_dim: int, bound: float, seed: int) -> None:
        super().__init__()
        # As FrEIA cuts a code: of an odd length the first half is the longer one.
        self.first = dim - dim // 2
        self.bound = bound
        widths = (dim // 2, dim // 4, dim // 4, dim // 2)
        self.subnet = mlp(self.first + secret_dim, *widths, 2 * (dim // 2), slope=0.01)
        # softplus makes 10 of it, and a tenth of that is a scale of 1 to start with.
        self.raw_scale = nn.Parameter(torch.full((dim,), 10.0).expm1().log())
        self.offset = nn.Parameter(torch.zeros(dim))
        self.register_buffer("permutation", torch.randperm(dim, generator=torch.Generator().manual_seed(seed)))

    def _coupling(self, z1: Tensor, secret: Tensor) -> tuple[Tensor, Tensor]:
        # FrEIA damps the sub-network tenfold.
        raw, shift = (0.1 * self.subnet(torch.cat([z1, secret], 1))).chunk(2, 1)
        return self.bound * raw.tanh(), shift

    def _scale(self) -> Tensor:
        return 0.1 * F.softplus(self.raw_scale) + 1e-6  # never 0, whatever training does

    def onward(self, code: Tensor, secret: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the flow: affine coupling, then a scale and an offset for each dimension, then a permutation."""
        z1 = code[:, : self.first]
        z2 = code[:, self.first :]
        log_scale, shift = self._coupling(z1, secret)
        joined = torch.cat([z1, z2 * log_scale.exp() + shift], 1)
        scale = self._scale()
        moved = (joined * scale + self.offset)[:, self.permutation]
        # A permutation keeps volumes, so it adds nothing to the log-determinant.
        return moved, log_scale.sum(1) + scale.log().sum()

    def back(self, code: Tensor, secret: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse of `onward`: permutation, scale and coupling are undone in this order."""
        scale = self._scale()
        joined = (code[:, self.permutation.argsort()] - self.offset) / scale
        z1 = joined[:, : self.first]
        z2 = joined[:, self.first :]
        log_scale, shift = self._coupling(z1, secret)
        return torch.cat([z1, (z2 - shift) * (-log_scale).exp()], 1), -(log_scale.sum(1) + scale.log().sum())


class SecureIdentityFlow(nn.Module):
    """SIF, iFADIT's T: a chain of conditional couplings, run in float32 whatever the autocast context.

    Args:
        dim: Length K of a code.
        secret_dim: Length C of a secret.
        blocks: Number of steps.
        kind: `realnvp` (paper) or `all_in_one` (released code).
        hidden: Width of the paper's sub-networks; the released ones follow from K.
        bound: Largest log scale c of a coupling.
    """

    def __init__(
        self,
        dim: int,
        secret_dim: int,
        blocks: int = 4,
        kind: FlowKind = "realnvp",
        hidden: int = 512,
        bound: float = 1.0,
    ) -> None:
        super().__init__()
        made: list[FlowBlock] = []
        # A block's number is its seed: permutations differ between blocks and are the same in every run.
        for seed in range(blocks):
            if kind == "realnvp":
                made.append(RealNVPBlock(dim, secret_dim, hidden, bound))
            else:
                made.append(AllInOneBlock(dim, secret_dim, bound, seed))
        self.blocks = nn.ModuleList(made)

    def with_log_det(self, code: Tensor, secret: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
        """As `forward`, and log |det| of the Jacobian with respect to the code, `(B,)`."""
        # In half precision the way back would miss the code.
        with torch.autocast(code.device.type, enabled=False):
            secret = secret.to(self._dtype)
            moved = code.to(self._dtype)
            total = moved.new_zeros(moved.shape[0])
            for block in reversed(self.blocks) if inverse else self.blocks:
                assert isinstance(block, FlowBlock)
                moved, log_det = (block.back if inverse else block.onward)(moved, secret)
                total = total + log_det
        return moved, total

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def forward(self, code: Tensor, secret: Tensor, inverse: bool = False) -> Tensor:
        """Move codes `(B, K)` under secrets `(B, C)`, or back."""
        return self.with_log_det(code, secret, inverse)[0]
