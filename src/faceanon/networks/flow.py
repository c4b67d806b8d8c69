"""Flows on identity codes under a secret: exactly invertible, with the log-determinant of their Jacobian."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.compensation import mlp

FlowKind = Literal["realnvp", "all_in_one"]
CERTAIN = 8.0  # a sign that a secret chooses holds for entries up to this many times the number that decides on it
FAINT = 0.01  # of the largest deviation of secrets along an axis; along fainter axes they hardly differ
SMALL_START = 0.05  # of the weights that a flow which starts as a turn adds to it


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
    z1' = z1 exp(a(h(z2', s))) + k(z2', s). The inverse takes z2' as it came and z1 as recovered. Two things are not
    printed. The paper's a is "sigmoid times a constant"; ours is centred, a(x) = c (2 sigmoid(x) - 1), so that a fresh
    flow neither stretches nor shrinks. The sub-networks see a half at no more than unit size (root mean square): shifts
    then do not grow with the code, and a large one survives float32.

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

    @torch.no_grad()
    def start_turning(self, directions: Tensor, offset: Tensor, second: float, first: float) -> None:
        """Set the sub-networks so that each half is moved by the other one, with signs that the secret chooses.

        z2' = z2 + second D z1, then z1' = z1 + first D z2', where D has the signs of `directions @ secret + offset`
        on its diagonal. What the sub-networks still lack, training adds.

        Args:
            directions: `(K / 2, C)`.
            offset: `(K / 2,)`.
            second: Factor of the first step.
            first: Factor of the second step.
        """
        # The sub-networks see a half of mean square m divided by sqrt(1 + m) (`_seen`). Whitened codes have m = 1, and
        # the first step makes it 1 + second^2.
        set_signed_sum(self.shift_second, directions, offset, second * 2**0.5)
        set_signed_sum(self.shift_first, directions, offset, first * (2 + second**2) ** 0.5)
        for scale in (self.scale_second, self.scale_first):
            last = scale[-1]
            assert isinstance(last, nn.Linear)
            last.weight.mul_(SMALL_START)
            last.bias.zero_()

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
        """Move them back by eqs. (7) and (8)."""
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

    @torch.no_grad()
    def start_turning(self, secrets: Tensor, degrees: float, seed: int = 0) -> None:
        """Set a fresh flow of the paper's blocks to a turn by an angle, with signs that the secret chooses.

        A turn is made of three steps of couplings, each with the signs D: z2 + t D z1, z1 - s D z2, z2 + t D z1, where
        t = tan(angle / 2) and s = sin(angle). It takes (z1, z2) to (cos z1 - sin D z2, cos z2 + sin D z1), so every
        whitened code is turned by the angle. The layers of the sub-networks can say that exactly but for entries whose
        sign the secret hardly decides: these take some 20 degrees off a turn by 150. Other blocks start near the
        identity map.

        Args:
            secrets: `(N, C)` of random keys, by which the numbers that decide on signs have zero mean and unit size.
            degrees: The angle, above 0 and below 180.
            seed: Of the directions in which secrets are looked at.

        Raises:
            ValueError: The flow has fewer than two blocks, or other ones than the paper's.
        """
        blocks = [block for block in self.blocks if isinstance(block, RealNVPBlock)]
        if len(blocks) < max(2, len(self.blocks)):
            raise ValueError("a turn takes two blocks or more, all of the kind realnvp")
        half = blocks[0].first
        random = torch.Generator().manual_seed(seed)
        mean = secrets.mean(0)
        # All axes along which secrets vary count alike, or the largest would give most keys the same signs.
        _, lengths, axes = torch.linalg.svd(secrets - mean, full_matrices=False)
        whiten = len(secrets) ** 0.5 * axes.T / lengths.clamp(min=FAINT * float(lengths[0]))
        drawn = torch.randn(half, whiten.shape[1], generator=random).to(secrets)
        directions = drawn @ whiten.T / whiten.shape[1] ** 0.5
        offset = -(directions @ mean)
        angle = math.radians(degrees)
        steps = [(math.tan(angle / 2), -math.sin(angle)), (math.tan(angle / 2), 0.0)]
        steps += [(0.0, 0.0)] * (len(blocks) - 2)
        for block, (second, first) in zip(blocks, steps, strict=True):
            block.start_turning(directions, offset, second, first)

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


@torch.no_grad()
def set_signed_sum(network: nn.Sequential, directions: Tensor, offset: Tensor, factor: float) -> None:
    """Set a network of three layers to y = factor sign(u) z, where u = `directions @ secret + offset`.

    It is the difference of two distances: |z + c u| - |z - c u| = 2 sign(u) z as long as |z| <= c |u|. A distance is
    the sum of two leaky ReLUs. Weights that are not needed for it stay as they were, but small towards the output.

    Args:
        network: From `(z, secret)` to y; its hidden layers have at least 4 n entries for z of n entries.
        directions: `(n, C)`.
        offset: `(n,)`.
        factor: Of the output.

    Raises:
        ValueError: The network is too narrow.
    """
    first, activation, middle, _, last = network
    assert isinstance(first, nn.Linear)
    assert isinstance(middle, nn.Linear)
    assert isinstance(last, nn.Linear)
    assert isinstance(activation, nn.LeakyReLU)
    count = len(directions)
    if first.out_features < 4 * count:
        raise ValueError(f"hidden layers of {first.out_features} are too narrow: halves of {count} need {4 * count}")
    slope = activation.negative_slope
    eye = torch.eye(count).to(first.weight)
    # Rows in four parts: z + c u, its negative, z - c u, its negative.
    for part, (sign, turned) in enumerate(((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0))):
        rows = slice(part * count, (part + 1) * count)
        first.weight[rows] = sign * torch.cat([eye, turned * CERTAIN * directions], 1)
        first.bias[rows] = sign * turned * CERTAIN * offset
    # leaky(x) + leaky(-x) = (1 - slope) |x|, and half of the difference of two distances is the signed entry.
    distance = torch.cat([eye, eye, -eye, -eye], 1) / (2 * (1 - slope))
    middle.weight[: 2 * count].zero_()
    middle.weight[:count, : 4 * count] = distance
    middle.weight[count : 2 * count, : 4 * count] = -distance
    middle.bias[: 2 * count].zero_()
    # leaky(x) - leaky(-x) = (1 + slope) x.
    last.weight.mul_(SMALL_START)
    last.weight[:, :count] = eye * factor / (1 + slope)
    last.weight[:, count : 2 * count] = -eye * factor / (1 + slope)
    last.bias.zero_()
