"""A keyed turn of codes that inverting every bit of the password undoes."""

from __future__ import annotations

import math
from itertools import combinations

import torch
from torch import Tensor, nn

from faceanon.networks.keyed import turned_pairs

JOINED = 3  # bits whose product says where a pair turns; odd, so that it changes its sign with all of them
STEP = 0.618  # of the way through all such triples from one pair to the next, so that neighbours share few bits


class BitTurns(nn.Module):
    """Turns neighbouring numbers of a code against each other, each pair by the same angle to one side or the other.

    The side is the sign of a product of three bits. The password with every bit inverted has the opposite sign
    everywhere, and so turns all pairs back; any other password turns half of them farther away.

    Args:
        length: Numbers of a code; even.
        bits: Length N of a password, at least 3.
        angle: In degrees.

    Raises:
        ValueError: The length is odd, or the bits are too few.

    Examples:
        >>> import torch
        >>> from faceanon.networks.bit_turns import BitTurns
        >>> turns = BitTurns(8, bits=16, angle=110.0)
        >>> code = torch.randn(2, 8)
        >>> password = torch.randint(2, (2, 16)) - 0.5
        >>> torch.allclose(turns(turns(code, password), -password), code, atol=1e-5)
        True
    """

    triples: Tensor

    def __init__(self, length: int, bits: int, angle: float = 110.0) -> None:
        super().__init__()
        if length % 2:
            raise ValueError(f"a code of {length} numbers has no pairs")
        if bits < JOINED:
            raise ValueError(f"a password of {bits} bits is too short; give at least {JOINED}")
        self.cosine = math.cos(math.radians(angle))
        self.sine = math.sin(math.radians(angle))
        every = list(combinations(range(bits), JOINED))
        chosen = []
        for pair in range(length // 2):
            chosen.append(every[int(pair * STEP * len(every)) % len(every)])
        # They follow from the arguments, so no file has to hold them.
        self.register_buffer("triples", torch.tensor(chosen), persistent=False)

    def forward(self, code: Tensor, password: Tensor) -> Tensor:
        """Turn codes.

        Args:
            code: `(B, length)`.
            password: `(B, N)` of -1/2 and +1/2.

        Returns:
            `(B, length)`, each as long as before.
        """
        side = password[:, self.triples].sign().prod(-1).to(code.dtype)
        return turned_pairs(code, self.cosine, self.sine * side)
