"""A keyed map of identity codes that is exactly invertible and not linear."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faceanon.networks.keyed import turned_pairs


class KeyedFlow(nn.Module):
    """Turn white codes x by T = A^-1 J A, where the key draws A, a flow that keeps every length.

    A is a chain of L rounds and a last frame. A round mixes the entries by a keyed orthogonal matrix, cuts the result
    into halves p and c, and turns every pair of entries of p by its own angle, which c sets:

        (p_2j, p_2j+1) <- turned by theta_j = swing * s * u_j c,    u_j a keyed unit vector.

    s = sqrt(2 / (1 + |x|^2 / n)) is about 1 for a person's code, and keeps errors of codes far out from growing without
    limit. No round changes c or |x|, so each is undone by the opposite angles. J turns every pair of entries by 90
    degrees, or by another angle. What follows from that, whatever the key:

    - T^-1 = A^-1 J^-1 A is exact; norms and volumes stay, so the standard normal distribution of white codes does,
      and a stranger's code lies where persons' codes lie.
    - Without swing T is orthogonal and antisymmetric, as `KeyedTurn`, and every code is orthogonal to its stranger's.
      With it T is near that: cosines spread around 0, less than those of unrelated codes. With another angle
      they spread around its cosine without swing, and around less of it with swing.
    - Angles grow with c, so T is not linear, and pairs of codes reveal it slowly. This has a price. Write T in Hermite
      polynomials: p_k, the share of degree k, sums to 1; linear attacks find the share p_1 and no more; two readings
      that agree with correlation r have images that agree by sum p_k r^k; and small errors grow by sqrt(sum k p_k).
      `benchmarks/known_pairs.py` measures all of it.

    The code is cut into `grades`, runs of entries that are turned apart. Principal components come in the order of what
    they tell: where all are mixed, the noise of the last reaches every entry of the stranger, and two photos under one
    key look like two strangers.

    Not a cipher: it is made of smooth functions, and enough known pairs under one key teach it to a network.

    Args:
        grades: Lengths of the runs, each even and at least 4; they sum to the length K of a code.
        rounds: L.
        swing: Radians by which an angle grows for one standard deviation of u c; 0 is linear.
        degrees: The angle of J.
        stretch: By how much a stranger's code lies farther from the mean than the person's; the way back divides again.

    Raises:
        ValueError: No run, or one that is odd or too short.

    Examples:
        >>> import torch
        >>> from faceanon.networks.keyed_flow import KeyedFlow
        >>> flow = KeyedFlow(grades=[12, 8], rounds=4, swing=0.4)
        >>> code = torch.randn(3, 20)
        >>> key = torch.randn(3, flow.key_size)
        >>> stranger = flow(code, key)
        >>> torch.allclose(flow(stranger, key, inverse=True), code, atol=1e-3)
        True
        >>> torch.allclose(flow(2 * code, key), 2 * stranger, atol=1e-3)  # not linear
        False
    """

    def __init__(
        self,
        grades: Sequence[int],
        rounds: int = 4,
        swing: float = 0.4,
        degrees: float = 90.0,
        stretch: float = 1.0,
    ) -> None:
        if not grades or any(length < 4 or length % 2 for length in grades):
            raise ValueError(f"grades must be even and at least 4 each, got {list(grades)}")
        super().__init__()
        self.dim = sum(grades)
        self.grades = tuple(grades)
        self.rounds = rounds
        self.swing = swing
        self.degrees = degrees
        self.stretch = stretch

    @property
    def key_size(self) -> int:
        """Standard normal numbers in a key."""
        return sum(sum(self._sizes(length)) for length in self.grades)

    def _sizes(self, length: int) -> tuple[int, int]:
        """Numbers of a key for the frames and for the directions u of a run."""
        turned = _turned(length)
        return (self.rounds + 1) * length**2, self.rounds * (turned // 2) * (length - turned)

    def forward(self, code: Tensor, key: Tensor, inverse: bool = False) -> Tensor:
        """Turn codes, or turn them back, in float32 or their own higher precision, whatever the autocast context.

        Args:
            code: `(B, K)`.
            key: `(B, key_size)` standard normal numbers, or `(1, key_size)` for all.
            inverse: Undo.
        """
        with torch.autocast(code.device.type, enabled=False):
            exact = torch.promote_types(code.dtype, torch.float32)
            code = code.to(exact)
            if inverse:
                code = code / self.stretch
            key = key.to(exact)
            parts = []
            start = 0
            for x in torch.split(code, list(self.grades), 1):
                frames, directions = self._drawn(key[:, start:], x.shape[1])
                parts.append(self._turn(x, frames, directions, inverse))
                start += sum(self._sizes(x.shape[1]))
            moved = torch.cat(parts, 1)
            if not inverse:
                moved = moved * self.stretch
        return moved

    def _drawn(self, key: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Frames `(B, L + 1, n, n)` and directions `(B, L, m, n - 2 m)` of a run of n entries from the key's head."""
        turned = _turned(length)
        first, second = self._sizes(length)
        frames = orthogonal(key[:, :first].reshape(-1, self.rounds + 1, length, length))
        # Without rounds there are no directions, and torch cannot reshape nothing to an unknown number of rows.
        if not self.rounds:
            return frames, key[:, :0]
        shape = (-1, self.rounds, turned // 2, length - turned)
        return frames, F.normalize(key[:, first : first + second].reshape(shape), dim=-1)

    def _turn(self, x: Tensor, frames: Tensor, directions: Tensor, inverse: bool) -> Tensor:
        """A^-1 J A, or A^-1 J^-1 A, of `(B, n)`."""
        # Every step keeps the length of x, so the way back finds the same scale.
        scale = self.swing * (2 / (1 + x.square().mean(1, keepdim=True))).sqrt()  # (B, 1)
        for number in range(self.rounds):
            x = _swung(_times(frames[:, number], x), directions[:, number], scale)
        x = _times(frames[:, self.rounds], x)
        angle = math.radians(-self.degrees if inverse else self.degrees)
        x = _times(frames[:, self.rounds].mT, rotate_pairs(x, x.new_full((1, 1), angle)))
        # A round leaves the second half as it is, so the same angles turn the first half back.
        for number in reversed(range(self.rounds)):
            x = _times(frames[:, number].mT, _swung(x, directions[:, number], -scale))
        return x


def _turned(length: int) -> int:
    """Entries of a run that a round turns: an even half."""
    return 2 * (length // 4)


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    """`(B, m, n)` times `(B, n)`."""
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)


def _swung(x: Tensor, directions: Tensor, scale: Tensor) -> Tensor:
    """Turn the pairs of the first half of `(B, n)` by angles that the second half sets, times `(B, 1)`."""
    turned = 2 * directions.shape[1]
    angle = scale * _times(directions, x[:, turned:])
    return torch.cat([rotate_pairs(x[:, :turned], angle), x[:, turned:]], 1)


def rotate_pairs(x: Tensor, angle: Tensor) -> Tensor:
    """Rotate neighbouring entries of `(B, 2 m)` by angles `(B, m)`, or `(1, 1)` for all."""
    return turned_pairs(x, angle.cos(), angle.sin())


def orthogonal(normal: Tensor) -> Tensor:
    """Orthogonal matrices, uniformly distributed, from standard normal numbers, both `(..., n, n)`.

    A product of reflections, the k-th of which takes the axis k to a random direction among the axes from k on
    (Stewart, SIAM J. Numer. Anal. 17(3), 1980); unlike a QR decomposition it is the same graph everywhere.
    """
    size = normal.shape[-1]
    axes = torch.eye(size, dtype=normal.dtype, device=normal.device)
    matrix = axes.expand_as(normal)
    for k in range(size - 1):
        direction = F.normalize(normal[..., k, :] * (torch.arange(size, device=normal.device) >= k), dim=-1)
        sign = _sign(direction[..., k, None])
        # At least as long as sqrt(2): no cancellation.
        mirror = F.normalize(direction + sign * axes[k], dim=-1)
        matrix = matrix - 2 * (matrix @ mirror.unsqueeze(-1)) * mirror.unsqueeze(-2)
    # Reflection k takes the axis k to its direction times minus this sign, so the sign is taken out again.
    # The last axis has no reflection and gets a random sign.
    return matrix * -_sign(normal.diagonal(dim1=-2, dim2=-1)).unsqueeze(-2)


def _sign(x: Tensor) -> Tensor:
    """The sign of every number, where 0 counts as positive."""
    return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)
